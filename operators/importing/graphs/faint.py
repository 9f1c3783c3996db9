"""Inputs so small that small constants of a graph, such as the epsilon of a norm, decide its results.

A kernel that drops such a constant computes the same on all others. A look finds how small inputs must be, by results
with the constants twice as large; `fainter` makes drawn inputs that small. Where no small ones do, as the epsilon of a
score that sums sigmoids, all may have to be large, and of one sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from operators.importing.graphs.graph import Graph, Node, evaluate

Level = tuple[tuple[str, ...], int, bool, int]
"""Tensors, the power of two by which they are smaller, whether rows of them may be zero too, and 0; or else the sign of
all their numbers, whose sizes are larger by that power of two."""
LARGEST = 1e-2
"""Size of a small constant at most."""
DEEPEST, STEP = 56, 4
"""Powers of two that are tried: a square of the last has room in fp32."""
LARGER = (2, 3, 4, 5)
"""Powers of two that are added to the sizes of numbers of one sign."""
DECIDED = 1e-3
"""Change of results, as a share of the largest, that tells one constant from another."""
MOST_LEVELS = 4
MOST_ALONE = 8
"""Inputs that are made smaller one by one, where all together tell nothing."""
SPREAD = 3
"""Powers of two by which rows differ from their level at most."""
ZERO_SHARE = 1 / 8

Evaluated = Callable[[Graph, Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]


def constants(graph: Graph) -> set[float]:
    """The small constants among the arguments of a graph's operators."""

    def among(argument: Any) -> Iterator[float]:
        if isinstance(argument, float) and 0 < abs(argument) <= LARGEST:
            yield argument
        elif isinstance(argument, list):
            for each in argument:
                yield from among(each)

    return {found for node in graph.nodes for found in among([*node.args, *node.kwargs.values()])}


def doubled(graph: Graph, constant: float) -> Graph:
    """The graph with twice the constant."""

    def other(argument: Any) -> Any:
        if isinstance(argument, list):
            return [other(each) for each in argument]
        return 2 * argument if isinstance(argument, float) and argument == constant else argument

    def changed(node: Node) -> Node:
        kwargs = {name: other(each) for name, each in node.kwargs.items()}
        return node.model_copy(update={"args": other(node.args), "kwargs": kwargs})

    return graph.model_copy(update={"nodes": list(map(changed, graph.nodes))})


def levels(
    graph: Graph, values: Mapping[str, torch.Tensor], dims: Mapping[str, int], names: Sequence[str]
) -> list[Level]:
    """The levels at which small constants decide, each on as many tensors as it takes, `names` at most.

    Constants that nominal inputs tell apart have none, and neither have those that no size of inputs does.
    """

    def evaluated(graph: Graph, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return evaluate(graph, given, dims)

    found: list[Level] = []
    groups = [tuple(names), *((name,) for name in names if 1 < len(names) <= MOST_ALONE)] if names else []
    for constant in sorted(constants(graph)):
        other = doubled(graph, constant)
        if _change(graph, other, values, evaluated) > DECIDED:
            continue
        exponents = ((group, _exponent(graph, other, values, group, evaluated)) for group in groups)
        level = next(((group, exponent) for group, exponent in exponents if exponent), None)
        if level and not any(level[0] == group and abs(level[1] - known) <= SPREAD for group, known, *_ in found):
            group, exponent = level
            zeros = {name: torch.zeros_like(v) if name in group else v for name, v in values.items()}
            is_finite = all(bool(y.isfinite().all()) for y in evaluated(graph, zeros).values())
            found.append((group, exponent, is_finite, 0))
    return found[:MOST_LEVELS]


def _exponent(
    graph: Graph, other: Graph, values: Mapping[str, torch.Tensor], group: Sequence[str], evaluated: Evaluated
) -> int:
    """The least power of two by which these are to be smaller, for results to change nearly as much as they ever do;
    0 where they hardly do."""
    changes = {}
    for exponent in range(STEP, DEEPEST + 1, STEP):
        smaller = {name: v * 2.0**-exponent if name in group else v for name, v in values.items()}
        changes[exponent] = _change(graph, other, smaller, evaluated)
    largest = max(changes.values())
    return min(e for e, change in changes.items() if change >= largest / 2) if largest > DECIDED else 0


def leaning(
    graph: Graph, values: Mapping[str, torch.Tensor], dims: Mapping[str, int], names: Sequence[str]
) -> list[Level]:
    """The levels of one tensor's large numbers, all of one sign, at which small constants decide that others do not
    tell."""

    def evaluated(graph: Graph, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return evaluate(graph, given, dims)

    found: list[Level] = []
    for constant in sorted(constants(graph)):
        other = doubled(graph, constant)
        if _change(graph, other, values, evaluated) > DECIDED:
            continue
        for name, sign, exponent in itertools.product(names, (-1, 1), LARGER):
            larger = {**values, name: sign * (values[name].abs() + 2.0**exponent)}
            if _change(graph, other, larger, evaluated) > DECIDED:
                found.append(((name,), -exponent, False, sign))
                break
    return found[:MOST_LEVELS]


def _change(one: Graph, other: Graph, values: Mapping[str, torch.Tensor], evaluated: Evaluated) -> float:
    """The largest difference of the results of two graphs, as a share of the largest result; 0 where one is not
    finite."""
    largest, after = 0.0, evaluated(other, values)
    for name, y in evaluated(one, values).items():
        if y.is_floating_point() and y.numel() and bool(y.isfinite().all() and after[name].isfinite().all()):
            scale = float(y.abs().max())
            largest = max(largest, float((y - after[name]).abs().max()) / scale if scale else 0.0)
    return largest


def fainter(
    tensors: Mapping[str, torch.Tensor], levels: Sequence[Level], rng: np.random.Generator
) -> dict[str, torch.Tensor]:
    """The tensors of one of the levels, that much smaller or larger: all rows alike but for some powers of two, few
    zero."""
    names, exponent, zeros, sign = levels[int(rng.integers(len(levels)))]
    shift, found = 0.0 if sign else float(rng.uniform(-SPREAD, SPREAD)), {}
    for name in names:
        x = tensors[name]
        rows = x.shape[0] if x.dim() else 1
        factors = 2.0 ** -(exponent + shift + rng.uniform(-1, 1, rows))
        if zeros:
            factors[rng.random(rows) < ZERO_SHARE] = 0.0
        shape = (rows, *[1] * (x.dim() - 1)) if x.dim() else ()
        each = torch.from_numpy(factors).reshape(shape).to(x.device)
        found[name] = (sign * (x.double().abs() + each) if sign else x.double() * each).to(x.dtype)
    return found
