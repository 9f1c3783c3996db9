"""Leaders that are confirmed, in which order, and the time kept for it: on a clock and verdicts of the test."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evo import rows as records
from evo.budget import OVERRUN, RunClock
from evo.search import confirmations
from evo.search.confirmations import ATTEMPTS, MOST_SHARE, SPARE, Confirmations, may_say_more
from evo.search.evaluator import PATIENT_S, Rivals
from evo.search.knowledge import Knowledge
from evo.search.task import CONFIRM_S, CONFIRM_TO_FULL, CONFIRM_TO_SCREEN, TaskState
from evo.store import Store
from evo.store.reads import rows_of
from fitness import install
from fitness.evaluation import Evaluation, Level, LibraryTiming, Status
from operators.definition.spec import Task
from operators.kernel import Kernel
from operators.libraries import WITHOUT_COMPILER
from tests.evo.test_search import config, rows, search, stages
from tests.store.rows import START_S, TASK, History, run


@dataclass
class Bench:
    """Stands for all that confirmations ask: the history, the pool, verdicts, and kernels by their ids."""

    takes_s: dict[str, float]
    """By operator, what its confirmation takes."""
    gains: dict[str, float]
    """By operator, the log speedup that its leader claims; the naive kernel's is 0."""
    limit_s: float = 100.0
    judges: int = 1
    claims: dict[str, int] = field(default_factory=dict)
    """By operator, how many other kernels claim as much, and fail."""
    alone: list[str] = field(default_factory=list)
    """Operators whose leaders are confirmed already, with rivals that were not tried."""
    beaten: dict[str, str] = field(default_factory=dict)
    """By operator, the kernel of its champion, which its leader beats and no confirmation looked at."""
    now_s: float = 0.0
    order: list[str] = field(default_factory=list)
    """Operators whose leaders were confirmed."""
    ends_s: list[float] = field(default_factory=list)

    rivals: list[str] = field(default_factory=list)
    """Operators whose library was tried first."""
    phases: list[str] = field(default_factory=list)
    """Phases that were said to go on meanwhile."""

    def __post_init__(self) -> None:
        self.clock = RunClock(lambda: self.now_s, limit_s=self.limit_s)
        self.states = {state.task: state for state in map(self._state, self.gains)}
        world: Any = self
        self.parents = world
        self.confirmations = Confirmations(world, world, world, self.clock)
        self._levels = dict.fromkeys(self.gains, Level.FULL.value) | dict.fromkeys(self.alone, Level.CONFIRMED.value)

    def _state(self, name: str) -> TaskState:
        nothing: Any = None
        task = Task(name, "fp32", "cpu")
        state = TaskState(nothing, task, nothing, Kernel(name, "cpu", "naive"), Knowledge(task))
        gain = self.gains[name]
        kernel = state.baseline if gain == 0 else Kernel(name, "cpu", "leader 0")
        state.fastest = gain, kernel.id
        self.kernels = {**getattr(self, "kernels", {}), kernel.id: kernel}
        return state

    def leaders(self, task: Task | None = None) -> list[dict[str, Any]]:
        """The view `best`."""
        return [
            {
                "task": str(state.task),
                "kernel_id": state.fastest and state.fastest[1],
                "level": self._levels[state.task.operator],
                "log_speedup": self.gains[state.task.operator],
                "stands_at": self.gains[state.task.operator],
                "untried": "torch.compile(torch.add)" if state.task.operator in self.alone else None,
                "failed_with": None,
            }
            for state in self.states.values()
            if task in (None, state.task)
        ]

    def times_confirmed(self, task: Task, kernel_id: str) -> int:
        """It stores nothing."""
        return 0

    def beaten_champions(self) -> list[tuple[TaskState, str]]:
        """Those of `beaten`."""
        return [(self.states[Task(name, "fp32", "cpu")], kernel_id) for name, kernel_id in self.beaten.items()]

    def find(self, source: tuple[str, str], *, baseline: Kernel) -> Any:
        """A kernel by its id."""
        return SimpleNamespace(kernel=self.kernels[source[0]])

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation:
        """A verdict that takes its time; jobs side by side end one after the other."""
        name = task.operator
        self.order.append(name)
        self.phases.append(self.confirmations.phase)
        self.now_s += self.takes_s[name]
        stage_ms = {"confirm": 1e3 * self.takes_s[name]}
        refuted = self.claims.get(name, 0)
        if refuted:
            self.claims[name] -= 1
            another = Kernel(name, "cpu", f"leader {refuted}")
            self.kernels[another.id] = another
            self.states[task].fastest = self.gains[name], another.id
            return Evaluation(kernel.id, str(task), Level.CONFIRMED, Status.WRONG, "no", stage_ms=stage_ms)
        self._levels[name] = Level.CONFIRMED.value
        known: dict[str, Any] = {"log_speedup": self.gains[name], "log_speedup_se": 0.01, "log_ratio_se": 0.01}
        known |= {"anchor_id": "a", "anchor_log_speedup": 0.0, "log_ratio": self.gains[name]}
        return Evaluation(kernel.id, str(task), Level.CONFIRMED, Status.CORRECT, stage_ms=stage_ms, **known)

    async def choose_rivals(self, task: Task, baseline: Kernel) -> None:
        """It takes no time."""
        self.rivals.append(task.operator)

    def now(self) -> float:
        """The clock of the test."""
        return self.now_s

    async def fit(self, state: TaskState) -> Any:
        """The leader, which no other verdict moves."""
        (leader,) = self.leaders(state.task)
        state.fastest = leader["stands_at"], leader["kernel_id"]
        return leader

    async def commit(self, rows: Any) -> None:
        """It stores nothing."""

    async def fail(self, state: TaskState, fault: str) -> None:
        """No operator is at fault here."""
        raise AssertionError(fault)

    def end(self, **options: float) -> list[str]:
        """The end of a run: whose leaders were confirmed."""
        asyncio.run(self.confirmations.confirm_leaders(**options))
        return self.order


