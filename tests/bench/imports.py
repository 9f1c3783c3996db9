"""A table of imports: `python -m tests.bench.imports PROBLEM...`, files and folders in formats that `evo import` reads.

For each problem: whether it is imported, whether its first kernel is right, whether `evo check` passes with a few
mutants, how long all of it took, and the reason of a failure. `--until` leaves out what takes long. Each problem has a
process of its own, which is ended at its limit; with `--lines FILE` a later call goes on where this one ended. First
kernels are run on the hidden shapes, untimed, so that many processes may share a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

STAGES = ("import", "right", "check")
PRELOADED = ("evo.outside.importing", "evo.check_operator", "fitness.cpu.target")
COMMON = {"cpu": "cpu", "cuda": "small"}
"""The workload set that scratch must fit, by target."""

PATIENT_S = 20.0
"""Time limit of one call, where many processes share the cores."""


@dataclass
class Row:
    """One problem."""

    problem: str
    until: str
    target: str
    imported: bool = False
    right: bool = False
    checked: bool = False
    seconds: float = 0.0
    reason: str = ""
    notes: list[str] = field(default_factory=list)


def problems(places: list[str]) -> Iterator[str]:
    """The problems in these places: a folder that is none stands for those in it."""
    for place in places:
        path = Path(place)
        if not path.is_dir() or _whole(path):
            yield place
            continue
        found = {f.parent if _whole(f.parent) else f for f in path.rglob("*.*") if _whole(f.parent) or _alone(f)}
        yield from map(str, sorted(found, key=_place))


def _whole(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("task.yml", "definition.json"))


def _alone(path: Path) -> bool:
    """Whether a file is a problem by itself."""
    word = {".py": "def get_inputs", ".json": '"reference"'}.get(path.suffix)
    return word is not None and word in path.read_text(encoding="utf-8", errors="replace")


def _place(path: Path) -> list[Any]:
    """Numbers in the order of their values."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", str(path))]


def named(problem: str) -> str:
    """A problem in a table: its own name and its folder's."""
    path = Path(problem)
    return f"{path.parent.name}/{path.stem}"


def measure(problem: str, folder: Path, row: Row, mutants: int, send: Any) -> None:
    """Import one problem, and judge what it became; each stage's row is sent."""
    os.setsid()  # all that it begins ends with it
    from evo.check_operator import check
    from evo.outside.importing import import_problem
    from operators.errors import UserError
    from operators.importing.folder import NOTE

    began = time.monotonic()

    def passed() -> None:
        row.seconds = round(time.monotonic() - began, 1)
        send.send(asdict(row))

    try:
        note = folder / NOTE
        if note.exists():
            lines = [line.removeprefix("- ") for line in note.read_text(encoding="utf-8").splitlines()]
        else:
            shutil.rmtree(folder, ignore_errors=True)  # one that was cut off
            _, lines = import_problem(problem, out=folder)
        row.imported, row.notes = True, lines
        lacks = [line for line in lines if line.startswith("naive.cpp" if row.target == "cpu" else "naive.cu:")]
        row.reason = lacks[0] if lacks else "the next stage came to no end"
        passed()
        if not lacks and row.until != "import":
            row.reason = refusal(folder, row.target)
            row.right = not row.reason
            if row.right and row.until == "check":
                row.reason = "evo check came to no end"
                passed()
                said: list[str] = []
                report = check(str(folder), targets=[row.target], limit_s=120, most=mutants, say=said.append)
                row.checked = report.passed(strict=False)
                row.reason = "" if row.checked else " / ".join(said[-3:])
        elif not lacks:
            row.reason = ""
    except UserError as error:
        row.reason = str(error)
    except Exception as error:  # noqa: BLE001 (a row for it, too)
        row.reason = f"{type(error).__name__}: {error}"
    passed()


def refusal(folder: Path, target: str) -> str:
    """The reason for which the first kernel is not right on hidden shapes; empty where it is."""
    import fitness.cpu.target
    import fitness.cuda.session
    from fitness.judging.mutation_test import MutationTest
    from fitness.targets import place
    from operators.catalog import load
    from operators.definition.spec import Task
    from operators.kernel import Kernel

    patient: list[Any] = [fitness.cpu.target, fitness.cuda.session]
    for module in patient:
        module.CALL_LIMIT_S = PATIENT_S
    operator = load(str(folder))
    task = Task(operator.name, operator.dtypes[target][0], target)
    with tempfile.TemporaryDirectory(prefix="evo-") as made:
        kernel = Kernel(operator.name, target, operator.naive(target))
        tried = MutationTest(
            place(operator, task, workload_set=COMMON[target], folder=Path(made)), kernel, operator.hidden
        )
        try:
            found = tried.naive()
        finally:
            tried.close()
    return f"{found.rejection.status}: {found.rejection.message}" if found.rejection else ""


