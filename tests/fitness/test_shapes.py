"""Shapes that no file lists keep what all listed ones have in common, and show ways that these leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fitness.judging.shapes import GROWTH, LEAST_SIZE, UnlistedShapes
from operators.catalog import load
from operators.definition.domain import conditions
from operators.definition.spec import Operator, Workload
from operators.expression import parse

DRAWS = 40


def drawn(operator: Operator, way: Callable[[UnlistedShapes], Callable[..., Workload | None]]) -> list[Workload]:
    """Shapes that are drawn for all workloads of an operator."""
    rng, shapes = np.random.default_rng(0), UnlistedShapes(operator)
    draw = way(shapes)
    found = [draw(workload, rng) for workload in operator.workloads for _ in range(DRAWS)]
    return [shape for shape in found if shape]


@pytest.mark.parametrize("name", ["matrix_mul", "top_k", "spmv_csr", "conv_2d", "fft", "max_pooling_2d"])
def test_shapes_keep_what_listed_ones_have_in_common(name: str) -> None:
    operator = load(name)
    found = drawn(operator, lambda shapes: partial(shapes.beside, odd=True)) + drawn(
        operator, lambda shapes: shapes.between
    )
    assert found
    known = {*operator.dims, *operator.derived}
    for condition in conditions(operator):
        expression = parse(condition, known)
        assert all(expression.evaluate(operator.environment(shape.dims)) for shape in found), condition


@pytest.mark.parametrize("name", ["matrix_mul", "softmax", "spmm_csr"])
def test_a_shape_beside_a_workload_is_little_larger_and_takes_its_way(name: str) -> None:
    operator = load(name)
    rng, shapes = np.random.default_rng(0), UnlistedShapes(operator)
    for workload in operator.workloads:
        odd, even = (
            [shape for _ in range(DRAWS) if (shape := shapes.beside(workload, rng, odd=odd))] for odd in (True, False)
        )
        assert len(odd) == len(even) == DRAWS
        found = odd + even
        for shape in found:
            assert shape.dims != workload.dims
            for dim, size in workload.dims.items():
                assert size <= shape.dims[dim] <= size + size // GROWTH
                assert size >= LEAST_SIZE or shape.dims[dim] == size
        for dim, size in workload.dims.items():
            if size >= 8 * GROWTH:
                assert all(shape.dims[dim] % 2 for shape in odd if shape.dims[dim] != size)
                assert any(shape.dims[dim] % 8 == 0 for shape in even if shape.dims[dim] != size)


def test_shapes_between_lie_on_the_way_from_hidden_ones() -> None:
    operator = load("vector_add")
    sizes = {shape.dims["n"] for shape in drawn(operator, lambda shapes: shapes.between)}
    listed = {shape.dims["n"] for shape in (*operator.workloads, *operator.hidden)}
    assert len(sizes - listed) > DRAWS and min(sizes) < 100 and max(sizes) > 10**6
    largest = max(shape.dims["n"] for shape in operator.hidden)
    assert len({size for size in sizes if largest < size < 10**6}) > DRAWS


def test_an_operator_of_one_size_has_no_other() -> None:
    operator = load("vector_add")
    one = Workload("cpu", {"n": 4096})
    fixed = UnlistedShapes(replace(operator, workloads=(one,), hidden=(one,)))
    rng = np.random.default_rng(0)
    assert fixed.beside(one, rng, odd=True) is None
    between = fixed.between(one, rng)
    assert between is not None and between.dims == one.dims
