"""Kernels that are timed in bad seconds: what is unresolved is no verdict and no lesson, and is measured again."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from evo.compare.cells import CellState, standing
from evo.config import RunConfig
from evo.replay import replay
from evo.report.status import resuming
from evo.search import verdicts
from evo.store import query
from evo.workers.jobs import Job, Screen
from fitness.evaluation import Z999, Evaluation, Level, Status, Timing
from fitness.judging.base import Anchor
from fitness.judging.levels import AGAIN, judge, pooled
from fitness.testing import ScriptedFitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.evo.outside_runs import config, session, tell

SOFTMAX = Task("softmax", "fp32", "cpu")
BASELINE = Kernel("softmax", "cpu", load("softmax").naive("cpu"))
GUEST = f"{BASELINE.source}// a guest\n"
GOOD, SEEMING, SE = math.log(31.0), math.log(0.72), 1.2
"""Log speedup of the guest; its log ratio in bad seconds, and the standard error of that."""


class BusyMachine(ScriptedFitness):
    """Times the guest in bad seconds, the first `bad` times at one level."""

    def __init__(self, bad: int, at: Level = Level.SCREEN) -> None:
        super().__init__(SOFTMAX, BASELINE, lambda kernel: GOOD if kernel.source == GUEST else 0.3)
        self.bad = bad
        self.at = at
        self.times: Counter[Level] = Counter()

    def _verdict(self, kernel: Kernel, anchor: Anchor, level: Level, *, race: bool = False) -> Evaluation:
        found = super()._verdict(kernel, anchor, level, race=race)
        if kernel.source != GUEST:
            return found
        self.times[level] += 1
        if level is not self.at or self.times[level] > self.bad:
            return found
        seeming = {"log_speedup": anchor.log_speedup + SEEMING, "log_speedup_se": SE}
        return replace(found, **seeming, log_ratio=SEEMING, log_ratio_se=SE)


class Judging:
    """A pool of one worker, which has the stage."""

    def __init__(self, stage: ScriptedFitness) -> None:
        self.stage = stage

    async def run(self, job: Job[Any]) -> Any:
        return job.asked_of(cast(Any, self.stage))


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


def handed_in(folder: Path, stage: BusyMachine, evaluations: int) -> None:
    """A session in which the guest is handed in."""
    tell(folder, json.dumps({"source": GUEST, "author": "bob", "note": "wide loads"}))
    session(folder, config(budget={"evaluations": evaluations}), fitness={SOFTMAX: stage})


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose first kernels are judged; bad seconds are over at once."""
    monkeypatch.setattr(verdicts, "PAUSES_S", (0.0,) * AGAIN)
    session(tmp_path, config(budget={"evaluations": 2}), fitness={SOFTMAX: BusyMachine(0)})
    return tmp_path


@pytest.mark.slow
def test_a_good_kernel_is_measured_until_its_time_is_known(begun: Path) -> None:
    handed_in(begun, stage := BusyMachine(2), 6)
    assert stage.times[Level.SCREEN] == 3
    (best,) = rows(begun, "from best")
    assert best["log_speedup"] == pytest.approx(GOOD) and best["mutator"] == "guest"
    assert replay(begun).equal


def test_what_stays_unresolved_is_no_verdict_and_may_be_handed_in_again(begun: Path) -> None:
    handed_in(begun, stage := BusyMachine(1 + AGAIN), 6)
    (guest,) = rows(begun, "from lineage where mutator = 'guest'")
    assert guest["status"] is None and stage.times == {Level.SCREEN: 1 + AGAIN}
    (told,) = rows(begun, "select status, failure from tells join proposals using (request_id) where mutator = 'guest'")
    assert told["status"] == "unavailable" and "0.720 (" in told["failure"] and "too busy" in told["failure"]
    assert not rows(begun, "from evaluations where is_verdict and level = 'screen' and abs(log_ratio_se) > 1")

    handed_in(begun, stage, 9)
    assert not rows(begun, "from events where kind = 'not_taken'")
    (best,) = rows(begun, "from best")
    assert best["log_speedup"] == pytest.approx(GOOD) and best["mutator"] == "guest"
    refused = tell(begun, json.dumps({"source": GUEST, "author": "bob"}))
    assert "has its verdict at softmax/fp32/cpu" in refused.problems[0] and not refused.lines
    assert len({row["request_id"] for row in rows(begun, "from asks")}) == len(rows(begun, "from asks"))
    assert replay(begun).equal


