"""Time limits hold: what is under way, what is resumed, and the confirmations at the end included."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from evo.config import RunConfig
from evo.search.driver import CONFIRMED, Search
from evo.store import Store
from evo.workers.jobs import Confirm, Found, Job, Screen
from evo.workers.pool import RunningJob
from fitness.evaluation import Evaluation
from fitness.judging import levels
from fitness.judging.base import Anchor, Fitness
from fitness.testing import ScriptedFitness
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo.test_search import config, rows, stages
from tests.inline import InlinePool

VERDICT_S = 1.0
"""Time that is given to a verdict under way when the run's time is up."""
LEVEL = "select count(*) filter (where level = 'confirmed') as confirmed, count(*) as tasks from best"


class Slow(ScriptedFitness):
    """Every verdict takes time on the test's clock. Only a first new best is confirmed at once, the leader is not."""

    def __init__(self, clock: list[float], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._clock = clock

    def screen(self, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        self._clock[0] += VERDICT_S
        found = super().screen(kernel, anchor, race=race)
        return replace(found, stage_ms={"verify": 500.0, "time": 500.0})

    def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return replace(super().full(kernel, anchor), stage_ms={})

    def confirm(self, kernel: Kernel) -> Evaluation:
        levels.NEW_BEST = math.inf
        self._clock[0] += 4.0
        stage_ms = {"confirm": 4000.0, "audit": 3000.0}  # of which the audit is a part
        return replace(super().confirm(kernel), stage_ms=stage_ms)


def timed(folder: Path, made: RunConfig, clock: list[float], *, judges: int = 1, until_s: float = 1e9) -> str:
    """A session on the clock; it is interrupted at `until_s`."""
    create = not (folder / "evo.duckdb").exists()
    fitness: dict[Task, Fitness] = {
        task: Slow(clock, task, Kernel(o.name, "cpu", o.ancestor("naive", "cpu").read_text()))
        for o, task in made.tasks()
    }
    promise = levels.NEW_BEST if clock[0] == 0.0 else math.inf  # in an earlier session there was a first one
    with Store(folder, create=create) as store, patch.object(levels, "NEW_BEST", promise):

        async def session() -> str:
            pool = InlinePool(fitness)
            pool.judges = judges
            running = Search(made, store, pool, now=lambda: clock[0], on_change=stop)
            return await running.run()

        def stop(running: Search) -> None:
            if clock[0] >= until_s:
                running.stop()

        return asyncio.run(session())


@pytest.mark.slow
@pytest.mark.parametrize(("operators", "judges"), [(["softmax"], 1), (["softmax", "matrix_mul"], 8)])
def test_a_time_limit_holds_the_confirmations_at_the_end(operators: list[str], judges: int, tmp_path: Path) -> None:
    made, clock = config(operators=operators, budget={"wall_s": 100.0}), [0.0]
    assert timed(tmp_path, made, clock, judges=judges).endswith("of 100 s, the rest for confirmations")
    assert [best["level"] for best in rows(tmp_path, "select level from best")] == ["confirmed"] * len(operators)
    spare = 5 * (len(operators) - 1) * (judges > 1)  # these judges are one after the other all the same
    assert 100 - 8 <= clock[0] <= 100 + 4 + spare  # a few verdicts were under way when the search ended


@pytest.mark.slow
def test_a_resumed_run_keeps_time_for_confirmations_as_well(tmp_path: Path) -> None:
    made, clock = config(budget={"wall_s": 100.0}), [0.0]
    assert timed(tmp_path, made, clock, until_s=60) == "stopped"
    assert timed(tmp_path, made, clock).endswith("the rest for confirmations")
    assert clock[0] <= 100 + 4


@pytest.mark.slow
def test_a_leader_that_is_confirmed_needs_no_more_time(tmp_path: Path) -> None:
    made, clock = config(budget={"wall_s": 25.0}), [0.0]
    timed(tmp_path, made, clock)
    more = config(budget={"wall_s": clock[0] + 3.0})
    timed(tmp_path, more, clock)
    assert clock[0] >= more.budget["wall_s"] - VERDICT_S, "time for another confirmation was kept"


class Hanging(InlinePool):
    """It is at a second kernel's screening for ever, and at every confirmation; the test's clock goes on meanwhile."""

    def __init__(self, clock: list[float], fitness: dict[Task, Any], hangs: Sequence[str]) -> None:
        super().__init__(dict(fitness), slots=3)
        self.hangs = hangs
        self.hanging: list[RunningJob] = []
        self._clock = clock
        self._screened = 0

    def jobs(self) -> tuple[RunningJob, ...]:
        return tuple(self.hanging[:1])  # the others wait for a worker

    async def run(self, job: Job[Found]) -> Found:
        self._screened += isinstance(job, Screen)
        if job.name in self.hangs and (isinstance(job, Confirm) or self._screened > 4):
            hanging = RunningJob(job, 0.0)
            self.hanging.append(hanging)
            try:
                await asyncio.Future()
            finally:
                self.hanging.remove(hanging)
        return await super().run(job)

    def moves(self, _: Search) -> None:
        """Something changed in the search, or it looked at its clock."""
        self._clock[0] += 0.5 if self.hanging else 0.0


def session(
    folder: Path, made: RunConfig, clock: list[float], hangs: Sequence[str], **options: Any
) -> tuple[str, Hanging]:
    pool = Hanging(clock, stages(made), hangs)
    with Store(folder, create=not (folder / "evo.duckdb").exists()) as store:

        async def everything() -> str:
            return await Search(made, store, pool, now=lambda: clock[0], on_change=pool.moves, **options).run()

        return asyncio.run(everything()), pool


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.search.schedule.TICK_S", 0.001)


@pytest.mark.parametrize("hangs", some_slow([["screen"], ["screen", "confirm"]], 1))
def test_what_is_under_way_at_the_end_is_given_up_and_left_open(tmp_path: Path, hangs: list[str]) -> None:
    made, clock = config(budget={"wall_s": 60.0}), [0.0]
    reason, pool = session(tmp_path, made, clock, hangs)
    assert reason.startswith("time ")
    assert 55 <= clock[0] <= 60 * 1.05
    assert pool.hanging == []
    left = rows(tmp_path, "select request_id from asks except select request_id from tells")
    assert left
    (standing,) = rows(tmp_path, LEVEL)
    assert standing["confirmed"] == (0 if "confirm" in hangs else 1)
    more = config(budget={"wall_s": clock[0] + 1e6, "evaluations": 10})
    assert session(tmp_path, more, clock, ())[0].startswith("evaluations")
    assert not rows(tmp_path, "select request_id from asks except select request_id from tells")
    assert rows(tmp_path, LEVEL) == [{"confirmed": 1, "tasks": 1}]


@pytest.mark.slow
def test_a_resume_without_time_asks_for_nothing_and_one_for_confirmations_alone_ends_them(tmp_path: Path) -> None:
    made, clock = config(budget={"wall_s": 60.0}), [0.0]
    session(tmp_path, made, clock, ["screen", "confirm"])
    before, ended = rows(tmp_path, "from asks"), clock[0]
    assert session(tmp_path, made, clock, ["screen", "confirm"])[0].startswith("time ")
    assert clock[0] <= ended + 2
    assert rows(tmp_path, LEVEL) == [{"confirmed": 0, "tasks": 1}]
    assert session(tmp_path, made, clock, ["screen"], only_confirm=True)[0] == CONFIRMED
    assert rows(tmp_path, LEVEL) == [{"confirmed": 1, "tasks": 1}]
    assert rows(tmp_path, "from asks") == before


@pytest.mark.slow
def test_time_before_the_search_begins_is_time_of_the_run(tmp_path: Path) -> None:
    made, clock = config(budget={"wall_s": 60.0}), [30.0]
    session(tmp_path, made, clock, ["screen"], began=10.0)
    assert 10 + 55 <= clock[0] <= 10 + 60 * 1.05
    session(tmp_path, config(budget={"wall_s": 80.0}), clock, ["screen"])
    assert clock[0] <= 10 + 80 * 1.05
