"""A browser for tests: headless Chromium, told what to do over two pipes (its DevTools protocol), nothing installed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tab:
    """One page of it. Scripts run beside the page's own policy, as the developer's tools do."""

    def __init__(self, profile: Path) -> None:
        commands, own = os.pipe(), os.pipe()
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        renamed = f'exec "$@" 3<&{commands[0]} 4>&{own[1]}'  # it reads from descriptor 3 and writes to 4
        self._process = subprocess.Popen(
            ["bash", "-c", renamed, "bash", str(CHROMIUM), *arguments], pass_fds=(commands[0], own[1]),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands[0])
        os.close(own[1])
        self._out, self._in = os.fdopen(commands[1], "wb", buffering=0), os.fdopen(own[0], "rb")
        self._number, self._session = 0, ""
        (page,) = (t for t in self.tell("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.tell("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        self._out.write(
            json.dumps({"id": self._number, "method": method, "params": params, **session}).encode() + b"\0"
        )
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _message(self) -> bytes:
        read = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser ended"
            read += byte
        return bytes(read)

    def show(self, width: int, height: int = 800, *, dark: bool = False) -> None:
        """Be so large, in pixels, and light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, address: str) -> None:
        """Open it."""
        self.tell("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression, or of what it promises."""
        answer = self.tell("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until it holds, for two minutes at most."""
        held = self.run(
            "new Promise((done) => { const end = performance.now() + 120000; const look = () => "
            f"({condition}) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 20); look(); }})"
        )
        assert held, condition

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """Writes the visible part, or the whole page, as PNG."""
        data = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._out.close()
        self._in.close()


@contextlib.contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """A browser with one page."""
    made = Tab(profile)
    try:
        yield made
    finally:
        made.close()
