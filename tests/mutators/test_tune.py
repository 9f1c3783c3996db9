from __future__ import annotations

import math
import subprocess
import sys
from random import Random
from typing import Any

import pytest
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from fitness.evaluation import Evaluation, Level, Status
from mutators.base import Parent, Proposal, Request, Trial
from mutators.tuning import samplers
from mutators.tuning.samplers import SAMPLERS, Surrogate
from mutators.tuning.tune import Tune
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

SPACE = {"AA": [1, 2, 4, 8, 16, 32, 64], "BB": [1, 2, 4, 8, 16, 32], "CC": [3, 5, 7, 9], "DD": [0, 1]}


def kernel(tune: dict[str, list[int]], top: str = "") -> Kernel:
    listed = "".join(f"{name} = {values}\n" for name, values in tune.items())
    launch = '[[launch]]\nkernel = "matrix_mul"\nargs = ["a", "b", "c", "m", "n", "k"]\n'
    return Kernel("matrix_mul", "cpu", f"/*! evo\n{top}\n[tune]\n{listed}\n{launch}*/\n")


def cuda(block: str, tune: str) -> Kernel:
    launch = f'[[launch]]\nkernel = "f"\ngrid = ["ceil_div(n, A)", "m"]\nblock = [{block}]\nargs = []\n'
    return Kernel("matrix_mul", "cuda", f"/*! evo\n[tune]\n{tune}\n{launch}*/\n")


def propose(parent: Kernel, trials: list[Trial], seed: int = 0, by: Tune | None = None, **params: object) -> Proposal:
    wanted = {"workload_set": "cpu"} | params
    request = Request(Task("matrix_mul", "fp32", parent.target), 0, "tune", (parent.id,), seed, wanted, tuple(trials))
    return (by or Tune()).propose(request, (Parent(parent),), load("matrix_mul"))


def settings(parent: Kernel, proposal: Proposal) -> dict[str, int]:
    assert proposal.kernel, proposal.failure
    assert proposal.kernel.source == parent.source
    return parse_plan(parent.source, load("matrix_mul"), parent.target).settings(proposal.kernel.values)


def speed(values: dict[str, int]) -> float:
    """A synthetic log speedup with its maximum, 0, at 16, 2, 7, 0."""
    a, b = math.log2(values["AA"]) - 4, math.log2(values["BB"]) - 1
    return -(0.3 * a * a + 0.2 * b * b + 0.05 * (values["CC"] - 7) ** 2 + 0.5 * values["DD"])


def test_the_same_request_makes_the_same_child() -> None:
    parent = kernel(SPACE)
    trials = [Trial({"AA": a, "BB": b}, speed({"AA": a, "BB": b, "CC": 3, "DD": 0})) for a in (1, 8) for b in (1, 2, 4)]
    first, second = (propose(parent, trials, seed=5) for _ in range(2))
    assert first.kernel and first.kernel == second.kernel
    assert first.description == second.description


def test_nothing_is_proposed_twice_and_the_end_is_said() -> None:
    parent = kernel({"AA": [1, 2, 3], "BB": [4, 8, 16, 32]})
    trials: list[Trial] = [Trial({}, 0.0)]
    for number in range(11):
        values = settings(parent, propose(parent, trials, seed=number))
        assert values not in [{"AA": 1, "BB": 4} | dict(t.values) for t in trials]
        trials.append(Trial(values, None if number % 3 == 0 else number / 10))
    assert propose(parent, trials).failure == "all 12 settings are tried"


def test_the_parents_own_setting_is_not_proposed() -> None:
    parent = kernel({"AA": [1, 2]}).with_values({"AA": 2})
    for seed in range(5):
        child = propose(parent, [], seed=seed).kernel
        assert child and dict(child.values) == {}
    assert propose(parent, [Trial({"AA": 1}, None)]).failure == "all 2 settings are tried"


