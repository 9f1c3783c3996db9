"""The check of an operator: its definition, its naive kernels, and that wrong kernels are refused."""

from __future__ import annotations

import difflib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evo.config import DEFAULT_SETS
from fitness.evaluation import CheckError, Evaluation, Level, Status
from fitness.judging.base import Anchor, Fitness
from fitness.judging.levels import judge
from fitness.judging.mutation_test import MutationTest, Tried
from fitness.targets import place
from fitness.words import in_words, of_bound
from mutators.analysis.cpp_tree import SyntaxTree
from mutators.mutants import Mutant, chosen, mutants
from operators.catalog import functions, load
from operators.definition.spec import HIDDEN_NEEDED, Operator, Task, Workload
from operators.errors import OperatorError, PlanError, unknown
from operators.kernel import Kernel
from operators.plan.reading import left_to_write, parse_plan

Say = Callable[[str], None]
Along = Callable[[Sequence[Mutant]], Iterable[Mutant]]
"""Goes along mutants, and may show how far it is."""
UNTRIED, UNWRITTEN, PRECISE = "untried", "unwritten", "fp64"
QUARANTINES = 3
"""Retries of a naive kernel that is quarantined because timers err on a busy machine."""
MOST_SURVIVING = 0.1
"""The largest share of surviving mutants that can all be equivalent."""
NO_PROGRAM = (Status.INVALID, Status.COMPILE_ERROR, Status.UNSUPPORTED)
"""A mutant that is none of these was run, and tells something of the verification."""
DEVICE = {"sm_count": 1, "warp_size": 32, "max_shared_bytes": 227 << 10, "l2_bytes": 1 << 20, "cpu_count": 1}
"""Stand-in facts for resolving plans before a device is known: as much shared memory as any device has."""
WIDTHS = (8, 32)
"""Elements of a vector and of a warp: kernels that ask for multiples of them need hidden shapes to be tested on."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that no check refused."""

    line: int
    kind: str
    differs: bool | None
    """Its results are other numbers than the naive kernel's on some inputs, all within the error bound; None: those
    vary themselves."""
    diff: str
    rounded: bool = False
    """They differ by rounding alone: in fp64 no check refuses it either, whose bounds are 2^29 times as narrow."""

    @property
    def told(self) -> str:
        """Advice to its author."""
        if self.rounded:
            return "its results differ by rounding alone, as a run in fp64 shows: it is equivalent"
        if self.differs:
            return "its results differ from the naive kernel's, all within the error bound: is the bound too wide?"
        if self.differs is None:
            return "no result is out of bounds, and the naive kernel's own vary from run to run: it may be equivalent"
        return (
            "its results never differ from the naive kernel's: it is equivalent, or no drawn input tells the two apart"
        )


