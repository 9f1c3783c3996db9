"""The judgement of a comparison: its winners anew, on what no search has seen."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.compare.cells import cell_results, stored
from evo.compare.conclusions import conclusions
from evo.compare.judgement import TIMED, judge, judged_cells, near, outcomes, with_drawn_sizes
from evo.compare.record import FOLDER, STORE, faults
from evo.config import RunConfig
from evo.folders import DATABASE
from evo.store import query
from evo.workers.pool import EngineError
from evo.workers.worker import RunContext
from fitness.evaluation import Evaluation, Level, LibraryTiming, Status
from fitness.judging.base import Anchor, Fitness
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError
from operators.kernel import Kernel
from tests.evo.comparisons import ScriptedBackend, ScriptedPool, comparison, judge_on, run
from tests.evo.model_runs import TimedFitness
from tests.inline import InlinePool

Confirm = Callable[[Operator, Kernel], Status | float]


class Judging(ScriptedBackend):
    """A scripted device of the judgement's; `confirm` says what it finds."""

    def __init__(self, confirm: Confirm, searched: Confirm | None = None) -> None:
        """`searched` says what it finds at the sizes that were searched, where that is another thing."""
        super().__init__()
        self.confirm = confirm
        self.searched = searched or confirm
        self.confirmed: list[str] = []
        """Kernels that were confirmed at drawn sizes."""
        self.timed: list[str] = []
        """Kernels that were confirmed at the sizes that were searched."""
        self.beside: list[tuple[str, str]] = []
        """Kernels that were timed in turns with others, and these."""

    def pool(self, config: RunConfig, folder: Path) -> ScriptedPool:
        backend = self

        class Stage(TimedFitness):
            def __init__(self, task: Task, operator: Operator, workload_set: str) -> None:
                self.drawn = workload_set == TIMED
                assert operator.workload_set(workload_set)
                naive = Kernel(task.operator, task.target, operator.naive(task.target))
                super().__init__(task, naive, operator=operator)

            def full(self, kernel: Kernel, anchor: Anchor) -> Evaluation:
                backend.beside.append((kernel.id, anchor.kernel.id))
                outcome = backend.confirm(self.operator, kernel)
                self.script = lambda _: outcome
                return super().full(kernel, anchor)

            def confirm(self, kernel: Kernel) -> Evaluation:
                (backend.confirmed if self.drawn else backend.timed).append(kernel.id)
                outcome = (backend.confirm if self.drawn else backend.searched)(self.operator, kernel)
                if isinstance(outcome, Status):
                    return Evaluation(kernel.id, str(self.task), Level.CONFIRMED, outcome, "scripted")
                self.script = lambda _: outcome
                found = super().confirm(kernel)
                library = [LibraryTiming(**{**asdict(t), "anchor_latency_us": 500.0}) for t in found.timings]
                return replace(found, library_timings=tuple(library))

        class Stages(dict[Task, Fitness]):
            def __init__(self, context: RunContext) -> None:
                self.operators, self.workload_set = dict(context.operators), context.workload_set

            def __missing__(self, task: Task) -> Fitness:
                return Stage(task, load(self.operators[task.operator]), self.workload_set)

        class Pool(ScriptedPool):
            def for_run(self, context: RunContext) -> InlinePool:
                return InlinePool(Stages(context))

        return Pool()


@dataclass(frozen=True)
class Searched:
    """A comparison whose searches are over."""

    folder: Path
    winners: frozenset[str]
    """Kernels of cells that found one of their own."""
    naive: frozenset[str]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    arms = {"random": {}, "random+tune": {"strategy": "random", "tuning": "last"}}
    made = comparison(arms=arms, operators=["softmax", "gelu"], budget={"evaluations": 6})
    folder, running, _ = run(tmp_path_factory.mktemp("judged"), made)
    assert len(running.ended) == 4
    naive = {Kernel(c.operator, c.target, load(c.path).naive(c.target)).id for c in running.cells}
    found = {result.winner.kernel.id for result in cell_results(folder) if result.winner}
    return Searched(folder, frozenset(found - naive), frozenset(naive))