class Bench:
    """Processes side by side, one a problem."""

    def __init__(self, given: argparse.Namespace, place: Path) -> None:
        self.given, self.place = given, place
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))
        self.until = time.monotonic() + 60 * given.minutes
        self.running: dict[int, tuple[BaseProcess, Any, Row, float]] = {}

    def rows(self, waiting: list[str]) -> Iterator[Row]:
        """The rows of these problems, each when it is known; none of those that the end of the time cut off."""
        begun = 0
        try:
            while (begun < len(waiting) or self.running) and time.monotonic() < self.until:
                while begun < len(waiting) and len(self.running) < self.given.jobs:
                    self._begin(begun, waiting[begun])
                    begun += 1
                yield from self._known()
                time.sleep(0.1)
        finally:
            for each in list(self.running):
                self._end(each)

    def _begin(self, number: int, problem: str) -> None:
        row = Row(named(problem), self.given.until, self.given.target, reason="its import came to no end")
        receive, send = self.context.Pipe(duplex=False)
        folder = (self.given.folders or self.place) / re.sub(r"\W", "_", row.problem)
        process = self.context.Process(target=measure, args=(problem, folder, row, self.given.mutants, send))
        process.start()
        send.close()
        self.running[number] = (process, receive, row, time.monotonic())

    def _known(self) -> Iterator[Row]:
        for number, (process, receive, row, began) in list(self.running.items()):
            ended = not process.is_alive()
            while True:
                try:
                    if not receive.poll():
                        break
                    row = Row(**receive.recv())
                except EOFError:
                    break
            seconds = time.monotonic() - began
            self.running[number] = (process, receive, row, began)
            if ended or seconds > self.given.limit:
                self._end(number)
                if process.exitcode != 0:
                    row.seconds = round(seconds, 1)
                yield row

    def _end(self, number: int) -> None:
        process, receive, _, _ = self.running.pop(number)
        if process.is_alive() and process.pid:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not begun yet
                process.kill()
        process.join()
        receive.close()


def shown(row: Row) -> str:
    """A row of the table."""
    marks = " | ".join("yes" if each else "no" for each in (row.imported, row.right, row.checked))
    return f"| {row.problem} | {marks} | {row.seconds:.0f} | {' '.join(row.reason.split())[:200].replace('|', '/')} |"


def counts(rows: list[Row]) -> Iterator[str]:
    """Numbers by set, and reasons that several share."""
    yield "\n| set | problems | imported | right | checked |\n|---|---|---|---|---|"
    for name in dict.fromkeys(row.problem.split("/")[0] for row in rows):
        own = [row for row in rows if row.problem.split("/")[0] == name]
        sums = (len(own), sum(r.imported for r in own), sum(r.right for r in own), sum(r.checked for r in own))
        yield f"| {name} | {' | '.join(map(str, sums))} |"
    reasons = Counter(re.sub(r"\S*/\S+|[\d.e+-]*\d", "#", " ".join(r.reason.split()))[:90] for r in rows if r.reason)
    yield ""
    yield from (f"{count} x {reason}" for reason, count in reasons.most_common())


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", help="files and folders; none: the table of what --lines holds")
    parser.add_argument("--until", choices=STAGES, default="check", help="the last stage")
    parser.add_argument("--target", choices=sorted(COMMON), default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="no row is known later")
    parser.add_argument("--limit", type=float, default=600, help="seconds of wall time for one problem")
    parser.add_argument("--mutants", type=int, default=10)
    parser.add_argument("--lines", type=Path, help="add each row to this file, as JSON, and leave out those it holds")
    parser.add_argument("--again", action="store_true", help="leave out only those that --lines holds without a fault")
    parser.add_argument(
        "--folders", type=Path, help="keep the operators here, and take those that are here as they are"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was ended from outside"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    text = given.lines.read_text(encoding="utf-8") if given.lines and given.lines.exists() else ""
    rows = {row.problem: row for row in (Row(**json.loads(line)) for line in text.splitlines())}
    done = {n for n, r in rows.items() if (r.until, r.target) == (given.until, given.target)}
    done -= {n for n in done if given.again and rows[n].reason}
    waiting = [each for each in problems(given.problems) if named(each) not in done]
    print(f"{len(waiting)} problems, {given.until} on {given.target}", file=sys.stderr)
    print("| problem | imported | first kernel right | check passed | s | reason |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for row in Bench(given, Path(place)).rows(waiting):
            rows[row.problem] = row
            print(shown(row), flush=True)
            if given.lines:
                with given.lines.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(asdict(row)) + "\n")
    print("\n".join(counts(list(rows.values()))))


if __name__ == "__main__":
    main()