def test_the_greatest_gain_comes_first_and_a_naive_kernel_last() -> None:
    gains = {"a": 0.1, "b": 0.0, "c": 2.0, "d": -0.2, "e": 0.5}
    assert Bench(dict.fromkeys(gains, 1.0), gains).end() == ["c", "e", "a", "d", "b"]


def test_champions_that_were_beaten_come_last_if_there_is_time() -> None:
    def ended(limit_s: float) -> list[str]:
        bench = Bench(dict.fromkeys("ab", 10.0), {"a": 0.5, "b": 1.0}, limit_s=limit_s)
        for state in bench.states.values():
            state.full_s = 10.0 / (CONFIRM_TO_FULL + 1)
            champion = Kernel(state.task.operator, "cpu", "champion")
            bench.kernels[champion.id] = champion
            bench.beaten[state.task.operator] = champion.id
        return bench.end()

    assert ended(100.0) == ["b", "a", "a", "b"]
    assert ended(21.0) == ["b", "a"]


def test_what_goes_on_and_what_is_left_is_said() -> None:
    bench = Bench({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 1.0}, claims={"b": 1})
    bench.end()
    assert bench.phases == ["confirming a, 1 more to come", "confirming b", "confirming b"]


@pytest.mark.parametrize("judges", [1, 3])
def test_what_would_overrun_is_not_begun_but_what_is_shorter_is(judges: int) -> None:
    gains = {"long": 2.0, "longer": 1.0, "short": 0.5}
    bench = Bench({"long": 20.0, "longer": 30.0, "short": 3.0}, gains, judges=judges, now_s=0.0)
    for state in bench.states.values():
        state.took_confirm("earlier", bench.takes_s[state.task.operator])
    bench.now_s = 75.0
    assert bench.end() == ["long", "short"]
    assert bench.now_s <= 100 * (1 + OVERRUN)


def test_time_that_nothing_else_needs_is_tried_but_not_for_what_is_hopeless() -> None:
    """The time of a confirmation is a guess until one has been made."""
    bench = Bench({"guessed": 6.0, "hopeless": 3.0, "naive": 1.0}, {"guessed": 1.0, "hopeless": 2.0, "naive": 0.0})
    for state, expected_s in zip(bench.states.values(), (12.0, 25.0, 1.0), strict=True):
        state.took_confirm("earlier", expected_s)
    bench.now_s = 96.0
    assert bench.clock.grace_s == pytest.approx(8.0)
    assert bench.end() == ["guessed", "naive"]


def test_a_short_run_keeps_time_for_its_confirmation_beside_its_end() -> None:
    """Time that is needed to end processes, and more than a run may overrun, is not the confirmation's."""
    bench = Bench({}, {"a": 1.0}, limit_s=20.0)
    bench.clock.closing_s = 4.0
    bench_state(bench).took_confirm("earlier", 4.0)
    needed_s = bench.confirmations.needed_s()
    bench.now_s = 20.0 - needed_s
    assert bench.clock.grace_s >= 4.0


def test_without_a_limit_all_are_confirmed() -> None:
    bench = Bench({"a": 1e6, "b": 1e6}, {"a": 1.0, "b": 0.0}, limit_s=float("inf"))
    assert bench.confirmations.needed_s() == pytest.approx(SPARE * bench.confirmations.expected_s(bench_state(bench)))
    assert bench.end() == ["a", "b"]