@pytest.fixture
def folder(searched: Searched, tmp_path: Path) -> Path:
    return Path(shutil.copytree(searched.folder, tmp_path / searched.folder.name))


def test_every_winner_is_judged_once_beside_the_naive_kernel_on_shapes_that_no_search_saw(
    folder: Path, searched: Searched
) -> None:
    seen: list[Operator] = []
    backend = Judging(lambda operator, _: seen.append(operator) or 0.5, lambda *_: 0.8)
    said: list[str] = []
    assert judge_on(backend, folder, said.append)
    own = searched.winners
    assert len(own) >= 2 and set(backend.confirmed) >= own and len(backend.confirmed) == len(own) + 2
    assert sorted(backend.timed) == sorted(own)
    assert all(len(operator.hidden) > 1.5 * len(load(operator.name).hidden) for operator in seen)
    judged = judged_cells(folder)
    assert len(outcomes(judged)) == len(judged) == 4
    for cell in judged:
        assert cell.outcome and cell.outcome.log_speedup == (0.5 if cell.evaluation else 0.0)
        assert cell.outcome.searched == (0.8 if cell.evaluation else 0.0)
    begun = stored(folder)
    assert begun.families == {"softmax": "normalization", "gelu": "activation"}
    found = conclusions(begun, judged)
    (by_itself, beside) = sorted(found.rows(), key=lambda row: bool(row["verdict"]))
    assert (by_itself["arm"], beside["arm"], beside["verdict"]) == ("random", "random+tune", "open")
    assert beside["seen_from"] is None and "no verdict: random+tune" in [*found.lines()]
    assert "nothing can be concluded at operators of 2 families" in "".join(found.lines())
    assert "random+tune: 6 families that differ as these 2 would show" in "".join(found.lines())
    config = begun.config.model_copy(update={"primary": []})
    described = conclusions(begun.model_copy(update={"config": config}), judged)
    assert "it describes and concludes nothing" in "".join(described.lines()) and not described.tested
    assert {row["verdict"] for row in described.rows()} == {None, "described"}
    assert not any(row["p"] for row in described.rows())
    assert conclusions(begun, judged) == found
    rows = query(folder / FOLDER / STORE, "select kernel_id, level from verdicts").to_pylist()
    assert {row["level"] for row in rows} == {"confirmed"} and len(rows) == len(own) + 2
    assert not faults(folder, begun)
    assert not (folder / FOLDER / DATABASE).exists()  # no pattern over the cells matches it
    assert said[-1].endswith("is timed at the sizes that were searched, 0 measurements left at most")
    assert judge_on(again := Judging(lambda *_: 0.1), folder, said.append) and not again.confirmed


