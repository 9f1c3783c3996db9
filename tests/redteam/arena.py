"""Canaries, and the fight of each against the real evaluator.

A file under `canaries/<class>/` or `right/` is a kernel file with a second comment after its header:

    /* redteam
    operator = "axpb"
    dtype = "fp32"                        # which it is if nothing is said
    tries = "what it is up to"            # `what`, of a right kernel
    expect = "structural"                 # caught, open
    says = "forbidden system call"        # pattern that the verdict's message must match; names may stand for one
    proof = "worked"                      # correct: a correct verdict proves that what the trick needs is not there
    needs = ["elf_walk"]                  # files of parts/ that are put in front of the code
    machine = "x86_64"                    # only there
    why = "..."                           # of an open one: why it must be
    finding = "..."                       # what is missing in the evaluator, which therefore does not do as expected
    sometimes = true                      # an open one that luck may catch
    */

A trick by which nothing can be seen from outside is written so that the result is right only if the trick worked.
`@SECRET@` stands for a file that the user of the search can read; its text must turn up nowhere.
"""

from __future__ import annotations

import platform
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fitness.cpu import build
from fitness.cpu.target import CpuFitness
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging import pipeline
from fitness.judging.base import Anchor, Built
from fitness.judging.levels import judge
from operators.catalog import load
from operators.definition.spec import Operator, Task, Workload
from operators.kernel import Kernel

HERE = Path(__file__).parent
AXPB = HERE.parent / "data" / "axpb"
SET = "redteam"
WORKLOADS: Mapping[str, tuple[dict[str, int], ...]] = {
    "axpb": ({"n": 40000}, {"n": 100001}),
    "softmax": ({"rows": 8, "cols": 4096}, {"rows": 400, "cols": 100}),
    "matrix_mul": ({"m": 48, "n": 56, "k": 64}, {"m": 16, "n": 16, "k": 1500}),
    "spmv_csr": ({"rows": 3000, "cols": 2000, "nnz": 40000}, {"rows": 20000, "cols": 500, "nnz": 9000}),
    "spmm_csr": ({"rows": 300, "cols": 200, "nnz": 4000, "k": 8},),
    "matrix_copy": ({"rows": 200, "cols": 300},),
    "matrix_transpose": ({"rows": 200, "cols": 300},),
    "reverse_array": ({"n": 40000},),
    "layer_norm": ({"rows": 100, "cols": 400},),
    "rms_norm": ({"rows": 100, "cols": 400},),
    "softmax_attention": ({"queries": 32, "keys": 64, "dim": 32, "width": 32},),
    "conv_2d": ({"height": 64, "width": 96, "tall": 3, "wide": 5},),
    "stencil_2d": ({"nx": 200, "ny": 200},),
    "prefix_sum": ({"n": 20000},),
    "dot_product": ({"n": 40000},),
    "mse_loss": ({"n": 40000},),
    "cross_entropy_loss": ({"classes": 10000},),
    "matrix_power": ({"n": 32, "power": 5},),
    "fft": ({"n": 4096},),
    "leaky_relu": ({"n": 40000},),
    "sorting": ({"n": 4096},),
    "top_k": ({"n": 10000, "k": 16},),
}
"""Small ones: what is tested here does not depend on the size, and every canary runs on all of them."""
TIMING_BUDGET_S = 0.1
COMPILE_TIMEOUT_S = 8.0
"""Likewise: timed samples are taken and checked as ever, but only as many as the first look needs."""
TRIES = 3
"""Verdicts of one kernel: one that hides work from the clock is quarantined every time, one that ends late on a busy
machine is not."""

NAMED = {
    "INCLUDE": r"#.*include|%:include|#import|include_next|__has_include|raw string",
    "DIRECTIVE": r"directives",
    "ASM": r"inline assembly",
    "LOADED": r"with more than a name|runs when it is loaded|in the section|keeps data between calls|file not found",
    "STATIC": r"it keeps data between calls",
    "BOUNDS": r"past the end|before the beginning|outside of|which is an input",
    "RACE": r"out of bounds|differs between two runs|its threads race",
}
"""Patterns that several canaries share: `@STATIC@` in `says`."""
_COMMENT = re.compile(r"/\* redteam\n(.*?)\*/\n", re.DOTALL)


class Outcome(StrEnum):
    """Outcome of a trick."""

    STRUCTURAL = "structural"
    """It cannot be expressed, or what it needs does not exist."""
    CAUGHT = "caught"
    OPEN = "open"
    """It got through."""


@dataclass(frozen=True)
class Secret:
    """Secret that must not come out: a file's path and its text."""

    path: Path
    text: str

    @classmethod
    def planted(cls, folder: Path, text: str) -> Secret:
        """A file of valid C++, so that a kernel which includes it compiles, with `text` in its only line."""
        path = folder / "planted.hpp"
        path.write_text(f"constexpr int planted = 42;  // {text}\n")
        return cls(path, text)


