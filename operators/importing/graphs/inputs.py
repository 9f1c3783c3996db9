"""Inputs as their source makes them: random numbers, and a graph of what becomes of them.

Boxes are corners and sizes, offsets are sums of lengths, rows of probabilities add up to 1: numbers that are drawn
freely would be no such things. `operators.importing.makers` records the graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from operators import drawing
from operators.drawing import NOMINAL
from operators.dtypes import DType
from operators.errors import OperatorError
from operators.expression import ExpressionError
from operators.files import read_text
from operators.importing.graphs.graph import TORCH_DTYPES, Graph, GraphTensor, checked, evaluate

LAWS = ("uniform", "normal", "integers", "permutation")
FEW = 3
"""Different numbers of a draw with ties."""
SPREAD = 3.0
"""Powers of two by which normal numbers are larger or smaller in other families than the nominal one."""


@dataclass(frozen=True)
class Making:
    """The way from random numbers to some inputs."""

    graph: Graph
    """Its inputs are random numbers, its outputs the operator's inputs."""
    laws: Mapping[str, tuple[str, str, str]]
    """By input: the kind, and two numbers; those of integers are expressions over dims, both included."""
    types: Mapping[str, str]
    """The element types of the results."""


def making_of(raw: Any, where: str) -> Making:
    """The making that JSON describes. Raises OperatorError."""
    try:
        graph = checked(raw["graph"], where)
        laws = {str(name): (str(kind), str(a), str(b)) for name, (kind, a, b) in raw["laws"].items()}
        types = {str(name): str(dtype) for name, dtype in raw["types"].items()}
        unknown = [kind for kind, _, _ in laws.values() if kind not in LAWS]
        if unknown or laws.keys() != {each.name for each in graph.inputs}:
            raise ValueError("its laws are not those of its random numbers")
        if types.keys() != {each.name for each in graph.outputs} or not set(types.values()) <= {"T", *TORCH_DTYPES}:
            raise ValueError("its types are not those of its results")
        for kind, *bounds in laws.values():
            for bound in bounds:
                graph.expression(bound) if kind in ("integers", "permutation") else float(bound)
    except (KeyError, TypeError, ValueError, AttributeError, ExpressionError) as error:
        raise OperatorError(f"{where}: {' '.join(str(error).split())[:200]}") from None
    return Making(graph, laws, types)


def read_making(path: Path) -> Making:
    """Read an inputs.json. Raises OperatorError."""
    try:
        return making_of(json.loads(read_text(path)), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{path}: cannot be read as JSON: {' '.join(str(error).split())[:200]}") from None


def made_inputs(
    making: Making, dims: Mapping[str, int], rng: np.random.Generator, device: Any, family: str, dtype: DType
) -> dict[str, torch.Tensor]:
    """The inputs by name, of random numbers that lean to an end, or have ties, in other families than the nominal."""
    values = {each.name: _numbers(making, each, dims, rng, device, family) for each in making.graph.inputs}
    result = evaluate(making.graph, values, dims)
    held = {"T": TORCH_DTYPES[dtype.name]} | TORCH_DTYPES
    return {name: y.to(device).to(held[making.types[name]]).contiguous() for name, y in result.items()}


def _numbers(
    making: Making, tensor: GraphTensor, dims: Mapping[str, int], rng: np.random.Generator, device: Any, family: str
) -> torch.Tensor:
    kind, a, b = making.laws[tensor.name]
    shape = tuple(axis.evaluate(dims) for axis in making.graph.shape(tensor))
    if kind == "permutation":
        return torch.from_numpy(rng.permutation(shape[0])).to(device)
    form = int(rng.integers(3)) if family != NOMINAL else 0
    if kind == "integers":
        low, high = (making.graph.expression(bound).evaluate(dims) for bound in (a, b))
        drawn = drawing.integers(low, high, shape, rng, device)
    elif kind == "normal":
        drawn = drawing.normal(shape, rng, device, dtype=torch.float64)
        drawn = drawn * (float(b) * (2.0 ** rng.uniform(-SPREAD, SPREAD) if form == 1 else 1.0)) + float(a)
    else:
        drawn = drawing.uniform(shape, rng, device, dtype=torch.float64)
        drawn = (drawn ** (4.0 ** rng.uniform(-1, 1)) if form == 1 else drawn) * (float(b) - float(a)) + float(a)
    if form == 2 and drawn.numel():
        few = drawn.reshape(-1)[:FEW]
        drawn = few[drawing.integers(0, len(few) - 1, shape, rng, device).long()]
    return drawn
