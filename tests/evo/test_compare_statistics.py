"""Conclusions of a comparison on its arms, where the truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
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
    ArmVerdict,
    Effect,
    Outcome,
    Spread,
    blocked,
    detectable,
    effects,
    least_families,
    mean_interval,
    median_interval,
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
    return Outcome(
        arm, f"op{operator}", f"op{operator}/{dtype}/cpu", seed, log_speedup, 0.01, log_speedup, has_winner=True
    )


def failed(arm: str, operator: int, seed: int = 1) -> Outcome:
    return Outcome(arm, f"op{operator}", f"op{operator}/fp32/cpu", seed)


def beside(*differences: float, families: Mapping[str, str] = {}) -> Effect:
    """An arm that differs by so much from the reference, operator by operator; the registered difference is 10 %."""
    found = [outcome(arm, n, 1, 1.0 + by * (arm == "b")) for n, by in enumerate(differences) for arm in "ab"]
    (effect,) = effects(found, "a", 0.1, families)
    return effect


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_an_arm_that_is_better_everywhere_is_called_faster_and_one_that_is_worse_slower() -> None:
    found = [
        outcome(arm, operator, seed, level + 0.1 * operator + 0.001 * seed * operator * level)
        for operator in range(10)
        for seed in (1, 2)
        for arm, level in (("a", 0.3), ("b", 0.8), ("c", -0.1))
    ]
    better, worse = effects(found, "a", 0.1, {})
    assert (better.arm, better.verdict, worse.arm, worse.verdict) == ("b", ArmVerdict.FASTER, "c", ArmVerdict.SLOWER)
    assert better.low < better.log_ratio < better.high and better.log_ratio == pytest.approx(0.5, abs=0.01)
    assert better.p == pytest.approx(2 * 2 / 2**10)
    assert better.judging_se == pytest.approx(0.01 * math.sqrt(2 / 20))


def test_verdicts_are_given_of_registered_arms_alone_and_corrected_over_them_with_cells_or_without() -> None:
    found = [outcome(arm, n, 1, level + 0.1 * n) for n in range(7) for arm, level in (("a", 0), ("b", 1), ("c", 2))]
    c, b = effects(found, "a", 0.1, {}, ["b"])
    assert (c.verdict, b.verdict) == (ArmVerdict.DESCRIBED, ArmVerdict.FASTER) and math.isnan(c.p)
    assert b.p == pytest.approx(2 / 2**7)
    (_, late) = effects(found, "a", 0.1, {}, ["b", "d", "e"])  # whose cells there are none of
    assert late.p == pytest.approx(3 * b.p) and late.verdict is ArmVerdict.FASTER
    (_, many) = effects(found, "a", 0.1, {}, ["b", "d", "e", "f"])
    assert many.verdict is ArmVerdict.OPEN and many.detectable == many.high == math.inf
    assert {effect.verdict for effect in effects(found, "a", 0.1, {}, [])} == {ArmVerdict.DESCRIBED}


def test_with_too_few_operators_nothing_is_concluded_and_the_comparison_says_so() -> None:
    found = [outcome(arm, operator, 1, 2.0 * (arm == "b")) for operator in range(4) for arm in "ab"]
    (effect,) = effects(found, "a", 0.1, {})
    assert effect.verdict is ArmVerdict.OPEN and effect.detectable == math.inf and effect.low == -math.inf


def test_equal_is_said_only_where_the_interval_lies_within_the_registered_difference() -> None:
    noise = np.random.default_rng(3).standard_normal(12)
    for scale, verdict in ((0.02, ArmVerdict.EQUAL), (0.3, ArmVerdict.OPEN)):
        effect = beside(*(scale * noise))
        assert effect.verdict is verdict
        assert (max(-effect.low, effect.high) < math.log1p(0.1)) == (verdict is ArmVerdict.EQUAL)


def test_failures_of_both_arms_are_no_agreement() -> None:
    nothing = [failed(arm, n) for n in range(8) for arm in "ab"]
    (effect,) = effects(nothing, "a", 0.1, {})
    assert effect.verdict is ArmVerdict.OPEN and (effect.found, effect.pairs) == (0, 8)
    in_one = [outcome(one.arm, 0, 1, 1.0) if one.operator == "op0" else one for one in nothing]
    (effect,) = effects(in_one, "a", 0.1, {})
    assert effect.verdict is ArmVerdict.OPEN and effect.found == 1
    wide = [outcome(one.arm, n, 1, 1 + 0.3 * (one.arm == "b") * (-1) ** n) if n < 7 else one
            for one in nothing for n in [int(one.operator[2:])]]  # fmt: skip
    (effect,) = effects(wide, "a", 0.1, {})
    assert effect.verdict is ArmVerdict.OPEN  # seven that differ by a third either way, and one that found nothing
    alike = [outcome(one.arm, n, 1, 1 + 0.01 * (one.arm == "b") * (-1) ** n) if n < 7 else one
             for one in nothing for n in [int(one.operator[2:])]]  # fmt: skip
    (effect,) = effects(alike, "a", 0.1, {})
    assert effect.verdict is ArmVerdict.EQUAL and effect.found == 7


@given(st.lists(st.floats(-2, 2), min_size=6, max_size=11), st.integers(0, 3))
def test_a_verdict_its_p_value_and_its_interval_never_contradict_each_other(values: list[float], kin: int) -> None:
    families = {f"op{n}": f"family{n}" for n in range(kin)} | {f"op{n}": "alike" for n in range(kin, 3)}
    effect = beside(*values, families=families)
    apart = effect.low > 0 or effect.high < 0
    assert apart == (effect.p <= 0.05)
    assert apart or effect.verdict in (ArmVerdict.EQUAL, ArmVerdict.OPEN)
    assert not apart or effect.verdict in (ArmVerdict.FASTER, ArmVerdict.SLOWER) or effect.is_skewed
    assert effect.low <= effect.log_ratio + 1e-9 and effect.log_ratio <= effect.high + 1e-9


def test_the_interval_is_of_the_shifts_that_the_test_by_all_patterns_of_signs_does_not_reject() -> None:
    values, kin = np.random.default_rng(5).standard_t(2.2, 10), np.array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7])
    families = {f"op{n}": f"family{family}" for n, family in enumerate(kin)}
    blocks = blocked({(f"op{n}", f"op{n}", 1): np.array([value]) for n, value in enumerate(values)})

    def p_value(shift: float) -> float:
        sums = np.bincount(kin, values - shift)
        every = [abs(sum(np.array(signs) * sums)) for signs in product((1, -1), repeat=len(sums))]
        return float(np.mean(np.array(every) >= abs(sums.sum()) - 1e-9))

    (low,), (high,), (p,) = mean_interval(blocks, families)
    assert p == pytest.approx(p_value(0.0))
    for end, outwards in ((low, -1), (high, 1)):
        assert p_value(end) > 0.05 >= p_value(end + outwards * 1e-6)
    assert median_interval(blocks, {}) == tuple(np.sort(values).round(12)[[1, -2]])  # as of a test of signs of ten


def test_related_operators_count_as_one_for_chance() -> None:
    differences = [*(0.5 + 0.01 * n for n in range(6)), 0.1, -0.2, 0.15, -0.1]
    apart = beside(*differences)
    alike = beside(*differences, families={f"op{n}": "products" for n in range(6)})
    assert apart.verdict is ArmVerdict.FASTER and alike.verdict is ArmVerdict.OPEN
    assert (apart.families, alike.families) == (10, 5) and alike.high == math.inf
    assert alike.log_ratio == apart.log_ratio and alike.error > apart.error


def test_where_few_operators_weigh_much_the_median_is_told_and_no_verdict_goes_against_it() -> None:
    rare = beside(*[-0.1] * 9, 0.9)
    assert rare.median == pytest.approx(-0.1) and rare.is_skewed and rare.verdict is ArmVerdict.OPEN
    usual = beside(*np.linspace(0.1, 0.3, 10))
    assert usual.verdict is ArmVerdict.FASTER and not usual.is_skewed


def test_a_verdict_is_of_most_operators_only_where_their_median_says_so_too() -> None:
    differences = [0.30, 0.35, 0.40, 0.30, 0.32, 0.38, 0.36]
    all_of_them, all_but_one = beside(*differences, 0.31), beside(*differences, -0.02)
    assert all_of_them.verdict is all_but_one.verdict is ArmVerdict.FASTER
    assert all_of_them.scope == "at most operators" and all_but_one.scope.startswith("on average, if ")
    assert beside(*(-each for each in differences), -0.31).scope == "at most operators"


def test_operators_have_one_vote_each_however_many_tasks_and_seeds_they_have() -> None:
    many = [outcome("b", 0, seed, 1.0, dtype=dtype) for seed in range(9) for dtype in ("fp32", "bf16")]
    once = [outcome("b", operator, 0, 0.0) for operator in range(1, 4)]
    theirs = [outcome("a", int(one.operator[2:]), one.seed, dtype=one.task.split("/")[1]) for one in many + once]
    (effect,) = effects([*many, *once, *theirs, outcome("a", 9)], "a", 0.1, {})
    assert effect.log_ratio == pytest.approx(1 / 4)
    assert (effect.operators, effect.pairs, effect.unpaired) == (4, 21, 1)


def test_a_failure_counts_as_naive_in_the_endpoint_and_as_nothing_in_shares_of_success() -> None:
    with pytest.raises(ValueError):
        Outcome("a", "op0", "op0/fp32/cpu", 1, log_speedup=0.3)
    fast = Outcome("a", "op0", "op0/fp32/cpu", 1, math.log(4.5), 0.01, 0.0, True, times_us=((10.0, 2.0), (90.0, 90.0)))
    (one,) = summaries([fast, Outcome("a", "op1", "op1/fp32/cpu", 1)], {})
    assert one.with_winner == 0.5 and one.above == {1: 0.5, 2: 0.5, 4: 0.5}
    assert one.geometric_mean == pytest.approx(math.sqrt(4.5)) and one.median == pytest.approx(math.sqrt(4.5))
    assert fast.score == pytest.approx((10 * 5 + 90 * 1) / 100)  # large sizes weigh more than a geometric mean has them
    assert one.fast == {1: 0.5, 2: 0.0, 4: 0.0, 8: 0.0} and one.score == pytest.approx(0.7)


@examples(10)
@given(st.integers(6, 16), st.integers(1, 3), st.floats(-3, 3))
def test_an_interval_moves_with_its_values(operators: int, seeds: int, by: float) -> None:
    blocks = {f"op{n}": [np.random.default_rng(n).standard_normal((seeds, 2))] for n in range(operators)}
    here = mean_interval(blocks, {})[:2]
    there = mean_interval({name: [values + by for values in block] for name, block in blocks.items()}, {})[:2]
    assert np.allclose(np.add(here, by), there) and (here[0] < here[1]).all()


def test_scripted_models_are_told_apart_as_often_as_planned_and_equals_are_not() -> None:
    equal = [effect for arms in simulated(World(operators=8, arms=1), 30, 0.1, rng()) for effect in arms]
    assert sum(effect.verdict is not ArmVerdict.OPEN for effect in equal) <= 5  # of 30 at 5 %: more once in 3,000 times
    assert sum(effect.low <= 0 <= effect.high for effect in equal) >= 24
    better = [
        effect for arms in simulated(World(operators=8, arms=1, advantage=0.8), 10, 0.1, rng()) for effect in arms
    ]
    assert all(effect.verdict is ArmVerdict.FASTER for effect in better)


def test_a_plan_asks_for_fewer_operators_with_more_seeds_and_for_more_with_more_arms() -> None:
    assert least_families(1) == 6 and least_families(14) == 10
    assert detectable(0.1, 9, arms=14) == math.inf and detectable(0.1, 10, arms=14) < math.inf
    seen = [detectable(0.1 / math.sqrt(families), families, arms=1) for families in (12, 13, 40)]
    assert seen == sorted(seen, reverse=True)
    assert Spread(0.1, 0.2, 0.3).error(6, 12, 1, 2) > Spread(0.1, 0.2, 0.3).error(12, 12, 1, 2)
    found = list(sizes(math.log(1.1), Spread(0.1, 0.2), families=9, tasks=1, arms=2))
    assert [one.seeds for one in found] == sorted({one.seeds for one in found})
    assert all(a.operators > b.operators for a, b in pairwise(found))
    assert all(one.detectable <= math.log(1.1) for one in found)


def test_the_spread_of_a_comparison_is_that_of_the_models_that_made_it() -> None:
    noise = rng()
    suits = {(arm, n): 0.2 * noise.standard_normal() for arm in "ab" for n in range(300)}
    found = [
        outcome(arm, n, seed, suits[arm, n] + 0.3 * noise.standard_normal()) for arm, n in suits for seed in (1, 2)
    ]
    known = spread(found, "a", {})
    assert known and known.seeds == pytest.approx(0.3, rel=0.1)
    assert known.operators == pytest.approx(0.2 * math.sqrt(2), rel=0.15)
    assert spread(found[::2], "a", {}) is None  # one seed does not tell
    shared = {n: 0.4 * noise.standard_normal() for n in range(60)}
    kin = [replace(one, log_speedup=one.log_speedup + (one.arm == "b") * shared[int(one.operator[2:]) % 60])
           for one in found]  # fmt: skip
    both = spread(kin, "a", {f"op{n}": f"family{n % 60}" for n in range(300)})
    assert both and both.families == pytest.approx(0.4, rel=0.25) and both.seeds == pytest.approx(0.3, rel=0.1)
    assert both.operators == pytest.approx(0.2 * math.sqrt(2), rel=0.15)


def test_curves_are_steps_that_start_as_naive_and_last_beyond_their_end() -> None:
    def result(operator: int, *steps: tuple[int, float]) -> SimpleNamespace:
        none = {"trials": 0, "calls": 0, "tokens": 0, "cost_usd": 0.0}
        points = tuple(
            SimpleNamespace(evaluations=n, evaluator_s=n / 2, elapsed_s=n, best_log_speedup=y, **none) for n, y in steps
        )
        return SimpleNamespace(arm="a", operator=f"op{operator}", task=f"op{operator}/fp32/cpu", seed=1, curve=points)

    found = curves([result(0, (16, 1.0), (64, 3.0)), result(1, (32, 1.0)), result(2)], {})
    assert [curve.budget for curve in found] == ["evaluations", "evaluator_s", "elapsed_s"]
    by_evaluations = dict(zip(found[0].used, found[0].log_speedup, strict=True))
    assert [by_evaluations[x] for x in (0, 15, 16, 31, 32, 64)] == pytest.approx([0, 0, 1 / 3, 1 / 3, 2 / 3, 4 / 3])
    assert found[0].cells == 3 and np.isinf(found[0].low).all()


def test_the_reference_must_have_cells() -> None:
    with pytest.raises(ValueError, match=REFERENCE):
        effects([outcome("a", 0)], REFERENCE, 0.1, {})


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
    assert not ended.value.code and "1 arm beside tune_only, 1 operator (1 task each)" in said
    assert "nothing can be concluded at operators of 1 family" in said and "needs 6 for 1 arm" in said
    made = read_comparison(path, settings=['operators=["softmax", "gelu"]'])
    found = sizing(made, made.cells())
    assert math.isinf(found.outlooks[0].detectable)
    for outlook in found.outlooks:
        assert all(each.detectable <= math.log(1.25) and each.operators >= 6 for each in outlook.sizes)
    with pytest.raises(UserError, match="reference: astra is no arm"):
        read_comparison(path, settings=["reference=astra"])
    with pytest.raises(UserError, match="primary: tune_only is no arm beside tune_only; there are random"):
        read_comparison(path, settings=['primary=["tune_only"]'])


PRESETS = sorted(
    path
    for path in CONFIGS.glob("*.toml")
    if "[arms" in (text := path.read_text(encoding="utf-8")) and "git clone" not in text
)
DESCRIBE = ("astra3", "cutegen", "smoke")
"""Those at operators of too few families for any verdict: by what they are about, or to take minutes."""


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
    families = len({*made.families().values()})
    assert made.name == path.stem and bool(made.tested) == (path.stem not in DESCRIBE)
    why = nothing_concluded(families, made.tested)
    assert not why if made.tested else "needs 6 for 1 arm" in why and families < 6


def test_a_comparison_that_only_describes_says_so_and_what_more_operators_would_show() -> None:
    made = read_comparison(CONFIGS / "astra3.toml")
    said = "\n".join(sizing(made, made.cells()).lines())
    assert "3 operators" in said and "it describes and concludes nothing: no arm is registered for a verdict" in said
    assert said.count("nothing; of operators of 6 families, from ") == 3
    assert "3 operators are of 1 family (3 llm)" in said


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
    assert set(reference.settings["without"]) == {"transform", "tune", "recombine", "route"}
    assert samples.settings.get("drafts", "none") == "none" == made.arms["refine"].settings.get("drafts", "none")
    assert all(made.arms[name].tuning == "none" for name in made.tested)


def test_the_pilot_costs_less_than_fifty_dollars() -> None:
    made = read_comparison(CONFIGS / "pilot.toml")
    found = plan(made, check(made))
    assert found.most_usd is not None and found.most_usd < 50


@pytest.mark.parametrize("path", [path for path in PRESETS if path.stem not in DESCRIBE], ids=lambda path: path.stem)
def test_a_preset_sees_what_it_registers_where_winners_differ_by_a_third(path: Path) -> None:
    made = read_comparison(path)
    size = sizing(made, made.cells())
    assert size.outlooks[1].detectable <= math.log1p(made.difference)
    blunt = sizing(made.model_copy(update={"difference": 0.01}), made.cells())
    warning = "the registered difference, 1.01x, is smaller than what would be seen"
    assert warning in blunt.seen() and not any("smaller" in line for line in size.seen())
