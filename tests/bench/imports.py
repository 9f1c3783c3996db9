"""A table of imports: `python -m tests.bench.imports PROBLEM...`, files and folders in formats that `evo import` reads.

For each problem: whether it is imported, whether its first kernel is right, how near torch itself comes to the error
bound, how many wrong kernels are refused and how many of them the task's own checker takes, whether `evo check` passes
with a few mutants, how long all of it took, and the reason of a failure. `--until` leaves out what takes long. Each
problem has a process of its own, which is ended at its limit; with `--lines FILE` a later call goes on where this one
ended. First kernels are run on the hidden shapes, untimed, so that many processes may share a GPU.

- `bounds`: the largest error of torch in fp32 and in bf16 on the hidden shapes, as a share of the bound. Bounds that
  are `measured` rest on torch's errors themselves: they have no share.
- `mutants`: one change each of the first kernel. The task's own checker is its comparison, by the tolerances of its
  format, on draws as its source makes them; sizes are those of the set `cpu`.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from fitness.judging.mutation_test import KernelHost, MutationTest
    from operators.definition.spec import Operator
    from operators.kernel import Kernel

STAGES = ("import", "right", "bounds", "mutants", "check")
PRELOADED = ("evo.outside.importing", "evo.check_operator", "fitness.cpu.target")
COMMON = {"cpu": "cpu", "cuda": "small"}
"""The workload set that scratch must fit, by target."""

PATIENT_S = 20.0
"""Time limit of one call, where many processes share the cores."""
DRAWS = 5
"""Inputs of a task's own checker."""
OWN: dict[str, tuple[tuple[float, float], ...]] = {
    "KernelBench": ((1e-4, 1e-4), (1e-2, 1e-2)), "FlashInfer Trace": ((1e-2, 1e-2),), "SOL-ExecBench": ((1e-2, 1e-2),),
    "GPU MODE": ((1e-5, 1e-8),),
}  # fmt: skip
"""Relative and absolute tolerances by format: KernelBench's for fp32 since its version 0.2, and before. GPU MODE's
problems may name others."""


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
    shares: dict[str, float] = field(default_factory=dict)
    """The largest share of the bound that torch's errors take, by element type."""
    mutants: dict[str, int] = field(default_factory=dict)
    """Numbers of mutants: `run`, `refused`, and by tolerance those that the task's own checker takes."""

    def goes_to(self, stage: str) -> bool:
        """Whether this stage is one of those that are asked for."""
        return STAGES.index(stage) <= STAGES.index(self.until)


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
    told = {".py": r"^(def get_inputs\b|get_inputs\s*=)", ".json": r'"reference"'}.get(path.suffix)
    return told is not None and bool(re.search(told, path.read_text(encoding="utf-8", errors="replace"), re.M))


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
        if not lacks and row.goes_to("right"):
            judged(folder, row, mutants, passed)
            if row.right and row.goes_to("check"):
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


def judged(folder: Path, row: Row, mutants: int, passed: Callable[[], None]) -> None:
    """The stages of a row that run kernels on hidden shapes."""
    with opened(folder, row.target) as (operator, kernel, host, test):
        rejection = test.naive().rejection
        row.reason = f"{rejection.status}: {rejection.message}" if rejection else ""
        row.right = rejection is None
        if row.right and row.goes_to("bounds"):
            row.reason = "the shares of its bounds came to no end"
            passed()
            row.shares, row.reason = shares(operator), ""
        if row.right and row.goes_to("mutants"):
            row.reason = "its mutants came to no end"
            for found in outcomes(operator, kernel, host, test, mutants):
                row.mutants = dict(found)
                passed()
            row.reason = ""


@contextmanager
def opened(folder: Path, target: str) -> Iterator[tuple[Operator, Kernel, KernelHost, MutationTest]]:
    """An imported operator, its first kernel, where that is run, and what it is tried on."""
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
        host = place(operator, task, workload_set=COMMON[target], folder=Path(made))
        test = MutationTest(host, kernel, operator.hidden)
        try:
            yield operator, kernel, host, test
        finally:
            test.close()


def shares(operator: Operator) -> dict[str, float]:
    """The largest error of torch as a share of the bound, in each type that torch computes all of it in."""
    import numpy as np

    from fitness.judging.mutation_test import FAMILIES
    from fitness.oracle.bounds import judge
    from fitness.oracle.inputs import TORCH_DTYPES
    from fitness.oracle.verify import Oracle
    from operators.catalog import functions
    from operators.errors import OperatorError

    own, found, rng = functions(operator.folder), dict[str, float](), np.random.default_rng(0)
    for dtype in ("fp32", "bf16") if operator.tolerance.bound == "rounding" else ():
        oracle, worst = Oracle(operator, own, dtype), 0.0
        try:
            for shape in operator.hidden:
                for family in rng.permutation(oracle.families)[:FAMILIES]:
                    case = oracle.case(shape, str(family), rng, at_end=False)
                    result = torch_result(operator, case.inputs)
                    for tensor in operator.outputs:
                        rounded = result[tensor.name].to(TORCH_DTYPES[oracle.element(tensor).name])
                        y = oracle.held(rounded.double().flatten().numpy(), tensor.name, case)
                        ratio = judge(y, case.expected[tensor.name], case.allowed[tensor.name]).max_ratio
                        worst = max(worst, ratio)
        except OperatorError:  # an operator of torch that has no kernel for it
            continue
        found[dtype] = worst
    return found


