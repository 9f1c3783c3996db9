"""KernelBench problems on GPUs: from import to a confirmed kernel, and KernelBench's own verdict on what is exported.

    python -m tests.bench.kernelbench CHECKOUT [--seconds 90] [--problems 76 99]

CHECKOUT is a clone of KernelBench. Of each problem of level 2 that `answers/` has a kernel for, `evo import` makes a
task, and `evo run` searches for so many seconds with a model from outside: a strong model's answer, which is told to
the first question. The best kernel, confirmed, is exported by `evo best --as kernelbench` and given to `verdict.py`,
which calls KernelBench's evaluation and its timing of torch eager and torch.compile. GPUs take problems in turn. Prints
JSON lines: our speedups over the task's strongest rival, with intervals, and what KernelBench says.

fp32 products of the answers are made of three of TF32 (see fitness/README.md); their rivals' are IEEE's, as
torch has it by default.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fitness.targets import devices
from tests.bench.gpu_throughput import EVO

ANSWERS = Path(__file__).parent / "answers"
ALIKE = {
    "70_Gemm_Sigmoid_Scaling_ResidualAdd": (
        "76_Gemm_Add_ReLU",
        (("out_features", "hidden_size"), ("in_features", "input_size"), ('"bias"', '"gemm_bias"')),
        ("return v < 0 ? 0 : v;", "return 2 / (1 + expf(-v)) + v;"),
    )
}
"""Problems whose answer is that to another one, with other names in its header and another end of each sum."""
ASK_S = 0.5


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--seconds", type=int, default=90, help="of each search")
    parser.add_argument("--problems", nargs="+", help="their numbers; default: all that have an answer")
    options = parser.parse_args()
    names = sorted([*(path.stem for path in ANSWERS.glob("*.cu")), *ALIKE])
    wanted = [name for name in names if not options.problems or name.split("_")[0] in options.problems]
    gpus: SimpleQueue[str] = SimpleQueue()
    found = devices("cuda")
    for gpu in found:
        gpus.put(gpu)

    def row(name: str) -> dict[str, Any]:
        gpu = gpus.get()
        try:
            with tempfile.TemporaryDirectory() as scratch:
                return {"problem": name} | Problem(options.checkout.resolve(), name, gpu, Path(scratch)).row(
                    options.seconds
                )
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(len(found)) as pool:
        for found_row in pool.map(row, wanted):
            print(json.dumps(found_row), flush=True)


def answer(name: str) -> str:
    """The strong model's kernel for a problem."""
    if name not in ALIKE:
        return _whole(ANSWERS / f"{name}.cu")
    other, names, end = ALIKE[name]
    header, mark, body = answer(other).partition("*/")
    for old, new in names:
        header = header.replace(old, new)
    return header + mark + body.replace(*end)


def _whole(path: Path) -> str:
    """A text with the files in it that its lines `// @ FILE` name: a kernel is one file, and two share a product."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^// @ (\S+)\n", lambda named: _whole(ANSWERS / named[1]), text, flags=re.MULTILINE)


class Problem:
    """One problem on one GPU."""

    def __init__(self, checkout: Path, name: str, gpu: str, scratch: Path) -> None:
        self._checkout, self._name, self._scratch = checkout, name, scratch
        self._file = checkout / "KernelBench" / "level2" / f"{name}.py"
        self._environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu, "EVO_RUNS": str(scratch / "runs")}

    def row(self, seconds: int) -> dict[str, Any]:
        """Figures of ours and of KernelBench's."""
        folder = self._scratch / "task"
        self._evo("import", str(self._file), "--out", str(folder))
        self._search(folder, seconds)
        [best] = json.loads(self._evo("best", "last", "--json"))
        if best["level"] != "confirmed":
            self._evo("resume", "last", "--confirm")
            [best] = json.loads(self._evo("best", "last", "--json"))
        kept = ("level", "speedup", "against_library", "against_library_low", "against_library_high", "library")
        return {key: best[key] for key in kept} | {"kernelbench": self._judged()}

    def _search(self, folder: Path, seconds: int) -> None:
        """A search that is told the answer as soon as it asks."""
        limits = ["--wait", "20", "--budget", f"{seconds}s"]
        command = [*EVO, "run", str(folder), "--target", "cuda", "--dtype", "fp32", "--strategy", "one_shot"]
        log = (self._scratch / "run.log").open("w")
        with log, subprocess.Popen(
            [*command, "--llm", "outside/me", *limits], env=self._environment, stdout=log, stderr=log
        ) as search:  # fmt: skip
            told = False
            while not told:
                try:
                    search.wait(ASK_S)
                    break
                except subprocess.TimeoutExpired:
                    told = self._told()

    def _told(self) -> bool:
        question = subprocess.run(
            [*EVO, "ask", "last", "-n", "1", "--text"], env=self._environment, capture_output=True, text=True
        )
        asked = re.search(r"^=== ([0-9a-f]+) ", question.stdout, re.MULTILINE)
        if not asked:
            return False
        text = self._scratch / "answer.md"
        text.write_text(f"CHANGE: the whole problem in few launches\n\n```cpp\n{answer(self._name)}\n```\n")
        self._evo("tell", "last", str(text), "--to", asked[1], "--author", "a strong model")
        return True

    def _judged(self) -> dict[str, Any]:
        """KernelBench's verdict on the exported `ModelNew`."""
        package, out = self._scratch / "solution", self._scratch / "verdict.json"
        self._evo("best", "last", "--as", "kernelbench", "--package", str(package))
        script = [sys.executable, str(Path(__file__).with_name("verdict.py")), str(self._checkout)]
        judged = subprocess.run(
            [*script, str(self._file), str(package / "model_new.py"), str(out)],
            env=self._environment, capture_output=True, text=True,
        )  # fmt: skip
        verdict: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"failed": judged.stderr[-500:]}
        return verdict

    def _evo(self, *arguments: str) -> str:
        done = subprocess.run([*EVO, *arguments], env=self._environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{self._name}: evo {' '.join(arguments)}: {done.stderr[-1000:]}")
        return done.stdout


if __name__ == "__main__":
    main()