@dataclass
class TaskCheck:
    """Findings on one task's naive kernel, and on mutants of it."""

    task: str
    runs_on: str
    status: str = ""
    """The naive kernel's status; `untried` where it compiles for a GPU that is not here, and cannot be emulated,
    `unwritten` where its header says that functions are left to write."""
    message: str = ""
    level: str = ""
    """The verdict's level; empty where the kernel was emulated, which gives no verdict."""
    worst_error: float = 0.0
    """The largest error, as a multiple of the error allowed."""
    library_lack: str = ""
    mutants: int = 0
    """Number of mutants that were run; those below are no part of it."""
    refused: int = 0
    no_program: int = 0
    same_program: int = 0
    """Equivalent for certain: the compiler makes the naive kernel's code of them."""
    left_out: int = 0
    """For want of time, or above the most that were asked for."""
    survivors: list[Survivor] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether the naive kernel is."""
        return self.status == Status.CORRECT

    @property
    def wrong(self) -> bool:
        """Whether it is known not to be right."""
        return self.status not in (Status.CORRECT, UNTRIED)

    def survived(self, *, strict: bool) -> bool:
        """Whether more survived than may be equivalent."""
        if strict and self.survivors:
            return True
        doubtful = [survivor for survivor in self.survivors if not survivor.rounded]
        return any(s.differs for s in doubtful) or len(doubtful) > MOST_SURVIVING * self.mutants


@dataclass
class Report:
    """Findings of `evo check`."""

    operator: str
    folder: str
    shapes: str
    notes: list[str]
    tasks: list[TaskCheck] = field(default_factory=list)

    def passed(self, *, strict: bool) -> bool:
        """No naive kernel is wrong, no mutant with other results survived, and few at all; `strict`: none at all."""
        return not any(task.wrong or task.survived(strict=strict) for task in self.tasks)

    def verdict(self, *, strict: bool) -> str:
        """The line that a check ends with: whether the operator is ready, and why not."""
        lacking = [
            f"{task.task}: the naive kernel is not right ({in_words(task.status)})" for task in self.tasks if task.wrong
        ]
        lacking += [
            f"{task.task}: {len(task.survivors)} of {task.mutants} mutants survived"
            for task in self.tasks
            if task.survived(strict=strict)
        ]
        if lacking:
            return f"{self.operator} is not ready: {'; '.join(lacking)}"
        unjudged = [task.task for task in self.tasks if not task.level]
        return f"{self.operator} is ready" + (f"; without a verdict yet: {', '.join(unjudged)}" if unjudged else "")


@dataclass(frozen=True)
class _Terms:
    """Terms that hold for every task of a check."""

    limit_s: float
    """For the mutants of one target."""
    most: int
    say: Say
    along: Along


def check(name: str, *, targets: Sequence[str], limit_s: float, most: int, say: Say, along: Along = iter) -> Report:
    """Check an operator, a folder or one of the package by name, and tell `say` what is found when it is.

    At most so many mutants of each target's naive kernel are tried, in its first dtype, and none is begun when the
    target's part of `limit_s` is over. It raises UserError where there is no such operator or its files cannot be used.
    """
    operator = load(str(Path(name).resolve()) if Path(name).is_dir() else name)
    functions(operator.folder)
    report = Report(operator.name, str(operator.folder), _shapes(operator), list(_notes(operator)))
    say(f"{operator.name}: {report.shapes}")
    for note in report.notes:
        say(f"  note: {note}")
    tasks = list(_tasks(operator, targets))
    for target, left in _left(operator, {task.target for task in tasks}):
        say(left)
        unwritten = [task for task in tasks if task.target == target]
        report.tasks += [TaskCheck(str(task), "nothing", UNWRITTEN, left) for task in unwritten]
        tasks = [task for task in tasks if task.target != target]
    if not tasks:
        return report
    hidden = {task: _check_plan(operator, task) for task in tasks}
    named = ", ".join(f"{task.dtype} on {task.target}" for task in tasks)
    firsts = {task.target: task for task in reversed(tasks)}
    terms = _Terms(limit_s / len(firsts), most, say, along)
    say(f"checking {named}; then mutants, begun for at most {terms.limit_s:.0f} s on each target")
    for task in tasks:
        has_mutants = task is firsts[task.target] and most > 0
        report.tasks.append(_checked(operator, task, hidden[task], terms, has_mutants=has_mutants))
    return report


def _tasks(operator: Operator, targets: Sequence[str]) -> Iterator[Task]:
    for target in targets or operator.dtypes:
        if not operator.dtypes.get(target):
            raise OperatorError(f"operator {operator.name}: {unknown('target', target, operator.dtypes)}")
        for dtype in operator.dtypes[target]:
            yield Task(operator.name, dtype, target)


def _left(operator: Operator, targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The targets whose naive kernels are left to write, with what says so."""
    for target in targets:
        operator.naive(target)  # one that is missing is said as `evo run` says it
        if left := left_to_write(operator.ancestor("naive", target), operator, target):
            yield target, left


def _shapes(operator: Operator) -> str:
    sets = Counter(workload.set for workload in operator.workloads)
    listed = ", ".join(f"{count} {name}" for name, count in sets.items())
    tensors = f"{len(operator.tensors)} tensors over {', '.join(operator.dims)}"
    return f"{tensors}; workloads: {listed}; {len(operator.hidden)} hidden shapes"


def _notes(operator: Operator) -> Iterator[str]:
    """Notes on what is no fault, and weakens verdicts."""
    hidden = operator.hidden
    if not any(1 in w.dims.values() for w in hidden):
        yield "no hidden shape has a dim of 1"
    if not any(size % 2 and size > 1 for w in hidden for size in w.dims.values()):
        yield "no hidden shape has an odd dim"
    for width in WIDTHS:
        if sum(_divisible(w, width) for w in hidden) < HIDDEN_NEEDED:
            yield (
                f"fewer than {HIDDEN_NEEDED} hidden shapes have dims that are all multiples of {width}: kernels that "
                "require them are unsupported"
            )
    offers = functions(operator.folder).offers
    if not offers("library"):
        yield "reference.py has no library(...): nothing but the naive kernels, which have the same author, backs it"
    if operator.tolerance.bound == "rounding" and operator.tolerance.terms.names and not offers("magnitude"):
        yield "reference.py has no magnitude(...): where sums cancel, right kernels may be refused"
    if not offers("relations"):
        yield "reference.py has no relations(...), which hold whatever the reference says"