def torch_result(operator: Operator, inputs: Any) -> dict[str, torch.Tensor]:
    """The results of torch, in the type of the inputs."""
    from operators.catalog import functions

    values = {**inputs.dims, **{name: tensor.clone() for name, tensor in inputs.tensors.items()}}
    result: dict[str, torch.Tensor] = functions(operator.folder).library(values)
    return result


def outcomes(
    operator: Operator, kernel: Kernel, host: KernelHost, test: MutationTest, most: int
) -> Iterator[dict[str, int]]:
    """The fates of so many mutants, one more each time."""
    import numpy as np

    from evo.check_operator import NO_PROGRAM
    from fitness.evaluation import Status
    from mutators.analysis.cpp_tree import SyntaxTree
    from mutators.mutants import chosen, mutants

    rng, (workload, *_) = np.random.default_rng(0), operator.workload_set("cpu")
    asked = [host.oracle.question(workload, "nominal", rng, at_end=False) for _ in range(DRAWS)]
    wanted = [torch_result(operator, question.inputs) for question in asked]
    tree = SyntaxTree(kernel.source, operator, kernel.target, operator.dtypes[kernel.target][0])
    found, pairs = Counter[str](), list(zip(asked, wanted, strict=True))
    for mutant in chosen(mutants(kernel, tree), 3 * most):
        tried = test.tried(mutant.kernel)
        if tried.same_code or (tried.rejection and tried.rejection.status in NO_PROGRAM):
            continue
        found.update(run=1, refused=int(tried.rejection is not None))
        is_endless = tried.rejection is not None and tried.rejection.status is Status.TIMEOUT
        for tolerances in tolerances_of(operator.folder):
            taken = not is_endless and takes(host, mutant.kernel, pairs, tolerances)
            found[f"taken at {tolerances[0]:g}"] += taken
        yield found
        if found["run"] == most:
            return


def takes(host: KernelHost, kernel: Kernel, asked: list[tuple[Any, Any]], tolerances: tuple[float, float]) -> bool:
    """Whether the comparison of the task's own checker takes a kernel."""
    import torch

    from fitness.evaluation import Rejection
    from fitness.judging.device import NAN, KernelFault

    relative, absolute = tolerances
    ready = host.ready(kernel)
    assert not isinstance(ready, Rejection)
    try:
        with host.opened(ready) as call:
            return all(
                torch.allclose(y, wanted[name].double(), relative, absolute)
                for question, wanted in asked
                for name, y in host.oracle.outputs(question, call(question, False, NAN)).items()
            )
    except KernelFault:
        return False


def tolerances_of(folder: Path) -> tuple[tuple[float, float], ...]:
    """The tolerances of a task's own checker."""
    from operators.importing.folder import CALL, ORIGIN

    texts = [path.read_text(encoding="utf-8") for path in sorted((folder / ORIGIN).glob("*.py"))]
    found = json.loads((folder / ORIGIN / CALL).read_text(encoding="utf-8"))["format"]
    named = re.search(r"make_match_reference\(\w+, rtol=([\d.e-]+), atol=([\d.e-]+)\)", "\n".join(texts))
    return ((float(named[1]), float(named[2])),) if named else OWN[found]


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
    reached = {"import": row.imported, "right": row.right, "check": row.checked}
    marks = " | ".join("" if not row.goes_to(stage) else "yes" if is_so else "no" for stage, is_so in reached.items())
    found = " | ".join(", ".join(f"{k} {v:.2g}" for k, v in each.items()) for each in (row.shares, row.mutants))
    reason = " ".join(row.reason.split())[:200].replace("|", "/")
    return f"| {row.problem} | {marks} | {found} | {row.seconds:.0f} | {reason} |"


def counts(rows: list[Row]) -> Iterator[str]:
    """Numbers by set, and reasons that several share."""
    sets: dict[str, list[Row]] = {}
    for row in rows:
        sets.setdefault(row.problem.split("/")[0], []).append(row)
    yield "\n| set | problems | imported | right | checked |\n|---|---|---|---|---|"
    for name, own in sets.items():
        sums = (len(own), sum(r.imported for r in own), sum(r.right for r in own), sum(r.checked for r in own))
        yield f"| {name} | {' | '.join(map(str, sums))} |"
    yield "\n| set | tasks | mutants |\n|---|---|---|"
    for name, own in [*sets.items(), ("all", rows)]:
        tried = [Counter(row.mutants) for row in own if row.mutants]
        if tried:
            total = sum(tried, Counter[str]())
            names = dict.fromkeys(key for each in tried for key in each)
            yield f"| {name} | {len(tried)} | {', '.join(f'{key} {total[key]}' for key in names)} |"
    yield "\n| type | tasks | median share of the bound | least | largest |\n|---|---|---|---|---|"
    for dtype in ("fp32", "bf16"):
        found = [row.shares[dtype] for row in rows if row.shares.get(dtype)]
        if found:
            yield f"| {dtype} | {len(found)} | {median(found):.2g} | {min(found):.2g} | {max(found):.2g} |"
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
    print("| problem | imported | first kernel right | check passed | shares of bounds | mutants | s | reason |")
    print("|---|---|---|---|---|---|---|---|")
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