@pytest.fixture(scope="module")
def rivals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with several winners at one task."""
    made = comparison(arms={"random": {}}, operators=["softmax"], seeds=[1, 2, 3, 4], budget={"evaluations": 6})
    return run(tmp_path_factory.mktemp("rivals"), made)[0]


@pytest.mark.slow
def test_winners_of_a_task_are_timed_in_turns_with_the_fastest_of_them(rivals: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(rivals, tmp_path / rivals.name))
    cells = [cell for cell in cell_results(folder) if cell.winner]
    naive = Kernel("softmax", "cpu", load("softmax").naive("cpu")).id
    own = sorted({cell.winner.kernel.id for cell in cells if cell.winner} - {naive})
    assert len(own) >= 3
    fastest, wrong, *others = own
    speeds: dict[str, Status | float] = {naive: 0.0, fastest: 0.9, wrong: Status.WRONG, **dict.fromkeys(others, 0.4)}
    backend = Judging(lambda _, kernel: speeds[kernel.id])
    assert judge_on(backend, folder, lambda _: None)
    assert sorted(backend.beside) == [(kernel, fastest) for kernel in others]
    judged = {cell.result.winner.kernel.id: cell for cell in judged_cells(folder) if cell.result.winner}
    assert judged[fastest].beside is None and judged[wrong].beside is None
    for kernel in others:
        beside, outcome = judged[kernel].beside, judged[kernel].outcome
        assert beside and beside.anchor_id == fastest and beside.anchor_log_speedup == 0.9
        assert outcome and outcome.log_speedup == 0.4  # the endpoint rests on the naive kernel, as registered
    assert judge_on(again := Judging(lambda *_: 0.1), folder, lambda _: None)
    assert not again.confirmed and not again.beside


@pytest.mark.slow
def test_a_winner_that_turns_out_wrong_beside_the_fastest_is_wrong(rivals: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(rivals, tmp_path / rivals.name))
    seen: list[str] = []

    def confirm(_: Operator, kernel: Kernel) -> Status | float:
        seen.append(kernel.id)
        return Status.WRONG if seen.count(kernel.id) == 3 else 0.4  # at drawn sizes, at the searched ones, beside

    assert judge_on(Judging(confirm), folder, lambda _: None)
    judged = [cell for cell in judged_cells(folder) if cell.evaluation]
    right = [cell for cell in judged if cell.evaluation and cell.evaluation.correct]
    assert len({cell.result.winner.kernel.id for cell in right if cell.result.winner}) == 1 < len(judged)
    assert all(cell.outcome and cell.outcome.has_winner is (cell in right) for cell in judged)


def test_no_winner_is_judged_before_all_searches_are_over(folder: Path) -> None:
    shutil.rmtree(next(folder.glob("random-*")))
    said: list[str] = []
    assert judge(folder, cell_results(folder), said.append)
    assert said == ["judgement: 1 of 4 cells not over; winners are judged when all are"]
    assert not (folder / FOLDER).exists()


@pytest.mark.slow
def test_a_winner_that_fails_the_judgement_counts_as_naive(folder: Path, searched: Searched) -> None:
    own = searched.winners
    refuted = min(own)
    assert judge_on(Judging(lambda _, kernel: Status.WRONG if kernel.id == refuted else 0.5), folder, lambda _: None)
    for cell in judged_cells(folder):
        kernel_id = cell.result.winner.kernel.id if cell.result.winner else ""
        assert cell.outcome and cell.outcome.has_winner == (kernel_id in own - {refuted})
        assert bool(cell.outcome.log_speedup) == cell.outcome.has_winner


@pytest.mark.slow
def test_a_judgement_that_broke_off_goes_on_with_the_winners_that_are_left(folder: Path, searched: Searched) -> None:
    judged: list[str] = []

    def breaks(_: Operator, kernel: Kernel) -> float:
        if kernel.id not in searched.naive:
            if judged:
                raise EngineError("scripted")
            judged.append(kernel.id)
        return 0.5

    with pytest.raises(EngineError):
        judge_on(Judging(breaks), folder, lambda _: None)
    assert {c.evaluation.kernel_id for c in judged_cells(folder) if c.evaluation} == {*judged}
    rest = Judging(lambda *_: 0.7)
    assert judge_on(rest, folder, lambda _: None)
    assert {*rest.confirmed} - searched.naive == searched.winners - {*judged}
    found = {c.evaluation.kernel_id: c.evaluation.log_speedup for c in judged_cells(folder) if c.evaluation}
    assert found == {kernel_id: 0.5 if kernel_id in judged else 0.7 for kernel_id in searched.winners}


@pytest.mark.slow
def test_a_judgement_that_is_interrupted_says_so_and_keeps_what_was_judged(folder: Path, searched: Searched) -> None:
    def interrupts(_: Operator, kernel: Kernel) -> float:
        if kernel.id not in searched.naive and len(backend.confirmed) < 3:
            os.kill(os.getpid(), signal.SIGINT)
        return 0.5

    backend = Judging(interrupts)
    assert not judge_on(backend, folder, lambda _: None)
    done = {cell.evaluation.kernel_id for cell in judged_cells(folder) if cell.evaluation}
    assert done < searched.winners
    rest = Judging(lambda *_: 0.5)
    assert judge_on(rest, folder, lambda _: None)
    assert {*rest.confirmed} - searched.naive == searched.winners - done


@pytest.mark.slow
def test_drawn_shapes_with_which_the_naive_kernel_fails_are_given_up(folder: Path, searched: Searched) -> None:
    def only_as_it_is(operator: Operator, kernel: Kernel) -> float:
        if len(operator.hidden) > len(load(operator.name).hidden):
            raise OperatorError("no such sizes")
        return 0.5

    assert judge_on(Judging(only_as_it_is), folder, lambda _: None)
    assert all(cell.outcome for cell in judged_cells(folder))
    found = query(folder / FOLDER / STORE, "select detail_json from events where kind = 'drawn_sizes'").to_pylist()
    assert [row["detail_json"] for row in found] == ['{"folder":"","hidden":0,"timed":0}'] * 2
    refused: list[str] = []
    shutil.rmtree(folder / FOLDER)
    assert judge_on(Judging(lambda *_: Status.WRONG), folder, refused.append)
    assert len(refused) == 2 and all("cannot be judged" in text for text in refused)
    judged = judged_cells(folder)
    assert all(cell.left_out and not cell.outcome for cell in judged)  # nor does a cell without a winner count there
    assert faults(folder, stored(folder)) == ["the judgement was begun 2 times: what it had found before was removed"]


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10_000), min_size=1), st.integers(0, 2**32))
def test_near_sizes_keep_what_kernels_ask_of_sizes(dims: dict[str, int], seed: int) -> None:
    found = near(dims, random.Random(seed))
    assert list(found) == list(dims)
    for name, size in dims.items():
        assert abs(found[name] - size) <= size / 4
        assert all(found[name] % power == 0 for power in (2, 4, 8, 16, 32) if size % power == 0)
        for other, its in dims.items():
            assert (size < its) == (found[name] < found[other])


@pytest.mark.parametrize("name", ["softmax", "spmv_ell", "fft", "conv_2d"])
def test_an_operator_with_drawn_shapes_is_the_same_but_for_them(name: str, tmp_path: Path) -> None:
    own = load(name)
    drawn = with_drawn_sizes(own, tmp_path / name, random.Random(3), "cpu")
    found = load(str(tmp_path / name))
    assert drawn.hidden >= len(own.hidden) / 3 and len(found.hidden) == len(own.hidden) + drawn.hidden
    assert {w.name for w in own.hidden} < {w.name for w in found.hidden}
    searched, timed = own.workload_set("cpu"), found.workload_set(TIMED)
    assert len(timed) == drawn.timed == len(searched) and not {w.name for w in searched} & {w.name for w in timed}
    assert {*found.workloads} == {*own.workloads, *timed} and found.naive("cpu") == own.naive("cpu")
    assert with_drawn_sizes(own, tmp_path / "smaller", random.Random(3), "cpu", larger=False).timed == len(searched)
    for before, after in zip(searched, load(str(tmp_path / "smaller")).workload_set(TIMED), strict=True):
        assert all(after.dims[dim] <= size for dim, size in before.dims.items())


@pytest.mark.slow
def test_a_winner_that_is_fast_at_the_searched_sizes_alone_is_judged_slow_and_both_are_told(folder: Path) -> None:
    assert judge_on(Judging(lambda *_: -3.9, lambda *_: 0.97), folder, lambda _: None)
    judged = [cell.outcome for cell in judged_cells(folder) if cell.outcome and cell.outcome.has_winner]
    assert judged and {(one.log_speedup, one.searched) for one in judged} == {(-3.9, 0.97)}
    (arm, *_) = conclusions(stored(folder), judged_cells(folder)).summaries
    assert arm.geometric_mean < 1


@pytest.mark.slow
def test_before_all_winners_are_judged_there_is_no_p_value_and_failures_alone_count_for_nothing(
    folder: Path, searched: Searched
) -> None:
    judged: list[str] = []

    def breaks(_: Operator, kernel: Kernel) -> float:
        if kernel.id not in searched.naive:
            if judged:
                raise EngineError("scripted")
            judged.append(kernel.id)
        return 0.5

    with pytest.raises(EngineError):
        judge_on(Judging(breaks), folder, lambda _: None)
    cells = judged_cells(folder)
    tasks = [cell.result.task for cell in cells if cell.outcome]
    assert len(tasks) < 4 and all(tasks.count(task) == 2 for task in tasks)
    found = conclusions(stored(folder), cells)
    assert not any(row["p"] or row["ratio_95"] for row in found.rows())
    assert {effect.verdict for effect in found.effects} <= {"pending"}