def _divisible(workload: Workload, width: int) -> bool:
    return all(size and size % width == 0 for size in workload.dims.values())


def _check_plan(operator: Operator, task: Task) -> list[Workload]:
    """The plan resolves on every workload that it supports, where only dims that data decide about are guessed.

    Return the hidden shapes among these.
    """
    source, path = operator.naive(task.target), operator.ancestor("naive", task.target)
    where = ""
    supported: list[Workload] = []
    try:
        plan = parse_plan(source, operator, task.target, name=str(path)).for_dtype(task.dtype)
        for workload in (*operator.workloads, *operator.hidden):
            where = f"{path}: on {workload.name}: "
            dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
            guessed = plan.requires.names & set(operator.data_dims)
            if not guessed and not plan.supports(operator, dims, {}, DEVICE, task.dtype):
                continue
            supported.append(workload)
            plan.resolve(
                operator, dtype=task.dtype, dims=dims, values={}, facts=DEVICE,
                occupancy=dict.fromkeys(plan.occupancy_kernels, 1),
            )  # fmt: skip
    except PlanError as error:
        raise OperatorError(f"{where}{error}") from None
    return [workload for workload in supported if workload in operator.hidden]


def _checked(
    operator: Operator, task: Task, hidden: Sequence[Workload], terms: _Terms, *, has_mutants: bool
) -> TaskCheck:
    """`hidden` are the shapes that the naive kernel supports."""
    begin = time.monotonic()
    kernel = Kernel(operator.name, task.target, operator.naive(task.target))
    file = operator.ancestor("naive", task.target).name
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        set_ = _workload_set(operator, task.target)
        tried = place(operator, task, workload_set=set_, folder=Path(folder))
        # On a device the timed workload with the least work is tried as well; for an emulation it is too much.
        shapes = [*hidden, _least(operator, set_)] if tried.stage else hidden
        admission = MutationTest(tried, kernel, shapes)
        try:
            naive = admission.naive()
            naive_s = time.monotonic() - begin
            found = TaskCheck(str(task), tried.words)
            if naive.rejection:
                is_own = tried.is_own_fault(naive.rejection.status)
                found.status = str(naive.rejection.status) if is_own else UNTRIED
                found.message = naive.rejection.message
            elif tried.stage:
                _judge(tried.stage, kernel, found, confirm=has_mutants)
            else:
                found.status, found.worst_error = str(Status.CORRECT), _worst(naive.errors)
            terms.say("\n".join(_naive_lines(found, file, len(admission.shapes))))
            if found.right and has_mutants:
                tree = SyntaxTree(kernel.source, operator, task.target, task.dtype)
                every = mutants(kernel, tree)
                _try_mutants(admission, kernel, every, terms, found, each_s=naive_s)
                _retry_rounded(operator, task, kernel, shapes, every, found)
                terms.say("\n".join(mutant_lines(found)))
        finally:
            admission.close()
    found.seconds = time.monotonic() - begin
    return found


def _workload_set(operator: Operator, target: str) -> str:
    """The one that a run takes by itself; where the operator has no such set, its first."""
    sets = [workload.set for workload in operator.workloads]
    return DEFAULT_SETS[target] if DEFAULT_SETS[target] in sets else sets[0]


def _least(operator: Operator, set_: str) -> Workload:
    """The workload of a set with the least work."""
    return min(
        operator.workload_set(set_),
        key=lambda w: operator.min_bytes.evaluate(operator.cost_environment(w.dims, "fp32")),
    )


def _judge(stage: Fitness, kernel: Kernel, found: TaskCheck, *, confirm: bool) -> None:
    """The real verdict: at the full level, or confirmed, which looks at the vendor's library too."""
    built = stage.build(kernel)
    verdicts: tuple[Evaluation, ...] = (built,) if isinstance(built, Evaluation) else ()
    until = Level.CONFIRMED if confirm else Level.FULL
    for _ in range(0 if verdicts else QUARANTINES):
        verdicts = judge(stage, kernel, Anchor(kernel, 0.0, 0.0), race=False, until=until)
        if verdicts[-1].status is not Status.QUARANTINED:
            break
    last = verdicts[-1]
    found.status, found.message, found.level = str(last.status), last.message, str(last.level)
    found.worst_error = max((_worst(verdict.errors) for verdict in verdicts), default=0.0)
    found.library_lack = last.library_lack


