"""Conclusions of a comparison on its arms, where the truth is known."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.cli.commands import main
from evo.compare.conclusions import curves, plan, sizing
from evo.compare.config import read_comparison
from evo.compare.inference import (
    Outcome,
    Spread,
    Verdict,
    detectable,
    effects,
    hierarchical_interval,
    holm,
    least_operators,
    nothing_concluded,
    sizes,
    spread,
    summaries,
)
from evo.compare.running import check
from evo.config import DEFAULT_SETS
from operators.catalog import folders, load
from operators.definition.spec import Task
from operators.errors import UserError
from tests.bench.effects import REFERENCE, World, simulated
from tests.choosing import examples


def outcome(arm: str, operator: int, seed: int = 1, log_speedup: float = 0.0, *, dtype: str = "fp32") -> Outcome:
    return Outcome(arm, f"op{operator}", f"op{operator}/{dtype}/cpu", seed, log_speedup, 0.01, correct=True)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_an_arm_that_is_better_everywhere_is_called_faster_and_one_that_is_worse_slower() -> None:
    found = [
        outcome(arm, operator, seed, level + 0.1 * operator + 0.001 * seed * operator * level)
        for operator in range(10)
        for seed in (1, 2)
        for arm, level in (("a", 0.3), ("b", 0.8), ("c", -0.1))
    ]
    better, worse = effects(found, "a", 0.1, rng())
    assert (better.arm, better.verdict, worse.arm, worse.verdict) == ("b", Verdict.FASTER, "c", Verdict.SLOWER)
    assert better.low < better.log_ratio < better.high and better.log_ratio == pytest.approx(0.5, abs=0.01)
    assert better.p_value == pytest.approx(2 / 2**10) and better.p_holm == pytest.approx(2 * 2 / 2**10)
    assert better.judging_se == pytest.approx(0.01 * math.sqrt(2 / 20))


def test_verdicts_are_given_of_registered_arms_alone_and_corrected_over_them_with_cells_or_without() -> None:
    found = [outcome(arm, n, 1, level + 0.1 * n) for n in range(7) for arm, level in (("a", 0), ("b", 1), ("c", 2))]
    c, b = effects(found, "a", 0.1, rng(), ["b"])
    assert (c.verdict, b.verdict) == (Verdict.DESCRIBED, Verdict.FASTER) and math.isnan(c.p_holm)
    assert b.p_holm == b.p_value == c.p_value == pytest.approx(2 / 2**7)
    (_, late) = effects(found, "a", 0.1, rng(), ["b", "d", "e"])  # whose cells are not judged yet
    assert late.p_holm == pytest.approx(3 * b.p_value) and late.verdict is Verdict.FASTER
    (_, many) = effects(found, "a", 0.1, rng(), ["b", "d", "e", "f"])
    assert many.verdict is Verdict.OPEN and many.detectable == math.inf
    assert {effect.verdict for effect in effects(found, "a", 0.1, rng(), [])} == {Verdict.DESCRIBED}


def test_with_too_few_operators_nothing_is_concluded_and_the_comparison_says_so() -> None:
    found = [outcome(arm, operator, 1, 2.0 * (arm == "b")) for operator in range(4) for arm in "ab"]
    (effect,) = effects(found, "a", 0.1, rng())
    assert effect.verdict is Verdict.OPEN and effect.detectable == math.inf and effect.low == -math.inf


def test_equal_is_said_only_where_the_registered_difference_would_have_been_seen() -> None:
    def verdict(noise: float, difference: float) -> Verdict:
        draws = np.random.default_rng(3)
        found = [outcome(arm, n, 1, 1.0 + noise * draws.standard_normal()) for n in range(12) for arm in "ab"]
        (effect,) = effects(found, "a", difference, rng())
        assert (effect.detectable <= math.log1p(difference)) == (effect.verdict is Verdict.EQUAL)
        return effect.verdict

    assert verdict(0.01, 0.1) is Verdict.EQUAL
    assert verdict(0.3, 0.1) is Verdict.OPEN


def test_operators_have_one_vote_each_however_many_tasks_and_seeds_they_have() -> None:
    many = [outcome("b", 0, seed, 1.0, dtype=dtype) for seed in range(9) for dtype in ("fp32", "bf16")]
    once = [outcome("b", operator, 0, 0.0) for operator in range(1, 4)]
    beside = [outcome("a", int(one.operator[2:]), one.seed, dtype=one.task.split("/")[1]) for one in many + once]
    (effect,) = effects([*many, *once, *beside, outcome("a", 9)], "a", 0.1, rng())
    assert effect.log_ratio == pytest.approx(1 / 4)
    assert (effect.operators, effect.pairs, effect.unpaired) == (4, 21, 1)


def test_a_failure_counts_as_naive_in_the_endpoint_and_as_nothing_in_shares_of_success() -> None:
    with pytest.raises(ValueError):
        Outcome("a", "op0", "op0/fp32/cpu", 1, log_speedup=0.3)
    fast = Outcome("a", "op0", "op0/fp32/cpu", 1, math.log(4.5), 0.01, True, times_us=((10.0, 2.0), (90.0, 90.0)))
    (one,) = summaries([fast, Outcome("a", "op1", "op1/fp32/cpu", 1)], rng())
    assert one.correct == 0.5 and one.above == {1: 0.5, 2: 0.5, 4: 0.5}
    assert one.geometric_mean == pytest.approx(math.sqrt(4.5)) and one.median == pytest.approx(math.sqrt(4.5))
    assert fast.score == pytest.approx((10 * 5 + 90 * 1) / 100)  # large sizes weigh more than a geometric mean has them
    assert one.fast == {1: 0.5, 2: 0.0, 4: 0.0, 8: 0.0} and one.score == pytest.approx(0.7)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p_value(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, corrected, strict=True))
    assert min(corrected) == pytest.approx(min(1.0, len(p_values) * min(p_values)))
    assert [corrected[i] for i in np.argsort(p_values)] == sorted(corrected)


@examples(10)
@given(st.integers(5, 9), st.integers(1, 3), st.floats(-3, 3))
def test_an_interval_moves_with_its_values(operators: int, seeds: int, by: float) -> None:
    blocks = [[np.random.default_rng(n).standard_normal((seeds, 2))] for n in range(operators)]
    here = hierarchical_interval(blocks, rng())
    there = hierarchical_interval([[values + by for values in block] for block in blocks], rng())
    assert np.allclose(np.add(here, by), there) and (here[0] < here[1]).all()


def test_scripted_models_are_told_apart_as_often_as_planned_and_equals_are_not() -> None:
    equal = [effect for arms in simulated(World(operators=8, arms=1), 30, 0.1, rng()) for effect in arms]
    assert sum(effect.verdict is not Verdict.OPEN for effect in equal) <= 5  # of 30 at 5 %: more once in 3,000 times
    assert sum(effect.low <= 0 <= effect.high for effect in equal) >= 24
    better = [
        effect for arms in simulated(World(operators=8, arms=1, advantage=0.8), 10, 0.1, rng()) for effect in arms
    ]
    assert all(effect.verdict is Verdict.FASTER for effect in better)


def test_a_plan_asks_for_fewer_operators_with_more_seeds_and_for_more_with_more_arms() -> None:
    assert least_operators(1) == 6 and least_operators(14) == 10
    assert detectable(0.1, 9, arms=14) == math.inf and detectable(0.1, 10, arms=14) < math.inf
    assert detectable(0.1, 12, arms=1) > detectable(0.1, 13, arms=1) > detectable(0.1, 40, arms=1)
    found = list(sizes(math.log(1.1), Spread(0.1, 0.2), tasks=1, arms=2))
    assert [one.seeds for one in found] == sorted({one.seeds for one in found})
    assert all(a.operators > b.operators for a, b in pairwise(found))
    assert all(one.detectable <= math.log(1.1) for one in found)


def test_the_spread_of_a_comparison_is_that_of_the_models_that_made_it() -> None:
    noise = rng()
    suits = {(arm, n): 0.2 * noise.standard_normal() for arm in "ab" for n in range(300)}
    found = [
        outcome(arm, n, seed, suits[arm, n] + 0.3 * noise.standard_normal()) for arm, n in suits for seed in (1, 2)
    ]
    known = spread(found, "a")
    assert known and known.seeds == pytest.approx(0.3, rel=0.1)
    assert known.operators == pytest.approx(0.2 * math.sqrt(2), rel=0.15)
    assert spread(found[::2], "a") is None  # one seed does not tell


def test_curves_are_steps_that_start_as_naive_and_last_beyond_their_end() -> None:
    def result(operator: int, *steps: tuple[int, float]) -> SimpleNamespace:
        none = {"trials": 0, "calls": 0, "tokens": 0, "cost_usd": 0.0}
        points = tuple(
            SimpleNamespace(evaluations=n, evaluator_s=n / 2, elapsed_s=n, best_log_speedup=y, **none) for n, y in steps
        )
        return SimpleNamespace(arm="a", operator=f"op{operator}", task=f"op{operator}/fp32/cpu", seed=1, curve=points)

    found = curves([result(0, (16, 1.0), (64, 3.0)), result(1, (32, 1.0)), result(2)], rng())
    assert [curve.budget for curve in found] == ["evaluations", "evaluator_s", "elapsed_s"]
    by_evaluations = dict(zip(found[0].used, found[0].log_speedup, strict=True))
    assert [by_evaluations[x] for x in (0, 15, 16, 31, 32, 64)] == pytest.approx([0, 0, 1 / 3, 1 / 3, 2 / 3, 4 / 3])
    assert found[0].cells == 3 and np.isinf(found[0].low).all()


def test_the_reference_must_have_cells() -> None:
    with pytest.raises(ValueError, match=REFERENCE):
        effects([outcome("a", 0)], REFERENCE, 0.1, rng())


CONFIGS = Path(__file__).parents[2] / "runs" / "configs"
ARMS = """
operators = ["softmax"]
budget = { evaluations = 2 }
reference = "tune_only"
difference = 0.25
[arms.random]
[arms.tune_only]
"""


def test_a_plan_says_what_a_comparison_cannot_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "few.toml"
    path.write_text(ARMS)
    monkeypatch.setattr("sys.argv", ["evo", "compare", str(path), "--runs", str(tmp_path), "--plan"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().out
    assert not ended.value.code and "1 arms beside tune_only, 1 operators" in said
    assert "nothing can be concluded with 1 operators" in said and "needs 6 for 1 arm" in said
    made = read_comparison(path, settings=['operators=["softmax", "gelu"]'])
    found = sizing(made, made.cells())
    assert found.as_row()["outlooks"][0]["detectable"] is None
    for outlook in found.outlooks:
        assert all(each.detectable <= math.log(1.25) and each.operators >= 6 for each in outlook.sizes)
    with pytest.raises(UserError, match="reference: astra is no arm"):
        read_comparison(path, settings=["reference=astra"])
    with pytest.raises(UserError, match="primary: tune_only is no arm beside tune_only; there are random"):
        read_comparison(path, settings=['primary=["tune_only"]'])


PRESETS = sorted(path for path in CONFIGS.glob("*.toml") if "[arms" in path.read_text(encoding="utf-8"))
DESCRIBE = ("astra3", "smoke")
"""Those with too few operators for any verdict: by what they are about, or to take minutes."""


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_can_conclude_what_it_registers_or_says_that_it_describes(path: Path) -> None:
    made = read_comparison(path)
    cells = made.cells()
    for cell in {cell.arm: cell for cell in cells}.values():  # its strategy knows the arm's settings
        cell.config.make_strategy(load(cell.operator), Task(cell.operator, cell.dtype, cell.target))
    for operator in made.operators:
        for target in made.targets:
            assert load(operator).workload_set(made.workload_set or DEFAULT_SETS[target])
            assert set(made.dtypes) <= set(load(operator).dtypes[target])
    operators = len({cell.operator for cell in cells})
    assert made.name == path.stem and bool(made.tested) == (path.stem not in DESCRIBE)
    why = nothing_concluded(operators, made.tested)
    assert not why if made.tested else "needs 6 for 1 arm" in why and operators < 6


def test_a_comparison_that_only_describes_says_so_and_what_more_operators_would_show() -> None:
    made = read_comparison(CONFIGS / "astra3.toml")
    said = "\n".join(sizing(made, made.cells()).lines())
    assert "3 operators" in said and "it describes and concludes nothing: no arm is registered for a verdict" in said
    assert said.count("nothing; of 6 such operators, from ") == 3


def test_presets_are_of_the_sizes_that_their_names_promise() -> None:
    of = {path.stem: read_comparison(path) for path in PRESETS}
    assert set(of) == {"smoke", "pilot", "small", "msk", "astra3", "cutegen", "ablations"}
    assert len(of["small"].operators) == 8 and len(of["msk"].operators) * len(of["msk"].dtypes) == 100
    published = {name for name in folders() if any(w.set == "cutegen" for w in load(name).workloads)}
    assert set(of["cutegen"].operators) == published and len(published) == 25
    mskernelbench = {
        name for name in folders() if any("MSKernelBench" in w.source for w in load(name).workload_set("published"))
    }
    assert set(of["msk"].operators) == mskernelbench


@pytest.mark.parametrize("path", [path for path in PRESETS if path.stem not in ("smoke", "ablations")])
def test_loops_are_compared_with_the_search_by_models_alone_and_with_pure_samples(path: Path) -> None:
    made = read_comparison(path)
    reference, samples = made.arms[made.reference_arm], made.arms["best_of_n"]
    assert reference.strategy == "islands" and reference.tuning == samples.tuning == "none"
    assert set(reference.settings["without"]) == {"transform", "tune", "recombine"}
    assert samples.settings.get("drafts", "none") == "none" == made.arms["refine"].settings.get("drafts", "none")
    assert all(made.arms[name].tuning == "none" for name in made.tested)


def test_the_pilot_costs_less_than_fifty_dollars_and_sees_what_it_registers() -> None:
    made = read_comparison(CONFIGS / "pilot.toml")
    found = plan(made, check(made))
    assert found.most_usd is not None and found.most_usd < 50
    usual = sizing(made, made.cells()).outlooks[1]  # winners that differ by 1.3
    assert usual.detectable <= math.log1p(made.difference)