def test_a_child_names_only_values_that_differ_from_the_default() -> None:
    parent = kernel({"AA": [1, 2], "BB": [5]})
    child = propose(parent, []).kernel
    assert child and dict(child.values) == {"AA": 2}
    assert propose(parent, []).description == "set AA = 2, BB = 5"


def test_settings_that_break_a_limit_are_never_proposed() -> None:
    parent = cuda('"A", "B"', "A = [16, 32, 64, 1024, 2048]\nB = [1, 2, 16, 32, 64]\n")
    trials: list[Trial] = []
    while (proposal := propose(parent, trials, seed=len(trials), workload_set="published")).kernel:
        values = settings(parent, proposal)
        assert values["A"] * values["B"] <= 1024
        trials.append(Trial(values, 0.1))
    assert len(trials) == 12  # of 25; the default, 16 x 1, is the parent's
    assert proposal.failure.startswith("13 settings are tried, none of the other 12 fits every workload: ")
    assert "1024" in proposal.failure


def test_settings_that_requires_excludes_are_never_proposed() -> None:
    parent = kernel({"AA": [1, 2, 5, 16, 64, 77]}, top='requires = "k % AA == 0"')
    trials: list[Trial] = []
    while (proposal := propose(parent, trials)).kernel:
        trials.append(Trial(settings(parent, proposal), 0.0))
    assert {t.values["AA"] for t in trials} == {2, 16}  # k is 192, 32 and 4096
    assert "`requires` excludes" in proposal.failure


def test_failed_settings_repel() -> None:
    """After every AA above 2 has failed, what follows is mostly not there."""
    parent = kernel(SPACE)
    values = [{"AA": a, "BB": b, "CC": c, "DD": 0} for a in (1, 2, 16, 32, 64) for b in (1, 4, 16) for c in (3, 9)]
    trials = [Trial(v, -0.1 * v["BB"] if v["AA"] < 4 else None) for v in values]
    proposed = [settings(parent, propose(parent, trials, seed=s))["AA"] for s in range(20)]
    assert sum(a <= 4 for a in proposed) >= 15


def test_trials_of_other_files_do_not_disturb() -> None:
    parent = kernel({"AA": [1, 2]})
    strange = [Trial({"ZZ": 3}, 1.0), Trial({"AA": 99}, 2.0)]
    assert propose(parent, strange).kernel


def test_the_parents_evaluation_counts_as_a_trial() -> None:
    parent = kernel({"AA": [1, 2, 3]})
    verdict = Evaluation(
        parent.id, "matrix_mul/fp32/cpu", Level.SCREEN, Status.CORRECT, log_speedup=0.5, log_speedup_se=0.01
    )
    request = Request(Task("matrix_mul", "fp32", "cpu"), 0, "tune", (parent.id,), 1, {"workload_set": "cpu"})
    child = Tune().propose(request, (Parent(parent, verdict),), load("matrix_mul")).kernel
    assert child and dict(child.values)


def search(seed: int, count: int, *, at_random: bool) -> list[float]:
    """The best speed after each of `count` trials."""
    parent, trials = kernel(SPACE), []
    random = Random(seed)
    for number in range(count):
        if at_random:
            values = {name: random.choice(listed) for name, listed in SPACE.items()}
        else:
            values = settings(parent, propose(parent, trials, seed=1000 * seed + number))
        trials.append(Trial(values, speed(values)))
    return [max(t.log_speedup or 0.0 for t in trials[: n + 1]) for n in range(count)]


@pytest.mark.slow
def test_finds_the_optimum_faster_than_random() -> None:
    tuned = [search(seed, 40, at_random=False) for seed in range(6)]
    drawn = [search(seed, 40, at_random=True) for seed in range(30)]
    assert sum(run[-1] == 0.0 for run in tuned) >= 5
    assert sum(run[-1] == 0.0 for run in drawn) <= 10  # 40 of 336 settings: one in nine by chance
    assert sum(run[29] for run in tuned) / 6 > sum(run[29] for run in drawn) / 30


