"""The sizes that kernels of an operator are judged for: what all shapes that its file lists have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator

from operators.definition.spec import Operator

LARGEST_PARAMETER = 32
"""A dim that no listed shape has above it is as often a parameter, such as a power, as a size, which may be 1."""
MOST_ELEMENTS = 2**31 - 1
"""Most elements of a tensor whose places an `int` holds, as kernels have it: more are judged where a shape has more."""


def conditions(operator: Operator) -> tuple[str, ...]:
    """Conditions that every listed shape fulfils, as expressions over dims.

    Nothing is known of a kernel at other shapes: where a dim has one size alone, it may be written into the code. Sizes
    down to 1 are drawn for checks where no listed shape has them.
    """
    return tuple(dict.fromkeys((*_of_dims(operator), *_of_tensors(operator))))


def listed_sizes(operator: Operator) -> dict[str, set[int]]:
    """Return the sizes that each dim has among the shapes that the operator's file lists."""
    shapes = (*operator.workloads, *operator.hidden)
    return {dim: {shape.dims[dim] for shape in shapes} for dim in operator.dims}


def _of_dims(operator: Operator) -> Iterator[str]:
    listed = [shape.dims for shape in (*operator.workloads, *operator.hidden)]
    sizes = listed_sizes(operator)
    for dim, found in sizes.items():
        if len(found) == 1:
            yield f"{dim} == {min(found)}"
            continue
        yield f"{dim} >= {min(found) if max(found) <= LARGEST_PARAMETER else min(*found, 1)}"
        if is_doubled(found):
            yield f"next_pow2({dim}) == {dim}"
        elif (step := math.gcd(*found)) > 1:
            yield f"{dim} % {step} == 0"
    varied = [dim for dim, found in sizes.items() if len(found) > 1]
    for low in varied:
        for high in varied:
            never_above = low != high and all(dims[low] <= dims[high] for dims in listed)
            if never_above and any(1 < dims[low] == dims[high] for dims in listed):  # else it may be an accident
                yield f"{low} <= {high}"


def _of_tensors(operator: Operator) -> Iterator[str]:
    shapes = (*operator.workloads, *operator.hidden)
    for tensor in operator.tensors:
        if not any(axis.names & operator.data_dims.keys() for axis in tensor.shape):
            judged = max(math.prod(tensor.sizes(operator.environment(shape.dims))) for shape in shapes)
            if tensor.shape and judged <= MOST_ELEMENTS:
                axes = [axis.text if axis.text.isidentifier() else f"({axis.text})" for axis in tensor.shape]
                yield f"{' * '.join(axes)} <= {MOST_ELEMENTS}"


def is_doubled(sizes: set[int]) -> bool:
    """Whether all of these are powers of two."""
    return all(size > 0 and size & (size - 1) == 0 for size in sizes)
