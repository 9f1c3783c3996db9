"""`evo new`: what it writes is whole and right at once, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evo.cli.commands import app
from fitness.oracle.bounds import judge
from fitness.oracle.verify import Oracle
from operators.beginning import FORMS, TEMPLATES, begin, templates
from operators.catalog import functions, load
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.operators.running import FACTS, Runner

EXAMPLES = ("segment_sum", "tridiagonal")
"""Those that operators/README.md shows: a reduction whose sizes the data tells, and an ill-conditioned solver."""


def begun(folder: Path, like: str) -> Operator:
    begin("mine", like, folder / "mine")
    return load(str(folder / "mine"))


def test_there_is_a_template_or_an_operator_for_every_form() -> None:
    forms = {path.stem for path in TEMPLATES.parent.glob("*.toml")}
    assert forms <= set(templates()) | set(FORMS)
    assert set(EXAMPLES) < set(templates())


@pytest.mark.parametrize("like", some_slow([*templates(), *FORMS, "gelu"], 4))
def test_what_is_begun_is_whole_under_its_name(like: str, tmp_path: Path) -> None:
    operator = begun(tmp_path, like)
    assert operator.name == "mine"
    for target, dtypes in operator.dtypes.items():
        source = operator.naive(target)
        assert 'kernel = "mine' in source
        plan = parse_plan(source, operator, target)
        for workload in (*operator.workloads, *operator.hidden):
            dims = {**workload.dims, **dict.fromkeys(operator.data_dims, 1)}
            assert plan.resolve(operator, dtype=dtypes[0], dims=dims, values={}, facts=FACTS).steps
    offers, oracle = functions(operator.folder), Oracle(operator, functions(operator.folder), "fp32")
    case = oracle.case(operator.hidden[3], "nominal", np.random.default_rng(0), at_end=False)
    assert all(np.isfinite(y).all() for y in case.expected.values())
    if offers.offers("library"):
        values = {**case.dims, **case.inputs.tensors, **{s.name: s.value for s in operator.scalars}}
        found = offers.library(values | {"prepared": offers.prepare(values)})
        y = found.double().reshape(-1).numpy()
        assert judge(y, case.expected[operator.outputs[0].name], case.allowed[operator.outputs[0].name]).max_ratio <= 1


def test_a_name_may_be_written_in_any_way(tmp_path: Path) -> None:
    path = begun(tmp_path, "elementwise").folder / "operator.toml"
    path.write_text(path.read_text(encoding="utf-8").replace('name = "mine"', "name= 'mine'", 1), encoding="utf-8")
    begin("other", str(path.parent), tmp_path / "other")
    assert load(str(tmp_path / "other")).name == "other"


@pytest.mark.parametrize(
    "like", [pytest.param(t, marks=[] if t in EXAMPLES else [pytest.mark.slow]) for t in templates()]
)
def test_its_first_kernel_is_right(like: str, tmp_path: Path) -> None:
    operator = begun(tmp_path, like)
    oracle, runner = Oracle(operator, functions(operator.folder), "fp32"), Runner(tmp_path)
    few = [w for w in operator.hidden if max(w.dims.values()) < 300]  # Python goes along a system
    for seed, workload in enumerate(few):
        family = oracle.families[seed % len(oracle.families)]
        case = oracle.case(workload, family, np.random.default_rng(seed), at_end=False)
        for name, y in runner.run(operator, case.inputs, "fp32").items():
            found = y.double().reshape(-1).numpy()
            assert judge(found, case.expected[name], case.allowed[name]).max_ratio <= 1, (workload.name, family)


@pytest.mark.slow
@pytest.mark.parametrize("like", [*templates(), *FORMS])
def test_it_passes_its_own_check(like: str, tmp_path: Path) -> None:
    begin("mine", like, tmp_path / "mine")
    done = CliRunner().invoke(app, ["check", str(tmp_path / "mine"), "--limit", "2min"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("name", "like", "said"),
    [
        ("mine", "softmux", "did you mean `softmax`"),
        ("3d", "rows", "letters, digits and _"),
        ("while", "rows", "reserved"),
        ("cols", "rows", "cols is a dim, tensor or scalar"),
        ("gelu", "rows", "there is an operator gelu already"),
    ],
)
def test_what_cannot_be_begun_is_one_line(name: str, like: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        begin(name, like, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError, match="is there already"):
        begin("mine", "rows", tmp_path / "mine")
    assert not list((tmp_path / "mine").iterdir())
