"""Which operators are of one pattern, so that one's skeleton may serve the other: four norms have one skeleton."""

from __future__ import annotations

from operators.definition.spec import Operator


def alike(one: Operator, other: Operator) -> bool:
    """Return whether a kernel of one operator may show how to write one of the other.

    It goes by what the operators declare. Both sum along some dim or neither does; and both are like the same form, or,
    where one is like none, they are of one family with inputs and outputs of the same ranks.
    """
    if one.name == other.name:
        return True
    if _reduces(one) is not _reduces(other):
        return False
    if one.like and other.like:
        return one.like == other.like
    return one.family == other.family and _ranks(one) == _ranks(other)


def _reduces(operator: Operator) -> bool:
    return bool(operator.tolerance.terms.names)


def _ranks(operator: Operator) -> tuple[list[int], list[int]]:
    """The ranks of the floating tensors; index arrays tell how data are stored, not what is computed."""
    sides = operator.inputs, operator.outputs
    ranked = [sorted(len(t.shape) for t in side if t.dtype in ("T", "ACC")) for side in sides]
    return ranked[0], ranked[1]
