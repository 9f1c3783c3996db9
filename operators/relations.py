"""Relations between an operator's results on different inputs, which a kernel must keep without any reference.

`relations(...)` of an operator's reference.py gets the drawn tensors and returns some of these, mostly made by the
functions below. Tensors go by name; those of a relation are new, the drawn ones stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from operators import drawing

Outputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Relation:
    """Effect of a change of the inputs on the outputs."""

    name: str
    """For people: "rows in another order"."""
    inputs: Mapping[str, Tensor]
    """Tensors that replace the drawn ones, of the same dtypes and shapes; empty: a property of the outputs alone."""
    expected: Callable[[Outputs], Outputs]
    """From a kernel's outputs on the drawn inputs, in fp64, to those it must give on the changed ones.

    Linear or elementwise monotone in them; NaN where the relation says nothing; outputs may be left out.
    """
    exact: bool = False
    """Bit-equal; otherwise within the error bounds of both results."""


def permuted(
    name: str,
    tensors: Mapping[str, Tensor],
    rng: np.random.Generator,
    *,
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    reverse: bool = False,
) -> Relation:
    """One permutation along an axis of each of `inputs` permutes the given axes of `outputs` and leaves the others.

    Random, or the reversal. With no `outputs` it is an invariance, such as that of a sum under the order of its terms.
    """
    lengths = {tensors[t].shape[axis] for t, axis in inputs.items()}
    if len(lengths) != 1:
        raise ValueError(f"{name}: the permuted axes have the lengths {sorted(lengths)}; they must be equal")
    length = lengths.pop()
    device = tensors[next(iter(inputs))].device
    order = torch.arange(length, device=device).flip(0) if reverse else drawing.permutation(length, rng, device)
    changed = {t: tensors[t].index_select(axis, order) for t, axis in inputs.items()}

    def expected(found: Outputs) -> Outputs:
        return {o: y.index_select(outputs[o], order) if o in outputs else y for o, y in found.items()}

    return Relation(name, changed, expected)


def scaled(
    name: str,
    tensors: Mapping[str, Tensor],
    *,
    inputs: Mapping[str, float],
    outputs: Mapping[str, float],
    exact: bool = False,
) -> Relation:
    """Factors on inputs become the factors on outputs (default 1), as in f(2 x) = 2 f(x).

    Factors of inputs must be powers of two or their negatives, so that nothing is rounded; a kernel of a linear
    operator then is `exact`, whatever the order of its sums.
    """
    for t, factor in inputs.items():
        if factor == 0 or abs(np.frexp(factor)[0]) != 0.5:
            raise ValueError(f"{name}: the factor {factor} of `{t}` is no power of two")
    changed = {t: tensors[t] * factor for t, factor in inputs.items()}

    def expected(found: Outputs) -> Outputs:
        return {o: y * outputs.get(o, 1.0) for o, y in found.items()}

    return Relation(name, changed, expected, exact)


def added(
    name: str,
    tensors: Mapping[str, Tensor],
    *,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    exact: bool = False,
) -> Relation:
    """Adding `inputs` adds `outputs`, f(x + d) = f(x) + f(d), and nothing to outputs that are left out.

    With no `outputs` it is a shift invariance. The caller sees to it that x + d is not rounded, best by adding integers
    to integers, or that the rounding does no harm: what was lost is an error of the inputs, which no bound covers.
    """
    changed = {t: (tensors[t].double() + delta.double()).to(tensors[t].dtype) for t, delta in inputs.items()}

    def expected(found: Outputs) -> Outputs:
        return {o: y + outputs[o].double() if o in outputs else y for o, y in found.items()}

    return Relation(name, changed, expected, exact)


def replaced(
    name: str,
    tensors: Mapping[str, Tensor],
    *,
    inputs: Mapping[str, Tensor],
    unaffected: Mapping[str, Tensor],
    exact: bool = False,
) -> Relation:
    """New values somewhere leave the outputs alone where the masks `unaffected` are true (a causal mask, other rows).

    Nothing is said of the other elements, nor of outputs without a mask.
    """
    changed = {t: value.to(tensors[t].dtype) for t, value in inputs.items()}

    def expected(found: Outputs) -> Outputs:
        return {o: torch.where(mask, found[o], torch.nan) for o, mask in unaffected.items()}

    return Relation(name, changed, expected, exact)


def sums_to(name: str, *, output: str, axis: int, total: float = 1.0) -> Relation:
    """Along an axis the output sums to `total`: spreading what is missing over its elements changes nothing."""

    def expected(found: Outputs) -> Outputs:
        y = found[output]
        return {output: y + (total - y.sum(dim=axis, keepdim=True)) / max(y.shape[axis], 1)}

    return Relation(name, {}, expected)