def test_who_has_time_sets_beside_all_rivals_what_was_confirmed_without_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT_COMPILER, "0")
    made: dict[str, Any] = {"takes_s": {"a": 1.0, "b": 1.0}, "gains": {"a": 1.0, "b": 2.0}, "alone": ["a"]}
    patient, short = Bench(limit_s=math.inf, **made), Bench(limit_s=60.0, **made)
    assert (patient.end(), patient.rivals) == (["b", "a"], ["b", "a"])
    assert (short.end(), short.rivals) == (["b"], [])


def test_what_cannot_be_tried_here_is_no_reason_to_confirm_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {"takes_s": {"a": 1.0}, "gains": {"a": 1.0}, "alone": ["a"], "limit_s": math.inf}
    monkeypatch.setenv(WITHOUT_COMPILER, "1")
    assert Bench(**made).end() == []
    leader = {"task": "a/fp32/cuda", "untried": "nvmath.linalg.matmul; liger_kernel.softmax", "failed_with": None}
    for found, due in (({"nvmath": "", "liger_kernel": ""}, False), ({"nvmath": "", "liger_kernel": "1.0"}, True)):
        monkeypatch.setattr(install, "versions", lambda _, found=found: found)
        assert may_say_more(leader) is due


def test_a_comparison_that_failed_is_made_once_more_and_again_with_other_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those of a run, and the leader is asked for as a search asks."""
    now = {"torch": "2.9"}
    for place in (confirmations, records):
        monkeypatch.setattr(place, "versions", lambda _: dict(now))
    story = History().propose(0, "ancestor", "", "k")
    figures = {"log_speedup": 0.5, "log_speedup_se": 0.01, "log_ratio": 0.5, "log_ratio_se": 0.01}
    confirmed = Evaluation("k", TASK, Level.CONFIRMED, Status.CORRECT, **figures, anchor_id="a", anchor_log_speedup=0.0)  # type: ignore[arg-type]
    beside = LibraryTiming("rows=8", 1.0, 1.0, 0.0, 0.01, 20, "torch.softmax")
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"runs": [run()], **story.tables}).result()

        def due_after(number: int, **changes: Any) -> bool:
            made = records.evaluation_rows(
                replace(confirmed, **changes), evaluation_id=f"{number}", request_id=None, at=START_S + number
            )
            store.commit(made).result()
            (leader,) = rows_of(store, "search.leaders", task=TASK)
            return may_say_more(leader)

        failed = {"library_lack": "no memory"}
        assert due_after(1, **failed), "it may have passed"
        assert not due_after(2, **failed), "it was tried again"
        now["torch"] = "2.10"
        assert may_say_more(rows_of(store, "search.leaders", task=TASK)[0]), "this one may do it"
        assert [due_after(3, **failed), due_after(4, **failed)] == [True, False]
        assert not due_after(5, library_timings=(beside,)), "nothing lacks"
        assert not due_after(6), "the operator has no library"


def test_every_session_that_can_try_more_confirms_once_and_its_rows_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sessions ask for nothing new, so that they all begin at the same place of the history."""
    made = config(budget={"evaluations": 2})
    fitness = stages(made)
    (stage,) = fitness.values()
    confirm, beside = stage.confirm, LibraryTiming("rows=8", 1.0, 1.0, 0.0, 0.01, 20, "a", untried="torch.compile(a)")
    monkeypatch.setattr(stage, "confirm", lambda kernel: replace(confirm(kernel), library_timings=(beside,)))
    seen = []
    for without in "1001":
        monkeypatch.setenv(WITHOUT_COMPILER, without)
        search(tmp_path / "run", made, fitness)
        counts = (
            "select count(*) as made, count(distinct evaluation_id) as ids from evaluations where level = 'confirmed'"
        )
        (row,) = rows(tmp_path / "run", counts)
        assert row["made"] == row["ids"]
        seen.append(row["made"] - sum(seen))
    assert seen[1:] == [1, 1, 0], "two may, the last has no compiler"


def bench_state(bench: Bench) -> TaskState:
    return next(iter(bench.states.values()))


def test_the_next_one_in_the_lead_waits_until_other_tasks_had_their_turn() -> None:
    bench = Bench({"a": 1.0, "b": 1.0}, {"a": 2.0, "b": 1.0}, claims={"a": 2})
    assert bench.end() == ["a", "b", "a", "a"]
    hopeless = Bench({"a": 1.0}, {"a": 2.0}, claims={"a": 99})
    assert hopeless.end() == ["a"] * ATTEMPTS