def test_a_large_space_is_searched_without_listing_it() -> None:
    tune = {f"T{n}": list(range(1, 33)) for n in range(12)}
    parent = kernel(tune, top='requires = "T0 % 2 == 1"')
    trials: list[Trial] = []
    for number in range(15):
        proposal = propose(parent, trials, seed=number)
        values = settings(parent, proposal)
        assert values["T0"] % 2 == 1 and values not in [t.values for t in trials]
        trials.append(Trial(values, values["T1"] / 32))


@pytest.mark.parametrize(
    ("parent", "params", "phrase"),
    [
        (kernel({"AA": [1]}), {}, "the plan declares no tunable with more than one value"),
        (Kernel("matrix_mul", "cpu", "int x;"), {}, "the parent cannot be tuned: line 1: there is no header"),
        (
            kernel(SPACE),
            {"workload_set": "cup"},
            "the parent cannot be tuned: operator matrix_mul: no workload set `cup`",
        ),
        (kernel(SPACE), {"workload_set": 3}, "workload_set must be a name, not 3"),
        (kernel(SPACE), {"facts": {"l2_bytes": "x"}}, "facts must be a table of integers"),
        (kernel(SPACE).with_values({"QQ": 1}), {}, ""),
    ],
)
def test_bad_parents_and_params_fail_with_a_reason(parent: Kernel, params: dict[str, object], phrase: str) -> None:
    proposal = propose(parent, [], **params)
    assert proposal.failure.startswith(phrase)
    assert (proposal.kernel is None) == bool(phrase)


def test_applies_where_there_is_a_choice() -> None:
    operator = load("matrix_mul")
    assert Tune().applies(kernel({"AA": [1, 2]}), operator)
    assert not Tune().applies(kernel({"AA": [1]}), operator)
    assert not Tune().applies(Kernel("matrix_mul", "cpu", "no header"), operator)


# --- what comes first -----------------------------------------------------------------------------------------------


def tried_in_order(parent: Kernel, count: int, **params: object) -> list[dict[str, int]]:
    """The settings of successive requests, each told of those before."""
    trials: list[Trial] = []
    for number in range(count):
        values = settings(parent, propose(parent, trials, seed=number, **params))
        trials.append(Trial(values, speed(values)))
    return [dict(trial.values) for trial in trials]


def test_the_authors_default_comes_first_then_what_was_best_in_similar_files() -> None:
    parent = kernel(SPACE).with_values({"AA": 64, "BB": 32})
    siblings = [{"AA": 8, "CC": 7, "ZZ": 1}, {"BB": 4, "AA": 99}]
    first, second, third = tried_in_order(parent, 3, siblings=siblings)
    assert first == {"AA": 1, "BB": 1, "CC": 3, "DD": 0}
    assert second == {"AA": 8, "BB": 1, "CC": 7, "DD": 0}  # what this file does not offer stays as it was
    assert third == {"AA": 1, "BB": 4, "CC": 3, "DD": 0}


def test_what_follows_is_near_what_was_fast_once_much_is_known() -> None:
    parent = kernel(SPACE)
    values = [{"AA": a, "BB": b, "CC": c, "DD": 0} for a in (1, 4, 16, 64) for b in (1, 4, 16) for c in (3, 7)]
    trials = [Trial(v, speed(v)) for v in values]
    for number in range(4):
        proposed = settings(parent, propose(parent, trials, seed=number))
        trials.append(Trial(proposed, speed(proposed)))
    found = [speed({**trial.values}) for trial in trials]
    assert max(found[-4:]) > max(found[:-4])


def test_requests_under_way_do_not_ask_for_the_same_setting() -> None:
    parent = kernel(SPACE)
    for trials in ([], [Trial({"AA": a, "BB": b}, -a * b) for a in (1, 2, 4, 8) for b in (1, 2, 4)]):
        seeds = list(range(7))
        proposed = [settings(parent, propose(parent, trials, seed=s, under_way=seeds[:s])) for s in seeds]
        assert len({str(values) for values in proposed}) == len(seeds)


