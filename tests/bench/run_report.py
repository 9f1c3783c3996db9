"""Cost of the report of a long run: its size, the seconds it takes to build, and those until a browser shows it.

    python -m tests.bench.run_report --individuals 2000 [--keep FILE.html]

The run is that of `tests.bench.engine`: strategy and store are real, verdicts come from a script. Prints JSON:
`individuals`; `bytes` of the file; `build_s`, the whole command; `usable_s`, from the start of headless Chromium until
the page is loaded, its script has run and it is written down again, and `empty_s`, the same for an empty page (null
where there is no Chromium); `kernels` whose source is in the file, `dom` elements.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import evo
from tests.evo.browser import CHROMIUM


def usable_s(page: Path, profile: Path) -> float | None:
    """Seconds that a browser takes from its start until it has written down the page as it stands then."""
    if CHROMIUM is None:
        return None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"--user-data-dir={profile}"]
    began = time.perf_counter()
    subprocess.run(
        [CHROMIUM, *options, page.as_uri()], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return round(time.perf_counter() - began, 2)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, default=2_000)
    parser.add_argument("--run", type=Path, help="report this run instead of making one")
    parser.add_argument("--keep", type=Path, help="keep the report here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = arguments.run or Path(work) / "run"
        if not arguments.run:
            size = ["--size", str(arguments.individuals)]
            subprocess.run([sys.executable, "-m", "tests.bench.engine", "--grow", str(folder), *size], check=True)
        out = (arguments.keep or Path(work) / "report.html").absolute()
        began = time.perf_counter()
        command = [sys.executable, "-m", "evo.cli", "report", str(folder), "--out", str(out), "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        build_s = time.perf_counter() - began
        empty = Path(work) / "empty.html"
        empty.write_text("<!DOCTYPE html><title>empty</title>")
        text = out.read_text(encoding="utf-8")
        profile = Path(work) / "profile"
        empty_s = [usable_s(empty, profile), usable_s(empty, profile)][1]  # the first one makes the profile
        result = {
            "individuals": evo.open(folder).sql("select count(*) as n from individuals").to_pylist()[0]["n"],
            "bytes": len(text.encode()), "build_s": round(build_s, 2), "usable_s": usable_s(out, profile),
            "empty_s": empty_s, "kernels": text.count('<details class="fold" id="kernel-'),
            "dom": len(re.findall(r"<[a-z]", text)),
        }  # fmt: skip
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
