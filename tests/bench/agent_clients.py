"""Real coding agents' clients in a project with the kit: whether their models are shown our tools, and can call them.

    npm i --prefix FOLDER @anthropic-ai/claude-code @openai/codex
    python -m tests.bench.agent_clients FOLDER/node_modules/.bin [claude codex]

No account is needed: a server on loopback plays the model, in Anthropic's and OpenAI's protocols. It waits until the
client shows our tools, calls `operators`, and ends. A line of JSON tells for each client its version, how many of our
tools its model was shown, whether the page of the kit was in a request, and the beginning of what the call came to.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LIMIT_S = 180.0
MOST_TURNS = 6
SETTINGS = {"enabledMcpjsonServers": ["kernel-evo"]}
"""Approval of the project's server, which Claude Code asks for when it first starts there."""
PAGE = "Write and improve GPU and CPU kernels"
Event = tuple[str, Mapping[str, Any]]


class Model:
    """A model that calls `operators` once it is shown, and what it was shown."""

    def __init__(self) -> None:
        self.tools: list[str] = []
        self.has_page = False
        self.result = ""
        self._turns = 0

    def claude(self, body: Mapping[str, Any]) -> list[Event]:
        """The events of a message of Anthropic's API."""
        names = [tool["name"] for tool in body.get("tools", ())]
        self.tools = [name for name in names if name.startswith("mcp__kernel-evo__")] or self.tools
        asks = next((name for name in (*self.tools, "WaitForMcpServers") if name in names and self._calls(name)), "")
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": "done"}
        if asks and self._goes_on(body["messages"]):
            block = {"type": "tool_use", "id": f"toolu_{self._turns}", "name": asks, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": "{}"}
        message: dict[str, Any] = {"id": "m", "type": "message", "role": "assistant",
                   "model": body.get("model"), "content": [],
                   "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
        stop = {"stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn", "stop_sequence": None}
        return [
            ("message_start", {"message": message}),
            ("content_block_start", {"index": 0, "content_block": block}),
            ("content_block_delta", {"index": 0, "delta": delta}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": stop, "usage": {"output_tokens": 1}}),
            ("message_stop", {}),
        ]

    def codex(self, body: Mapping[str, Any]) -> list[Event]:
        """The events of a response of OpenAI's API."""
        spaces = [tool for tool in body.get("tools", ()) if tool.get("type") == "namespace" and "evo" in tool["name"]]
        self.tools = [tool["name"] for space in spaces for tool in space["tools"]] or self.tools
        call: dict[str, Any] = {"name": "exec_command", "arguments": json.dumps({"cmd": "sleep 5"})}
        if spaces:
            call = {"namespace": spaces[0]["name"], "name": "operators", "arguments": "{}"}
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
        if self._goes_on(body["input"]):
            item = {"type": "function_call", "call_id": f"call_{self._turns}", **call}
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}  # fmt: skip
        return [
            ("response.created", {"response": {"id": "r"}}),
            ("response.output_item.done", {"item": {"id": f"i{self._turns}", **item}}),
            ("response.completed", {"response": {"id": "r", "usage": usage}}),
        ]

    def _calls(self, name: str) -> bool:
        return name.endswith("__operators") or name == "WaitForMcpServers"

    def _goes_on(self, said: list[Any]) -> bool:
        """Whether another call is made: until one of ours came back, and not for ever."""
        self._turns += 1
        for item in said:
            text = json.dumps(item)
            self.has_page |= PAGE in text or "# Writing kernels for kernel-evo" in text
            if ("tool_result" in text or "function_call_output" in text) and (at := text.find("softmax")) >= 0:
                self.result = text[at : at + 80]
        return not self.result and self._turns <= MOST_TURNS


def served(model: Model) -> ThreadingHTTPServer:
    """A server on loopback that answers as the model does."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._say(200, b"")

        do_GET = do_HEAD

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            path = self.path.partition("?")[0]
            says = {"/v1/messages": model.claude, "/v1/responses": model.codex}.get(path)
            if says is None:
                self._say(404, b"{}")
                return
            events = (f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in says(body))
            self._say(200, "".join(events).encode())

        def _say(self, status: int, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    return serving


def tried(client: str, program: Path) -> dict[str, Any]:
    """Run a client in a new project with the kit, and return what its model saw."""
    model = Model()
    serving = served(model)
    url = f"http://127.0.0.1:{serving.server_port}"
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as place:
        project = Path(place)
        subprocess.run(
            [sys.executable, "-m", "evo.cli", "agent", "install", "--client", client, "--yes"],
            cwd=project, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        if client == "claude":
            (project / ".claude" / "settings.local.json").write_text(json.dumps(SETTINGS))
            words = ["-p", "Which operators are there?", "--allowedTools", "mcp__kernel-evo"]
        else:
            Path(home, "config.toml").write_text(f'[projects."{project}"]\ntrust_level = "trusted"\n')
            provider = f'{{name="loopback",base_url="{url}/v1",wire_api="responses"}}'
            words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                     "-c", "model=scripted", "-c", "model_provider=loopback",
                     "-c", f"model_providers.loopback={provider}",
                     "Which operators are there?"]  # fmt: skip
        mine = {
            "HOME": home, "CODEX_HOME": home, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none",
            "ENABLE_TOOL_SEARCH": "false", "MCP_TIMEOUT": "120000",
        }  # fmt: skip
        ran = subprocess.run(
            [program, *words], cwd=project, env=os.environ | mine, stdin=subprocess.DEVNULL, timeout=LIMIT_S,
            capture_output=True, check=False,
        )  # fmt: skip
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    serving.shutdown()
    serving.server_close()
    return {
        "client": client, "version": version, "exit_code": ran.returncode, "tools": len(model.tools),
        "has_page": model.has_page, "operators": model.result,
    }  # fmt: skip


def main() -> None:
    """Print a line for each client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="folder of the clients' programs")
    parser.add_argument("clients", nargs="*", default=["claude", "codex"])
    options = parser.parse_args()
    for client in options.clients:
        print(json.dumps(tried(client, options.programs.resolve() / client)), flush=True)


if __name__ == "__main__":
    main()
