"""The driver on scripted fitness: bookkeeping, budgets, resume, duplicates, several tasks."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.config import RunConfig
from evo.report.status import summary
from evo.search.driver import Search
from evo.store import Store, query
from evo.workers import pool
from evo.workers.jobs import Job, Propose
from evo.workers.pool import TRIED_AFTER_S, DeviceLost, JobOverdue, WorkerLost
from fitness.evaluation import Evaluation, Level, Status
from fitness.judging.base import Anchor
from fitness.testing import ScriptedFitness, scripted
from mutators.base import Mutator, Parent, Proposal, Request
from mutators.registry import mutator
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError
from operators.kernel import Kernel
from tests.choosing import size, some_slow
from tests.inline import InlinePool

SOFTMAX, MATMUL = Task("softmax", "fp32", "cpu"), Task("matrix_mul", "fp32", "cpu")


def config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"operators": ["softmax"], "budget": {"evaluations": 25}, "seed": 7}
    return RunConfig(**(settings | changes)).resolved()


def stages(made: RunConfig, **options: Any) -> dict[Task, ScriptedFitness]:
    return scripted(made.tasks(), **options)


def search(
    folder: Path,
    made: RunConfig,
    fitness: dict[Task, ScriptedFitness],
    *,
    stop_after: int | None = None,
    slots: int = 2,
) -> str:
    """One session; `stop_after` tells it is interrupted as by Ctrl-C."""
    create = not (folder / "evo.duckdb").exists()
    with Store(folder, create=create) as store:

        def on_change(running: Search) -> None:
            if stop_after is not None and sum(s.told for s in running.states.values()) >= stop_after:
                running.stop()

        async def session() -> str:
            pool = InlinePool(dict(fitness), slots=slots)
            return await Search(made, store, pool, on_change=on_change).run()

        return asyncio.run(session())


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


SEARCHED = size(60, 30)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ScriptedFitness]:
    """A whole run, to be read alone, and its stage."""
    folder, made = tmp_path_factory.mktemp("searched"), config(budget={"evaluations": SEARCHED})
    fitness = stages(made)
    assert search(folder, made, fitness) == f"evaluations {SEARCHED} of {SEARCHED}"
    return folder, fitness[SOFTMAX]


def test_every_ask_is_told_and_everything_is_stored(searched: tuple[Path, ScriptedFitness]) -> None:
    folder, _ = searched
    asks = rows(folder, "select * from asks order by seq, position")
    tells = rows(folder, "select * from tells order by seq")
    assert {a["request_id"] for a in asks} == {t["request_id"] for t in tells}
    assert [a["number"] for a in asks] == list(range(len(asks)))
    assert len({*[a["seq"] for a in asks], *[t["seq"] for t in tells]}) == len(asks) + len(tells)
    asked_at = {a["request_id"]: a["seq"] for a in asks}
    assert all(asked_at[t["request_id"]] < t["seq"] for t in tells)
    kernels = {k["kernel_id"] for k in rows(folder, "select kernel_id from kernels")}
    assert {t["kernel_id"] for t in tells if t["kernel_id"]} <= kernels
    assert len(rows(folder, "select * from proposals")) == len(asks)
    evaluated = {e["evaluation_id"] for e in rows(folder, "select evaluation_id from evaluations")}
    assert {t["evaluation_id"] for t in tells if t["evaluation_id"]} <= evaluated


def test_no_program_is_judged_twice(searched: tuple[Path, ScriptedFitness]) -> None:
    folder, fitness = searched
    new = "status <> 'duplicate' and request_id is not null and level = 'screen'"
    asked = query(folder, f"select kernel_id from evaluations where {new}")
    ids = asked.column("kernel_id").to_pylist()
    assert len(ids) == len(set(ids)) > SEARCHED * 2 / 3
    assert len(fitness.judged) <= len(ids) + 1  # the final confirmation may look at one of them again


def test_no_correct_kernel_is_certainly_faster_than_the_best_and_it_is_confirmed(
    searched: tuple[Path, ScriptedFitness],
) -> None:
    folder, _ = searched
    (best,) = rows(folder, "select * from best")
    certain = "select max(log_speedup - 1.96 * log_speedup_se) as top from evaluations where status = 'correct'"
    assert best["log_speedup"] >= rows(folder, certain)[0]["top"]
    assert best["level"] == "confirmed"


@pytest.mark.slow
def test_what_is_written_with_a_tell_is_what_the_whole_history_says(tmp_path: Path) -> None:
    """Over two sessions: generations, and which verdict counts, once more from parents and evaluations alone."""
    search(tmp_path, config(budget={"evaluations": 40}), stages(config()))
    made = config(budget={"evaluations": 120})
    search(tmp_path, made, stages(made))
    parents: dict[str, list[str]] = {}
    for row in rows(tmp_path, "select * from parents order by request_id, position"):
        parents.setdefault(row["request_id"], []).append(row["parent_id"])
    generations: dict[str, int] = {}
    for tell in rows(tmp_path, "select request_id, kernel_id from tells where kernel_id is not null order by seq"):
        above = [generations[parent] for parent in parents.get(tell["request_id"], [])]
        generations.setdefault(tell["kernel_id"], max(above, default=-1) + 1)
    severity = ("screen", "full", "confirmed")
    judged = {
        row["kernel_id"]: row
        for row in sorted(rows(tmp_path, "select * from evaluations"), key=lambda row: severity.index(row["level"]))
        if row["status"] != "duplicate"
    }
    found = rows(tmp_path, "from lineage")
    assert {row["kernel_id"]: row["generation"] for row in found} == generations
    assert len(found) == len(generations) and any(len(row["parents"]) > 1 for row in found)
    for row in found:
        verdict = judged[row["duplicate_of"] or row["kernel_id"]]
        assert (row["status"], row["level"]) == (verdict["status"], verdict["level"])
        assert row["log_speedup"] == pytest.approx(verdict["log_speedup"])


def told(folder: Path) -> list[tuple[Any, ...]]:
    return [
        (t["task"], t["number"], t["kernel_id"], t["status"], t["log_speedup"])
        for t in rows(folder, "select * from tells order by task, number")
    ]


@pytest.mark.parametrize("stops", some_slow([[3], [1, 2, 9, 17], [0, 5, 6, 7, 8, 20]], 1))
def test_interrupted_and_resumed_it_loses_nothing_and_repeats_nothing(tmp_path: Path, stops: list[int]) -> None:
    made = config(operators=["softmax", "matrix_mul"], budget={"evaluations": size(40, 16)})
    folder = tmp_path / "run"
    folder.mkdir()
    fitness = stages(made)
    kept: list[tuple[Any, ...]] = []
    for stop in stops:
        assert search(folder, made, fitness, stop_after=stop) == "stopped"
        now = told(folder)
        assert set(kept) <= set(now)
        kept = now
    assert search(folder, made, fitness).startswith("evaluations")
    final = told(folder)
    assert set(kept) <= set(final)
    for task in (SOFTMAX, MATMUL):
        numbers = [number for name, number, *_ in final if name == str(task)]
        assert numbers == list(range(len(numbers)))
    first_told = rows(
        folder, "select kernel_id, count(*) as n from tells where status not in ('duplicate', 'no_child') group by all"
    )
    assert all(row["n"] == 1 for row in first_told)


class Refusing:
    """A mutator that has no child for every third request."""

    def __init__(self, real: Mutator) -> None:
        self.name = real.name
        self.real = real

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        return self.real.applies(kernel, operator)

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        if request.number % 3 == 2:
            return Proposal(None, "nothing", "scripted refusal")
        return self.real.propose(request, parents, operator)


def test_requests_without_a_child_are_kept_and_survive_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mutators.registry.mutator", lambda name: Refusing(mutator(name)))
    made = config(budget={"evaluations": 15})
    assert search(tmp_path, made, stages(made), stop_after=8) == "stopped"
    assert search(tmp_path, made, stages(made)).startswith("evaluations")
    refused = rows(tmp_path, "select number from tells where status = 'no_child' order by number")
    asked = rows(tmp_path, "select count(*) as n from asks")[0]["n"]
    assert {row["number"] for row in refused} >= set(range(2, asked, 3))


def test_with_one_worker_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    budget = size(30, 15)
    made = config(budget={"evaluations": budget})
    for name, stops in (("whole", []), ("pieces", [4, 11, 12])):
        (tmp_path / name).mkdir()
        for stop in stops:
            search(tmp_path / name, made, stages(made), stop_after=stop, slots=1)
        search(tmp_path / name, made, stages(made), slots=1)
    whole, pieces = told(tmp_path / "whole"), told(tmp_path / "pieces")
    assert whole == pieces
    assert len(whole) >= budget


@pytest.mark.slow
def test_a_history_that_it_would_not_ask_for_goes_on_where_it_ends(tmp_path: Path) -> None:
    """The stored questions are those that were asked: here another seed stands for another version."""
    made = config()
    search(tmp_path, made, stages(made), stop_after=5)
    then = told(tmp_path)
    assert search(tmp_path, made.model_copy(update={"seed": 8}), stages(made)) == "evaluations 25 of 25"
    now = told(tmp_path)
    assert now[: len(then)] == then
    assert [number for _, number, *_ in now] == list(range(len(now)))


def test_tasks_share_the_budget_evenly(tmp_path: Path) -> None:
    made = config(operators=["softmax", "matrix_mul"], budget={"evaluations": 16})
    search(tmp_path, made, stages(made))
    counts = [row["n"] for row in rows(tmp_path, "select task, count(*) as n from asks group by task")]
    assert len(counts) == 2
    assert max(counts) - min(counts) <= 2


def failing_naive(made: RunConfig, status: Status = Status.WRONG) -> dict[Task, ScriptedFitness]:
    """The naive kernel of softmax has that verdict."""
    fitness = stages(made)
    fitness[SOFTMAX].baseline = Kernel("softmax", "cpu", "something else")
    fitness[SOFTMAX].script = lambda _: status
    return fitness


@pytest.mark.parametrize("budget", some_slow([{"evaluations": 1000}, {"evaluations": 1}], 1))
@pytest.mark.parametrize(
    ("status", "words"),
    [(Status.WRONG, "is wrong"), (Status.COMPILE_ERROR, "does not compile"), (Status.RUNTIME_ERROR, "does not run")],
)
def test_a_naive_kernel_that_fails_is_one_line_whatever_ends_the_run(
    tmp_path: Path, budget: dict[str, float], status: Status, words: str
) -> None:
    made = config(budget=budget)
    search(tmp_path, made, failing_naive(made, status))
    (task,) = summary(Run(tmp_path))
    assert task.problem.startswith(
        f"the naive kernel {words}, and all others are compared with it: scripted {status}; "
    )
    assert "`evo evaluate softmax " in task.problem
    assert "naive.cpp --dtype fp32 --workloads cpu`" in task.problem
    assert "\n" not in task.problem
    assert (task.speedup, task.candidates, task.failures) == (None, 1, {status.value: 1})


@pytest.mark.slow
def test_other_tasks_are_searched_although_a_naive_kernel_fails(tmp_path: Path) -> None:
    made = config(operators=["softmax", "matrix_mul"], budget={"evaluations": 30})
    assert search(tmp_path, made, failing_naive(made)) == "evaluations 30 of 30"
    broken, sound = summary(Run(tmp_path))
    assert (broken.task, bool(broken.problem), sound.problem) == (str(SOFTMAX), True, "")
    assert sound.confirmed
    assert sound.candidates > 20


@pytest.mark.slow
def test_a_resumed_run_says_again_that_a_naive_kernel_fails(tmp_path: Path) -> None:
    made = config(operators=["softmax", "matrix_mul"], budget={"evaluations": 30})
    fitness = failing_naive(made)
    assert search(tmp_path, made, fitness, stop_after=9) == "stopped"
    search(tmp_path, made, fitness)
    broken, _ = summary(Run(tmp_path))
    assert broken.problem.startswith("the naive kernel is wrong")
    assert broken.candidates == 1


class Contradicting(ScriptedFitness):
    """Its operator is found to contradict itself as long as `broken`."""

    broken = True

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        if self.broken and kernel.id != self.baseline.id:
            raise OperatorError("reference.py:7: reference() raised\nKeyError: 'x'")
        return super().screen(kernel, anchor, race=race)


@pytest.mark.slow
def test_an_operator_at_fault_ends_its_own_task_until_it_is_mended(tmp_path: Path) -> None:
    made = config(operators=["softmax", "matrix_mul"], budget={"evaluations": 30})
    fitness = stages(made)
    fitness[SOFTMAX] = mended = Contradicting(SOFTMAX, fitness[SOFTMAX].baseline)
    search(tmp_path, made, fitness)
    broken, sound = summary(Run(tmp_path))
    assert broken.problem == "reference.py:7: reference() raised KeyError: 'x'"
    assert (sound.problem, sound.confirmed) == ("", True)
    mended.broken = False
    search(tmp_path, config(operators=["softmax", "matrix_mul"], budget={"evaluations": 50}), fitness)
    now, _ = summary(Run(tmp_path))
    assert (now.problem, now.confirmed) == ("", True)
    assert now.candidates > 5


def ever_faster() -> Callable[[Kernel], float]:
    """A script in which every new kernel is much faster than all before it."""
    speedups: dict[str, float] = {}
    return lambda kernel: speedups.setdefault(kernel.id, 0.5 * (len(speedups) + 1))


@pytest.mark.slow
def test_confirmations_keep_to_their_share_and_no_ancestor_has_one_before_the_end(tmp_path: Path) -> None:
    """Every kernel is a new best: at a tenth of the time, one confirmation of 1 ms goes with nine of other levels."""
    made = config(budget={"evaluations": 80})
    search(tmp_path, made, stages(made, script=ever_faster()), slots=1)
    spent = "sum(coalesce(verify_ms, 0) + coalesce(time_ms, 0)) as judging, sum(coalesce(confirm_ms, 0)) as confirming"
    ((searching,), (early,), (final,)) = (
        rows(tmp_path, sql)
        for sql in (
            f"select {spent} from evaluations where request_id is not null",
            "select count(*) as n from evaluations e join proposals p using (request_id) "
            "where e.level = 'confirmed' and p.kind = 'ancestor'",
            "select count(*) as n from evaluations where level = 'confirmed' and request_id is null",
        )
    )
    total = searching["judging"] + searching["confirming"]
    cut_off = 10  # of a kernel that is under way when the budget is spent: counted, and not stored
    assert 0.05 * total < searching["confirming"] <= 0.1 * (total + cut_off)
    assert early["n"] == 0
    assert final["n"] <= 1
    assert rows(tmp_path, "select level from best") == [{"level": "confirmed"}]


class Dying(ScriptedFitness):
    """Loses its worker so often at a level of one kernel, the first that is no baseline and gets there."""

    lost_at = Level.SCREEN
    deaths = 0
    error: type[WorkerLost] = WorkerLost
    cursed = ""

    def _verdict(self, kernel: Kernel, anchor: Anchor, level: Level, *, race: bool = False) -> Evaluation:
        if level is self.lost_at and kernel.id != self.baseline.id:
            self.cursed = self.cursed or kernel.id
            if self.cursed == kernel.id and self.deaths:
                self.deaths -= 1
                raise self.error("scripted")
        return super()._verdict(kernel, anchor, level, race=race)


@pytest.mark.parametrize("level", some_slow(Level, [Level.FULL]))
@pytest.mark.parametrize(
    ("error", "deaths", "status"),
    some_slow(
        [
            (JobOverdue, 2, "timeout"),
            (WorkerLost, len(TRIED_AFTER_S), "correct"),
            (JobOverdue, 1, "correct"),
            (DeviceLost, 2, "runtime_error"),
        ],
        2,
    ),
)
def test_a_lost_worker_costs_at_most_a_level_of_the_candidate(
    tmp_path: Path, error: type[WorkerLost], deaths: int, status: str, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TRIED_AFTER_S", (0.0,) * len(TRIED_AFTER_S))
    made = config(budget={"evaluations": 32 if level is Level.CONFIRMED else 12})
    ((operator, task),) = made.tasks()
    baseline = Kernel("softmax", "cpu", operator.ancestor("naive", "cpu").read_text())
    stage = Dying(task, baseline, ever_faster())
    stage.lost_at, stage.deaths, stage.error = level, deaths, error
    search(tmp_path, made, {task: stage})
    fate = rows(
        tmp_path,
        "select level, status from evaluations where status <> 'duplicate' and request_id is not null and "
        f"kernel_id = '{stage.cursed}' order by list_position(['screen', 'full', 'confirmed'], level)",
    )
    reached = list(Level).index(level)
    assert [(row["level"], row["status"]) for row in fate][: reached + 1] == [
        *((earlier.value, "correct") for earlier in list(Level)[:reached]),
        (level.value, status),
    ]
    assert len(rows(tmp_path, "select * from events where kind = 'worker_lost'")) == deaths


@pytest.mark.parametrize("level", some_slow(Level, [Level.SCREEN]))
def test_what_no_machine_can_judge_is_no_kernels_fault_and_the_search_goes_on(
    tmp_path: Path, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TRIED_AFTER_S", (0.0,) * len(TRIED_AFTER_S))
    budget = 32 if level is Level.CONFIRMED else 12
    made = config(budget={"evaluations": budget})
    ((operator, task),) = made.tasks()
    baseline = Kernel("softmax", "cpu", operator.ancestor("naive", "cpu").read_text())
    stage = Dying(task, baseline, ever_faster())
    stage.lost_at, stage.deaths = level, len(TRIED_AFTER_S) + 1
    search(tmp_path, made, {task: stage})
    lost = (
        f"select * from evaluations where kernel_id = '{stage.cursed}' and level = '{level}' and request_id is not null"
    )
    assert rows(tmp_path, lost) == []
    if level is Level.CONFIRMED:  # what was found before stands
        fate = f"select level from evaluations where kernel_id = '{stage.cursed}' and status = 'correct' order by rowid"
        assert [row["level"] for row in rows(tmp_path, fate)][:2] == ["screen", "full"]
        return
    (told,) = rows(
        tmp_path,
        "select t.status, p.failure from tells t join proposals p using (request_id) "
        f"where t.kernel_id = '{stage.cursed}' order by t.seq limit 1",
    )
    assert told["status"] == "unavailable" and told["failure"].startswith("no worker could do it")
    digests = "select request_id, digest from tells order by seq"
    before = rows(tmp_path, digests)
    search(tmp_path, config(budget={"evaluations": budget + 5}), {task: stage})
    assert rows(tmp_path, digests)[: len(before)] == before  # and a resume takes it for what it was


def test_a_machine_that_lacks_memory_for_a_mutator_costs_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, failures = InlinePool.run, [MemoryError(), OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    async def fail(pool: InlinePool, job: Job[Any]) -> Any:
        if isinstance(job, Propose) and job.request.number > 3 and failures:
            raise failures.pop()
        return await run(pool, job)

    monkeypatch.setattr(InlinePool, "run", fail)
    made = config(budget={"evaluations": 10})
    assert search(tmp_path, made, stages(made)) == "evaluations 10 of 10"
    sql = "select p.failure from tells t join proposals p using (request_id) where status = 'unavailable' order by seq"
    assert not failures
    assert sorted(row["failure"] for row in rows(tmp_path, sql)) == [
        "Too many open files", "no memory, or no thread, is left: `MemoryError`",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_naive_kernel_that_no_machine_can_judge_leaves_its_task_to_the_next_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TRIED_AFTER_S", ())
    made = config(budget={"evaluations": 5})
    stage = stages(made)
    broken = True
    ((task, fitness),) = stage.items()
    build = fitness.build
    assert task == SOFTMAX

    def fail(kernel: Kernel) -> Any:
        if broken:
            raise WorkerLost("too many open files")
        return build(kernel)

    monkeypatch.setattr(fitness, "build", fail)
    search(tmp_path, made, stage)
    (event,) = rows(tmp_path, "select detail_json from events where kind = 'task_failed'")
    assert "too many open files" in event["detail_json"] and "naive" not in event["detail_json"]
    assert rows(tmp_path, "select * from evaluations") == []
    broken = False
    search(tmp_path, made, stage)
    assert rows(tmp_path, "select * from best") != []


@pytest.mark.slow
def test_random_search_runs_on_the_same_engine(tmp_path: Path) -> None:
    made = config(strategy="random", budget={"evaluations": 15})
    search(tmp_path, made, stages(made))
    parents = rows(tmp_path, "select distinct parent_id from parents")
    assert len(parents) == 1  # always the ancestor


def test_speedups_are_fitted_with_each_new_leader(scripted_folder: Path) -> None:
    fits = query(scripted_folder, "FROM fits ORDER BY created_at").to_pylist()
    assert fits
    last = {
        task: dict(zip(kernels, values, strict=True))
        for task, kernels, values in ((row["task"], row["kernel_ids"], row["log_speedups"]) for row in fits)
    }
    told = query(scripted_folder, "FROM verdicts WHERE status = 'correct' AND level <> 'confirmed'").to_pylist()
    moved = [row for row in told if row["kernel_id"] in last[row["task"]] and row["duplicate_of"] is None]
    assert moved
    confirmed = query(scripted_folder, "SELECT kernel_id FROM verdicts WHERE level = 'confirmed'").to_pylist()
    assert not {row["kernel_id"] for row in confirmed} & {kernel for each in last.values() for kernel in each}
