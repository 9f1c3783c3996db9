"""Forms that operators are `like`: what the operator's own file says takes the form's place."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest

from operators.definition.forms import fill_in, hidden, tensors_bytes
from operators.definition.reading import read_operator
from operators.errors import OperatorError
from operators.expression import parse

OWN = """
name = "mine"
like = "elementwise"
formula = "y[i] = x[i]"
cost = { flops = "n", min_flops = "n" }

[[workload]]
set = "cpu"
dims = { n = 7 }
"""


def test_the_bytes_of_many_tensors_of_few_shapes_fit_a_formula() -> None:
    weight, bias = {"shape": ["width", "width"]}, {"shape": ["width"], "role": "inout"}
    text = tensors_bytes([weight, bias] * 40)
    assert parse(text, ("width", "sizeof_T")).evaluate({"width": 3, "sizeof_T": 4}) == 40 * 4 * (9 + 2 * 3)


def test_the_bytes_of_a_network_are_one_number_where_its_shapes_are_fixed() -> None:
    layers = [{"shape": [str(width), "3", "7"], "dtype": "bf16"} for width in range(100)]
    text = tensors_bytes([*layers, {"shape": ["n", "1000"]}])
    assert text == "2 * (103950) + sizeof_T * (1000 * (n))"


def test_tables_are_joined_key_by_key_and_workloads_set_by_set(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_text(OWN)
    operator = read_operator(tmp_path)
    assert [w.dims["n"] for w in operator.workload_set("cpu")] == [7]
    assert len(operator.workload_set("realistic")) == 3
    assert (operator.flops.text, operator.min_bytes.text) == ("n", "2 * sizeof_T * n")
    assert [t.name for t in operator.tensors] == ["x", "y"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"elementwise"',
            '"elementwize"',
            "`like`: 'elementwize' is no form; there are batched_product, elementwise, product",
        ),
        ('"elementwise"', "3", "`like`: 3 is no form"),
        ("[[workload]]", "[workload]", "`workload`"),
        ('set = "cpu"', 'set = ["cpu"]', "`workload[0].set`"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "operator.toml").write_text(OWN.replace(old, new))
    with pytest.raises(OperatorError) as caught:
        read_operator(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


OTHER_DIMS = """
name = "mine"
like = "elementwise"
formula = "y[i][j] = x[i][j]"
dims = ["rows", "cols"]
cost = { flops = "rows * cols", min_flops = "rows", min_bytes = "rows" }
"""
WORKLOAD = '[[workload]]\nset = "cpu"\ndims = { rows = 7, cols = 8 }\n'
SHAPES = "[[hidden]]\ndims = { rows = 1, cols = [1, 3] }\n"
TENSORS = "".join(
    f'[[tensor]]\nname = "{name}"\nrole = "{role}"\nshape = ["rows", "cols"]\n{more}\n'
    for name, role, more in (("x", "in", 'distribution = "uniform(-1, 1)"'), ("y", "out", ""))
)


def test_workloads_of_a_form_with_other_dims_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_text(OTHER_DIMS + WORKLOAD + SHAPES + TENSORS)
    operator = read_operator(tmp_path)
    assert [workload.set for workload in operator.workloads] == ["cpu"]
    assert len(operator.hidden) == 2


def test_what_a_file_with_dims_of_its_own_leaves_out_is_made(tmp_path: Path) -> None:
    text = OTHER_DIMS.replace(', min_flops = "rows", min_bytes = "rows"', "")
    (tmp_path / "operator.toml").write_text(text + WORKLOAD + TENSORS)
    operator = read_operator(tmp_path)
    (workload,) = operator.workloads
    env = operator.cost_environment(workload.dims, "fp32")
    assert (operator.min_flops.evaluate(env), operator.min_bytes.evaluate(env)) == (0, 2 * 4 * 7 * 8)
    assert [shape["dims"] for shape in hidden(["rows", "cols"])] == [dict(w.dims) for w in operator.hidden]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_shapes_that_are_made_are_of_every_kind_and_small(count: int) -> None:
    dims = ["a", "b", "c", "d"][:count]
    made, ours = fill_in({"dims": dims})
    assert ours
    shapes = [tuple(sizes) for table in made["hidden"] for sizes in product(*(_listed(table["dims"][d]) for d in dims))]
    assert len(shapes) == len(set(shapes))
    assert 12 <= len(shapes) <= 30
    for n in range(count):
        assert any(shape[n] == 1 for shape in shapes)
        assert any(shape[n] > 1 and shape[n] % 2 for shape in shapes)
    for width in (4, 8, 16, 32):
        assert sum(all(size % width == 0 for size in shape) for shape in shapes) >= 6
    assert max(map(math.prod, shapes)) <= 4 << 20


def _listed(sizes: int | list[int]) -> list[int]:
    return sizes if isinstance(sizes, list) else [sizes]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OTHER_DIMS, ["`workload` is missing", "over its own dims (n), not over yours (rows, cols)", "cols = 64 }"]),
        (OTHER_DIMS + WORKLOAD, ["tensor[0] `x`: shape", "write [[tensor]] of your own in its place"]),
        (OTHER_DIMS + WORKLOAD + SHAPES, ["tensor[0] `x`: shape", "write [[tensor]] of your own in its place"]),
        (
            OTHER_DIMS.replace('"elementwise"', '"vector_sum"\nfamily = "own"') + WORKLOAD + TENSORS,
            ["tolerance.terms", "write terms of your own"],
        ),
        (OWN.replace("n = 7", "m = 7"), ["workload[0]: dims must be exactly n, not m", "dims = [n] comes from"]),
        (
            OWN.replace('"n", min_flops = "n"', '"99 * n", min_flops = "n * n"'),
            ["the workload set published comes from"],
        ),
    ],
)
def test_what_a_user_did_not_write_is_traced_to_its_form(tmp_path: Path, text: str, said: list[str]) -> None:
    (tmp_path / "operator.toml").write_text(text)
    with pytest.raises(OperatorError) as caught:
        read_operator(tmp_path)
    form = "vector_sum" if "vector_sum" in text else "elementwise"
    assert all(part in str(caught.value) for part in [*said, f"the form {form} (operators/shared/{form}.toml)"])
    assert "\n" not in str(caught.value)


def test_what_a_user_wrote_is_not(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_text(OWN.replace("n = 7", "n = -7"))
    with pytest.raises(OperatorError) as caught:
        read_operator(tmp_path)
    assert "elementwise" not in str(caught.value)