@pytest.mark.slow
def test_a_screening_stands_where_the_full_level_met_bad_seconds_alone(begun: Path) -> None:
    handed_in(begun, stage := BusyMachine(1 + AGAIN, Level.FULL), 6)
    assert stage.times == {Level.SCREEN: 1, Level.FULL: 1 + AGAIN, Level.CONFIRMED: 1}, "it leads, so it is confirmed"
    (best,) = rows(begun, "from best")
    assert best["log_speedup"] == pytest.approx(GOOD) and best["mutator"] == "guest"
    of_guest = f"from evaluations where kernel_id = '{best['kernel_id']}'"
    assert rows(begun, f"select level {of_guest} and is_verdict order by rowid")[0] == {"level": "screen"}
    assert replay(begun).equal


def test_bad_seconds_teach_models_nothing(begun: Path) -> None:
    handed_in(begun, BusyMachine(100), 9)
    told = [json.loads(row["messages_json"]) for row in rows(begun, "select messages_json from llm_sent")]
    assert told and not any("wide loads" in str(messages) for messages in told)


def test_two_measurements_are_averaged_and_a_failure_counts_before_all() -> None:
    screened = ScriptedFitness(SOFTMAX, BASELINE, lambda _: 0.5).screen(
        Kernel("softmax", "cpu", "x"), Anchor(BASELINE, 0.0, 0.0), race=False
    )
    bad = replace(screened, log_ratio=SEEMING, log_ratio_se=SE)
    wrong = Evaluation(screened.kernel_id, str(SOFTMAX), Level.SCREEN, Status.WRONG, stage_ms={"verify": 2.0})
    assert bad.unresolved and not screened.unresolved
    assert not replace(bad, level=Level.CONFIRMED).unresolved and not replace(bad, anchor_id=bad.kernel_id).unresolved
    assert replace(bad, log_ratio=-2.7).unresolved  # slower for certain, by a factor of two or of forty
    assert replace(bad, log_ratio=math.log(0.557), log_ratio_se=0.298).unresolved  # 0.310 to 0.999
    assert not replace(bad, log_ratio=2.5, log_ratio_se=0.3).unresolved
    assert not replace(bad, log_ratio=0.05, log_ratio_se=0.1).unresolved, "as fast as its anchor, about"
    copy = replace(bad, status=Status.DUPLICATE, inherited=Status.CORRECT, duplicate_of="another")
    assert not copy.unresolved, "its verdict is that of another"
    for pair in ((bad, screened), (screened, bad)):
        assert pooled(*pair).log_ratio == pytest.approx(screened.log_ratio, abs=0.01)
        assert pooled(*pair).stage_ms == {"verify": 2.0, "time": 2.0}
    for pair in ((bad, wrong), (wrong, bad)):
        assert pooled(*pair).status is Status.WRONG and pooled(*pair).stage_ms == {"verify": 3.0, "time": 1.0}


def test_what_two_measurements_agree_on_is_surer_than_either_and_what_they_do_not_is_less_sure() -> None:
    timing = Timing("n=1", 10.0, 13.0, 0.3, 0.2, 20)
    first = Evaluation(
        "x", str(SOFTMAX), Level.FULL, Status.CORRECT, log_speedup=1.3, log_speedup_se=math.hypot(0.2, 0.1),
        anchor_id="y", anchor_log_speedup=1.0, log_ratio=0.3, log_ratio_se=0.2, timings=(timing,),
    )  # fmt: skip
    both = pooled(first, replace(first, log_ratio=0.26, log_speedup=1.26))
    assert (both.log_ratio, both.log_ratio_se) == pytest.approx((0.28, 0.2 / math.sqrt(2)))
    assert (both.log_speedup, both.log_speedup_se) == pytest.approx((1.28, math.hypot(0.2 / math.sqrt(2), 0.1)))
    assert first.unresolved and not pooled(both, pooled(both, both)).unresolved
    assert both.timings[0].pairs == 40 and both.timings[0].log_ratio_se == pytest.approx(0.2 / math.sqrt(2))
    leader = replace(first, anchor_id="z", anchor_log_speedup=0.8, log_ratio=0.46, log_speedup=1.26)
    again = pooled(first, leader)
    assert (again.anchor_id, again.timings) == ("z", leader.timings) and again.log_speedup == pytest.approx(
        1.277, abs=0.001
    )
    assert again.log_ratio == pytest.approx((again.log_speedup or 0.0) - 0.8)
    assert again.log_ratio_se is not None and 0.2 / math.sqrt(2) < again.log_ratio_se < 0.2
    lost = replace(first, status=Status.SLOWER, log_ratio=-0.1, log_speedup=None, log_speedup_se=None, timings=())
    for pair in ((first, lost), (lost, first)):
        assert pooled(*pair).correct and pooled(*pair).log_speedup == pytest.approx(1.1), "a lost race is one more time"
    assert pooled(lost, lost).status is Status.SLOWER and pooled(lost, lost).log_speedup is None
    apart = pooled(first, replace(first, log_ratio=1.3, log_speedup=2.3))
    assert apart.log_ratio == pytest.approx(0.8) and apart.log_ratio_se == pytest.approx(0.5)