@dataclass(frozen=True)
class Entrant:
    """One file of canaries/ or right/."""

    path: Path

    @cached_property
    def text(self) -> str:
        with self.path.open(encoding="utf-8", newline="") as stream:  # lone carriage returns matter
            return stream.read()

    @cached_property
    def about(self) -> Mapping[str, Any]:
        found = _COMMENT.search(self.text)
        assert found, f"{self.path}: no comment that begins with `/* redteam`"
        return tomllib.loads(found[1])

    @property
    def kind(self) -> str:
        """The class of attack."""
        return self.path.parent.name

    @property
    def dtype(self) -> str:
        return str(self.about.get("dtype", "fp32"))

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.stem}"

    @property
    def expected(self) -> Outcome:
        return Outcome(self.about["expect"])

    @property
    def says(self) -> re.Pattern[str]:
        pattern = self.about.get("says", "")
        pattern = re.sub(r"@SYMBOL@(\w*)", r"it calls `.*\1", pattern)
        return re.compile(re.sub(r"@(\w+)@", lambda match: f"(?:{NAMED[match[1]]})", pattern))

    @property
    def runs_here(self) -> bool:
        return bool(self.about.get("machine", platform.machine()) == platform.machine())

    def kernel(self, secret: Secret) -> Kernel:
        parts = "".join((HERE / "parts" / f"{name}.hpp").read_text() for name in self.about.get("needs", ()))
        source = _COMMENT.sub(lambda _: parts, self.text, count=1).replace("@SECRET@", str(secret.path))
        return Kernel(self.about["operator"], "cpu", source)

    def complaint(self, evaluation: Evaluation, secret: Secret) -> str | None:
        """In words, how the verdict differs from what the file says; None: it does not."""
        outcome = self.outcome(evaluation, secret)
        came_out = f"{outcome}: {evaluation.level} {evaluation.status}: {evaluation.message}"
        if outcome is not self.expected and not (self.about.get("sometimes") and outcome is Outcome.CAUGHT):
            return f"{self.expected} was expected, it is {came_out}"
        return None if self.says.search(evaluation.message) else f"{self.says.pattern!r} is not said by {came_out}"

    def outcome(self, evaluation: Evaluation, secret: Secret) -> Outcome:
        if secret.text in repr(evaluation):
            return Outcome.OPEN
        disproof = self.about.get("proof", "worked") == "correct"
        match evaluation.verdict:
            case Status.INVALID | Status.COMPILE_ERROR | Status.UNSUPPORTED:
                return Outcome.STRUCTURAL
            case Status.CORRECT:
                return Outcome.STRUCTURAL if disproof else Outcome.OPEN
            case Status.WRONG:
                return Outcome.OPEN if disproof else Outcome.CAUGHT
            case _:
                return Outcome.CAUGHT


def canaries() -> list[Entrant]:
    return [Entrant(path) for path in sorted((HERE / "canaries").glob("*/*.cpp"))]


def right_kernels() -> list[Entrant]:
    return [Entrant(path) for path in sorted((HERE / "right").glob("*.cpp"))]


@dataclass(frozen=True)
class Fight:
    """Result of a fight, and how long the verdict took."""

    evaluation: Evaluation
    seconds: float


class Arena:
    """One fitness stage per operator, made when first needed; judges at the most severe level."""

    def __init__(self, folder: Path, secret: Secret) -> None:
        self.folder = folder
        self.secret = secret
        self._stages: dict[tuple[str, str], CpuFitness] = {}
        self._compilers = ThreadPoolExecutor(2)
        self._builds: dict[str, Future[Built | Evaluation]] = {}

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self._compilers.shutdown(cancel_futures=True)
        for stage in self._stages.values():
            stage.close()

    def stage(self, name: str, dtype: str = "fp32") -> CpuFitness:
        if (name, dtype) not in self._stages:
            folder = self.folder / f"{name}_{dtype}"
            folder.mkdir(exist_ok=True)
            task = Task(name, dtype, "cpu")
            self._stages[name, dtype] = CpuFitness(small(operator(name)), task, workload_set=SET, folder=folder)
        return self._stages[name, dtype]

    def build_ahead(self, entrants: Iterable[Entrant]) -> None:
        """Compile in the background what will be judged later, in this order."""
        for entrant in entrants:
            kernel = entrant.kernel(self.secret)
            stage = self.stage(kernel.operator, entrant.dtype)
            self._builds[kernel.id] = self._compilers.submit(stage.build, kernel)

    def judge(self, kernel: Kernel, *, dtype: str = "fp32", confirm: bool = True) -> Fight:
        """All levels up to `confirmed` (else `full`), as far as the kernel comes; never raced out."""
        stage = self.stage(kernel.operator, dtype)
        anchor = Anchor(stage.baseline, 0.0, 0.0)
        begin = time.monotonic()
        ahead = self._builds.pop(kernel.id, None)
        verdict = ahead.result() if ahead else stage.build(kernel)
        for _ in range(TRIES):
            if isinstance(verdict, Evaluation) and verdict.status is not Status.QUARANTINED:
                break
            verdict = judge(stage, kernel, anchor, race=False, until=Level.CONFIRMED if confirm else Level.FULL)[-1]
        assert isinstance(verdict, Evaluation)
        return Fight(verdict, time.monotonic() - begin)

    def fight(self, entrant: Entrant, *, confirm: bool = True) -> Fight:
        return self.judge(entrant.kernel(self.secret), dtype=entrant.dtype, confirm=confirm)


@cache
def operator(name: str) -> Operator:
    return load(str(AXPB) if name == "axpb" else name)


def small(operator: Operator) -> Operator:
    """The operator with workloads that take microseconds."""
    return replace(operator, workloads=tuple(Workload(SET, dims) for dims in WORKLOADS[operator.name]))


def short_timings() -> Iterator[tuple[object, str, object]]:
    """The patches with which timing, of which nothing here depends on the precision, takes little time."""
    yield build, "COMPILE_TIMEOUT_S", COMPILE_TIMEOUT_S
    for name in ("SCREEN", "CONFIRM"):
        yield pipeline, name, replace(getattr(pipeline, name), budget_s=TIMING_BUDGET_S)
