"""Conditions on sizes hold for every listed shape, and exclude what no kernel was judged at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.catalog import load
from operators.definition.domain import conditions
from operators.definition.portable import signature
from operators.definition.spec import Operator, Workload
from operators.expression import parse


def unmet(operator: Operator, **dims: int) -> list[str]:
    """The conditions that a shape does not fulfil."""
    env = operator.environment(dims)
    return [text for text in conditions(operator) if not parse(text, set(env)).evaluate(env)]


@pytest.mark.parametrize("name", ["matrix_mul", "top_k", "fft", "spmv_csr", "max_pooling_2d", "rope"])
def test_every_listed_shape_fulfils_them(name: str) -> None:
    operator = load(name)
    for shape in (*operator.workloads, *operator.hidden):
        assert not unmet(operator, **shape.dims)
    assert signature(operator)["conditions"] == list(conditions(operator))


def test_sizes_that_no_kernel_was_judged_at_are_excluded() -> None:
    assert unmet(load("top_k"), n=5, k=7) == ["k <= n"]
    assert unmet(load("softmax"), rows=3, cols=0) == ["cols >= 1"]
    assert unmet(load("fft"), n=100) == ["next_pow2(n) == n"]
    assert unmet(load("softmax"), rows=1 << 16, cols=1 << 15) == [f"rows * cols <= {2**31 - 1}"]
    assert not unmet(load("spmv_csr"), rows=1, cols=1, nnz=0)


def test_a_dim_of_one_size_has_it_and_one_of_multiples_stays_one() -> None:
    shapes = [{"rows": rows, "cols": 24} for rows in (8, 24, 40)]
    operator = replace(load("softmax"), workloads=(), hidden=tuple(Workload("hidden", dims) for dims in shapes))
    assert unmet(operator, rows=12, cols=24) == ["rows % 8 == 0"]
    assert unmet(operator, rows=8, cols=25) == ["cols == 24"]


def test_sizes_may_be_one_and_parameters_may_not() -> None:
    shapes = [{"rows": rows, "cols": cols} for rows, cols in ((3, 100), (20, 7), (5, 9))]
    operator = replace(load("softmax"), workloads=(), hidden=tuple(Workload("hidden", dims) for dims in shapes))
    assert not unmet(operator, rows=3, cols=1)
    assert unmet(operator, rows=1, cols=7) == ["rows >= 3"]
    assert unmet(load("matrix_power"), n=5, power=1) == ["power >= 2"]


def test_an_order_that_no_shape_takes_to_its_end_may_be_an_accident() -> None:
    shapes = [{"rows": 1, "cols": 1}, {"rows": 3, "cols": 50}, {"rows": 20, "cols": 21}]
    operator = replace(load("softmax"), workloads=(), hidden=tuple(Workload("hidden", dims) for dims in shapes))
    assert not unmet(operator, rows=40, cols=5)
    more = replace(operator, hidden=(*operator.hidden, Workload("hidden", {"rows": 7, "cols": 7})))
    assert unmet(more, rows=40, cols=5) == ["rows <= cols"]
