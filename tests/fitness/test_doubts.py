"""Advice to the author of an operator whose bound or inputs ask more than a right kernel can give."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fitness.oracle.cases import Case
from fitness.oracle.inputs import FAMILIES
from fitness.oracle.verify import Oracle, worst
from operators.catalog import functions, load
from operators.definition.spec import Operator, Workload
from operators.errors import OperatorError
from tests.choosing import some_slow
from tests.fitness.test_verify import filled
from tests.operators.running import Runner

TRIDIAGONAL = Path(__file__).parents[1] / "data" / "tridiagonal"
SHAPE = Workload("test", {"systems": 17, "n": 100})


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("tridiagonal"))


def changed(folder: Path, **replaced: tuple[str, str]) -> Operator:
    """The solver with other text in its files."""
    made = folder / "tridiagonal"
    shutil.copytree(TRIDIAGONAL, made)
    for file, (old, new) in replaced.items():
        path = made / {"toml": "operator.toml", "reference": "reference.py"}[file]
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
    return load(str(made))


def cases(operator: Operator, family: str, count: int = 12, shape: Workload = SHAPE) -> tuple[Oracle, list[Case]]:
    oracle = Oracle(operator, functions(operator.folder), "fp32")
    return oracle, [oracle.case(shape, family, np.random.default_rng(s), at_end=False) for s in range(count)]


def refusals(oracle: Oracle, drawn: list[Case], runner: Runner) -> list[str]:
    """The words on the naive kernel where it is refused."""
    said = []
    for case in drawn:
        work = filled(oracle, case, runner.run(oracle.operator, case.inputs, "fp32"))
        (error,) = worst(list(oracle.errors(case, work)))
        if error.wrong:
            said.append(oracle.describe(error, case, work))
    return said


@pytest.mark.parametrize("family", some_slow(FAMILIES, 2))
def test_a_right_solver_passes_with_its_magnitude_and_its_ranges(family: str, runner: Runner) -> None:
    oracle, drawn = cases(load(str(TRIDIAGONAL)), family)
    assert refusals(oracle, drawn, runner) == []


def test_a_divisor_of_three_to_four_stays_there_unasked() -> None:
    _, drawn = cases(load(str(TRIDIAGONAL)), "specials")
    assert all(3 <= case.inputs.tensors["b"].min() <= case.inputs.tensors["b"].max() <= 4 for case in drawn)


@pytest.mark.parametrize(
    ("family", "said"),
    some_slow(
        [
            ("nominal", ["no magnitude(...)", "S of the bound is |y|"]),
            ("specials", ["no magnitude(...)", "hold zero in `a`, `c`, `d`: `specials = []`"]),
            ("mixture", ["no magnitude(...)", "up to 256 times", "in `a`, `c`, `d`: `bounded = true` there"]),
        ],
        1,
    ),
)
def test_a_bound_that_the_reference_itself_fails_is_said_to_be_the_operators(
    family: str, said: list[str], runner: Runner, tmp_path: Path
) -> None:
    operator = changed(tmp_path, toml=("bounded = true\n", ""), reference=("def magnitude", "def unused"))
    messages = refusals(*cases(operator, family, 40), runner)
    assert messages
    doubting = [text for text in messages if "is out of bounds here as well" in text]
    assert doubting
    assert all("The reference in fp32" in text and part in text for text in doubting for part in said)
    assert not any("\n" in text for text in messages)


def test_a_wrong_kernel_is_not_excused(runner: Runner) -> None:
    oracle, (case, *_) = cases(load(str(TRIDIAGONAL)), "nominal")
    work = filled(oracle, case, {"x": 0 * case.expected["x"]})
    (error,) = oracle.errors(case, work)
    assert "as well" not in oracle.describe(error, case, work)


def test_a_reference_that_divides_by_a_special_zero_is_told_whose_it_is(tmp_path: Path) -> None:
    operator = changed(tmp_path, toml=('"uniform(3, 4)"', '"uniform(3, 4)"\nspecials = ["zero"]'))
    with pytest.raises(OperatorError, match=r"not finite, on systems=17,n=100 \(specials inputs\); .*zero in `b`"):
        for seed in range(40):
            oracle = Oracle(operator, functions(operator.folder), "fp32")
            oracle.case(
                Workload("test", {"systems": 17, "n": 100}), "specials", np.random.default_rng(seed), at_end=False
            )