def test_settings_that_cannot_be_built_are_not_among_the_first() -> None:
    parent = cuda('"A", "B"', "A = [512, 1024, 256]\nB = [2, 1, 4]\n")
    proposed = []
    trials: list[Trial] = []
    while child := propose(parent, trials, workload_set="published", siblings=[{"A": 1024}]).kernel:
        values = parse_plan(parent.source, load("matrix_mul"), "cuda").settings(child.values)
        proposed.append(values)
        trials.append(Trial(values, 0.1))
    assert all(values["A"] * values["B"] <= 1024 for values in proposed) and len(proposed) == 5


@pytest.mark.parametrize(
    ("params", "phrase"),
    [
        ({"siblings": {"AA": 1}}, "siblings must be"),
        ({"siblings": [3]}, "siblings must"),
        ({"under_way": [0.5]}, "und"),
    ],
)
def test_params_of_another_form_fail_with_a_reason(params: dict[str, object], phrase: str) -> None:
    assert propose(kernel(SPACE), [], **params).failure.startswith(phrase)


# --- the study ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_with_every_sampler_the_same_request_makes_the_same_child_whatever_was_asked_before(sampler: str) -> None:
    parent = kernel(SPACE)
    values = [{"AA": a, "BB": b, "CC": c, "DD": 0} for a in (1, 4, 64) for b in (1, 4) for c in (3, 7)]
    trials = [Trial(v, None if v["AA"] == 64 else speed(v)) for v in values]
    tune = Tune(sampler)
    first = propose(parent, trials, seed=2**40 + 1, by=tune).kernel
    assert first
    assert propose(parent, trials[:7], seed=2, by=tune).kernel
    assert propose(parent, trials, seed=2**40 + 1, by=tune).kernel == first
    assert propose(parent, trials, seed=2**40 + 1, by=Tune(sampler)).kernel == first


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_proposes_all_that_fits_and_was_not_tried_and_nothing_else(sampler: str) -> None:
    parent = cuda('"A", "B"', "A = [16, 32, 1024]\nB = [1, 2, 64]\n")
    trials: list[Trial] = []
    while (proposal := propose(parent, trials, len(trials), by=Tune(sampler), workload_set="published")).kernel:
        trials.append(Trial(settings(parent, proposal), None if len(trials) == 1 else 0.1 * len(trials)))
    listed = [(trial.values["A"], trial.values["B"]) for trial in trials]
    fitting = {(a, b) for a in (16, 32, 1024) for b in (1, 2, 64) if a * b <= 1024}
    assert sorted(listed) == sorted(fitting - {(16, 1)})  # the default is the parent's
    assert proposal.failure.startswith(f"{len(fitting)} settings are tried, none of the other ")


def test_the_study_is_told_of_failures_and_of_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[TrialState, list[tuple[dict[str, int], float | None]]]] = []

    class Witness(Surrogate):
        def sample_relative(
            self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
        ) -> dict[str, Any]:
            told: dict[TrialState, list[tuple[dict[str, int], float | None]]] = {}
            for each in study.trials[: trial.number]:
                told.setdefault(each.state, []).append((each.params, each.value))
            seen.append(told)
            return super().sample_relative(study, trial, search_space)

    monkeypatch.setitem(samplers.SAMPLERS, "surrogate", Witness)
    parent = kernel({"AA": [1, 2, 4], "BB": [5]})
    assert propose(parent, [Trial({}, 0.5), Trial({"AA": 2}, None)]).kernel
    assert seen == [{TrialState.COMPLETE: [({"AA": 0, "BB": 0}, 0.5)], TrialState.FAIL: [({"AA": 1, "BB": 0}, None)]}]
    seen.clear()
    assert propose(parent, [Trial({}, 0.5)], under_way=[1]).kernel
    assert len(seen) == 2 and list(seen[1]) == [TrialState.COMPLETE, TrialState.RUNNING]


def test_optuna_is_imported_where_a_worker_tunes_and_nowhere_else() -> None:
    program = "import sys; from mutators.registry import mutator; mutator('tune'); print('optuna' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