def test_who_asks_for_nothing_else_has_leaders_confirmed_until_one_passes() -> None:
    bench = Bench({"a": 1.0}, {"a": 2.0}, claims={"a": 3 * ATTEMPTS})
    assert bench.end(attempts=math.inf) == ["a"] * (3 * ATTEMPTS + 1)


def test_what_is_expected_is_learnt_from_all_that_was_seen() -> None:
    bench = Bench({}, {"a": 1.0, "b": 1.0, "c": 1.0})
    a, b, c = bench.states.values()
    expected = bench.confirmations.expected_s
    assert expected(a) == 0.0
    a.took_screen(1.0)
    assert expected(a) == expected(b) == CONFIRM_S["cpu"] + CONFIRM_TO_SCREEN
    a.took_full(5.0)
    a.took_full(3.0)  # nothing disturbed this one
    b.took_full(1.5)
    thought_a_s, thought_b_s = (CONFIRM_S["cpu"] + CONFIRM_TO_FULL * full_s for full_s in (3.0, 1.5))
    assert (expected(a), expected(b)) == (thought_a_s, thought_b_s)
    a.took_confirm("x", 0.0)  # it failed, after who knows how little
    a.took_confirm("y", thought_a_s / 2)
    assert (expected(a), expected(b)) == (thought_a_s / 2, thought_b_s / 2)
    assert expected(c) == expected(a)  # of which nothing is known: like the longest


@pytest.mark.parametrize(("judges", "jobs", "needed"), [(1, 3, 30.0), (2, 3, 20.0), (2, 4, 20.0), (8, 3, 10.0)])
def test_time_is_kept_for_waves_of_confirmations_but_not_for_naive_kernels(
    judges: int, jobs: int, needed: float
) -> None:
    gains = {f"{i}": 1.0 for i in range(jobs)} | {"naive": 0.0}
    bench = Bench({}, gains, judges=judges, limit_s=1000.0)
    for state in bench.states.values():
        state.took_confirm("earlier", 10.0)
    assert bench.confirmations.needed_s() == pytest.approx(SPARE * needed)
    for state in list(bench.states.values())[:-1]:
        state.took_confirm(state.fastest[1] if state.fastest else "", 10.0)
    assert bench.confirmations.needed_s() == 0.0


def test_the_search_keeps_its_part_of_the_time() -> None:
    bench = Bench({}, {f"{i}": 1.0 for i in range(50)})
    for state in bench.states.values():
        state.took_full(10.0)
    assert bench.confirmations.needed_s() == MOST_SHARE * 100


# --- rivals -----------------------------------------------------------------------------------------------------------


def rivals_of(bench: Bench) -> tuple[Rivals, list[str]]:
    """The rivals of a run, and the operators whose library was tried, which ends when it is cancelled alone."""
    world: Any = bench
    tried: list[str] = []

    async def choose_rivals(task: Task, baseline: Kernel) -> None:
        assert baseline.source == "naive"
        tried.append(task.operator)
        await asyncio.Event().wait()

    return Rivals(SimpleNamespace(choose_rivals=choose_rivals), world, world, bench.clock), tried  # type: ignore[arg-type]


def test_rivals_are_tried_beside_a_long_search_once_a_task_has_a_leader() -> None:
    async def search() -> list[str]:
        bench = Bench({}, {"a": 0.5, "b": 0.0, "c": 0.2, "d": 0.1}, limit_s=PATIENT_S, judges=2)
        rivals, tried = rivals_of(bench)
        first = rivals.want()
        await asyncio.sleep(0)
        assert len(first) == 2 and not rivals.want() and tried == ["a", "c"], "no more at once than kernels are timed"
        rivals.cancel()
        await asyncio.wait(first)
        (last,) = rivals.want()
        await asyncio.sleep(0)
        last.cancel()
        await asyncio.wait([last])
        assert not rivals.want()
        return tried

    assert asyncio.run(search()) == ["a", "c", "d"]


def test_a_short_search_has_no_time_for_rivals() -> None:
    rivals, _ = rivals_of(Bench({}, {"a": 0.5}, limit_s=PATIENT_S - 1))
    assert rivals.want() == []


def test_who_confirms_without_a_limit_has_rivals_tried_first() -> None:
    bench = Bench({"a": 1.0}, {"a": 0.5}, limit_s=math.inf)
    assert bench.end() == ["a"] and bench.rivals == ["a"]
    bench = Bench({"a": 1.0}, {"a": 0.5})
    assert bench.end() == ["a"] and bench.rivals == []