def _worst(errors: Sequence[CheckError]) -> float:
    return max((error.worst_ratio for error in errors), default=0.0)


def _naive_lines(found: TaskCheck, file: str, shapes: int) -> Iterator[str]:
    head = f"{found.task}: {file} is {found.status}"
    if not found.right:
        yield f"{head} ({found.runs_on})\n  {found.message}"
        return
    level = f" at the level {found.level}" if found.level else f" on {shapes} shapes"
    yield f"{head}{level}, its worst error at {of_bound(found.worst_error)} ({found.runs_on})"
    if found.library_lack:
        yield f"  note: the library was not timed: {found.library_lack}"


# --- mutants ----------------------------------------------------------------------------------------------------------


def _try_mutants(
    admission: MutationTest, kernel: Kernel, every: Sequence[Mutant], terms: _Terms, found: TaskCheck, *, each_s: float
) -> None:
    """`each_s`: the time of one, as far as it is known."""
    end = time.monotonic() + terms.limit_s
    picked = chosen(every, terms.most)
    needed_s = min(len(picked) * each_s, terms.limit_s)
    terms.say(
        f"{found.task}: {len(picked)} of {len(every)} mutants, in about {needed_s:.0f} s, at most {terms.limit_s:.0f} s"
    )
    tried = 0
    for mutant in terms.along(picked):
        if time.monotonic() > end:
            break
        tried += 1
        _count(mutant, admission.tried(mutant.kernel), kernel, found)
    found.left_out = len(every) - tried
    found.survivors.sort(key=lambda survivor: survivor.line)


def _count(mutant: Mutant, tried: Tried, kernel: Kernel, found: TaskCheck) -> None:
    if tried.same_code:
        found.same_program += 1
    elif tried.rejection and tried.rejection.status in NO_PROGRAM:
        found.no_program += 1
    else:
        found.mutants += 1
        found.refused += tried.rejection is not None
        if not tried.rejection:
            changed = _diff(kernel.source, mutant.kernel.source)
            found.survivors.append(Survivor(mutant.line, mutant.kind, tried.differs, changed))


def _retry_rounded(
    operator: Operator,
    task: Task,
    kernel: Kernel,
    shapes: Sequence[Workload],
    every: Sequence[Mutant],
    found: TaskCheck,
) -> None:
    """Run survivors whose results differ once more, in fp64: (x - mean) * x in a sum passes there as well, where
    another constant, which the bound of fp32 is too wide to see, does not."""
    told = {survivor.diff for survivor in found.survivors if survivor.differs}
    again = {diff: each.kernel for each in every if (diff := _diff(kernel.source, each.kernel.source)) in told}
    if not again or task.dtype == PRECISE:
        return
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        precise = Task(task.operator, PRECISE, task.target)
        set_ = _workload_set(operator, task.target)
        admission = MutationTest(place(operator, precise, workload_set=set_, folder=Path(folder)), kernel, shapes)
        try:
            if admission.naive().rejection:  # it says nothing of mutants
                return
            rounded = {diff for diff, each in again.items() if admission.tried(each).rejection is None}
        finally:
            admission.close()
    found.survivors = [replace(survivor, rounded=survivor.diff in rounded) for survivor in found.survivors]


def _diff(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def mutant_lines(found: TaskCheck) -> Iterator[str]:
    """The outcomes of a task's mutants, in words, and every survivor with what was changed."""
    others = [
        f"{words}: {count}"
        for count, words in (
            (found.same_program, "the same program"),
            (found.no_program, "no program"),
            (found.left_out, "not tried"),
        )
        if count
    ]
    beside = f"; {', '.join(others)}" if others else ""
    yield f"{found.task}: {found.refused} of {found.mutants} mutants refused, {len(found.survivors)} survived{beside}"
    for survivor in found.survivors:
        yield f"  survived, line {survivor.line}, {survivor.kind}: {survivor.told}"
        yield from (f"    {line}" for line in survivor.diff.splitlines())