def test_a_kernel_that_is_judged_alone_is_measured_again_too() -> None:
    stage = BusyMachine(2)
    found = judge(stage, Kernel("softmax", "cpu", GUEST), Anchor(BASELINE, 0.0, 0.0), race=False)
    assert [each.level for each in found] == list(Level) and found[0].log_speedup == pytest.approx(GOOD, abs=0.01)


def test_what_was_measured_before_counts_where_a_kernel_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its measurements leave open what it is worth one by one, and say it together."""
    monkeypatch.setattr(f"{__name__}.SE", 0.3)
    monkeypatch.setattr(f"{__name__}.SEEMING", 0.4)
    monkeypatch.setattr(verdicts, "PAUSES_S", (0.0,) * AGAIN)
    once, twice = ([0.4] * (1 + AGAIN), [0.4] * 2 * (1 + AGAIN))
    assert math.sqrt(len(once)) * 0.4 < Z999 * 0.3 < math.sqrt(len(twice)) * 0.4
    stage = BusyMachine(100)
    found = verdicts.Verdicts(cast(Any, Judging(stage)), cast(Any, None), lambda: 0.0)
    kernel, anchor = Kernel("softmax", "cpu", GUEST), Anchor(BASELINE, 0.0, 0.0)

    async def measured() -> tuple[Evaluation, Evaluation]:
        job = Screen(SOFTMAX, kernel, anchor, False)
        return await found._resolved(job, Level.SCREEN), await found._resolved(job, Level.SCREEN)

    first, second = asyncio.run(measured())
    assert first.unresolved and not second.unresolved and second.log_ratio == pytest.approx(0.4)
    assert second.stage_ms["time"] < 2 * first.stage_ms["time"], "no time is charged twice"


class NeverQuiet(ScriptedFitness):
    """Times the first `bad` kernels, the naive one left out, in bad seconds."""

    def __init__(self, bad: int) -> None:
        super().__init__(SOFTMAX, BASELINE, lambda _: 0.3)
        self.bad = bad
        self.met: set[str] = set()

    def _verdict(self, kernel: Kernel, anchor: Anchor, level: Level, *, race: bool = False) -> Evaluation:
        found = super()._verdict(kernel, anchor, level, race=race)
        if kernel == BASELINE or (kernel.id not in self.met and len(self.met) == self.bad):
            return found
        self.met.add(kernel.id)
        seeming = {"log_speedup": anchor.log_speedup + SEEMING, "log_speedup_se": SE}
        return replace(found, **seeming, log_ratio=SEEMING, log_ratio_se=SE)


def judged(folder: Path) -> tuple[int, int]:
    """The number of kernels without a verdict, and of evaluations that are used; these have one each."""
    (told,) = rows(
        folder,
        "select count(*) filter (status = 'unavailable') as undone, count(*) filter (status in ('correct', 'slower')) "
        "as done, (select sum(evaluations)::int from used) as used from tells where kernel_id is not null",
    )
    assert told["done"] == told["used"]
    return told["undone"], told["used"]


def test_kernels_without_a_verdict_use_no_evaluations_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "PAUSES_S", (0.0,) * AGAIN)
    made = RunConfig(operators=["softmax"], strategy="random", budget={"evaluations": 8}).resolved()
    reason = session(tmp_path, made, fitness={SOFTMAX: NeverQuiet(6)})
    assert reason == "evaluations 8 of 8"
    without, used = judged(tmp_path)
    assert without and used == 8
    assert replay(tmp_path).equal


def test_a_search_that_can_have_nothing_timed_ends_and_may_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "PAUSES_S", (0.0,) * AGAIN)
    made = RunConfig(operators=["softmax"], strategy="random", budget={"evaluations": 8}).resolved()
    reason = session(tmp_path, made, fitness={SOFTMAX: NeverQuiet(1_000_000)})
    assert reason.startswith("the machine is too busy: 8 requests in a row") and "\n" not in reason
    without, used = judged(tmp_path)
    assert without >= 8 > used
    assert resuming("runs/x", "finished", made.budget, reason) == "evo resume runs/x", "no larger budget is needed"
    assert standing(tmp_path) == (CellState.OPEN, reason)
    assert session(tmp_path, made, fitness={SOFTMAX: NeverQuiet(0)}) == "evaluations 8 of 8"
    assert judged(tmp_path) == (without, 8)
