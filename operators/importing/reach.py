"""Ranges of integers that no source tells, by what a computation does with them.

A definition with axes says that an input holds integers, and not which. Those that are places in a tensor stay within
it, and those that are compared with places, as lengths are, reach its end. All others are any numbers of their type, as
the graders of these formats draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch import fx

ANY: dict[torch.dtype, tuple[int, int]] = {torch.int8: (-128, 127), torch.uint8: (0, 255)}
USUAL = (-1024, 1023)
"""The range of wider types."""
SAME = frozenset((
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "clone", "permute", "transpose", "t",
    "_to_copy", "alias", "detach", "slice", "select", "repeat", "lift_fresh_copy", "clamp", "clamp_min", "clamp_max",
))  # fmt: skip
"""Operators whose results are among the numbers that they get, or a bound."""
ORDERS = frozenset(("lt", "le", "gt", "ge"))
LISTS = frozenset(("index", "_unsafe_index", "index_put", "_unsafe_index_put"))
"""Operators with a list of places, an axis each."""
LINES = frozenset((
    "gather", "index_select", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill",
))  # fmt: skip
"""Operators with an axis, and places along it."""

Sized = Callable[[Any], Any]


class Reach:
    """What becomes of one input of integers."""

    def __init__(self, node: fx.Node, sized: Sized) -> None:
        self.sized = sized
        self.places: set[Any] = set()
        """Last places of the axes that it says places on, less what is added to it before."""
        self.ends: set[Any] = set()
        """Sizes that it is compared with the places of."""
        self.is_unknown = False
        """Whether places are made of it in a way that is not followed."""
        self._seen: set[tuple[fx.Node, Any]] = set()
        self._follow(node, sympy.Integer(0))

    def range(self, dtype: torch.dtype) -> tuple[Any, Any] | None:
        """The least and the largest number that it may hold; None: not known."""
        if self.is_unknown:
            return None
        if self.places:
            return sympy.Integer(0), sympy.Min(*self.places)
        return (sympy.Integer(0), sympy.Min(*self.ends)) if self.ends else ANY.get(dtype, USUAL)

    def _follow(self, node: fx.Node, shift: Any) -> None:
        """Follow the users of a value; `shift` is what was added on the way, None where it is another number."""
        if (node, shift) in self._seen:
            return
        self._seen.add((node, shift))
        for user in node.users:
            name = _name(user)
            for size in self._axes(user, node, name):
                self.is_unknown |= shift is None
                self.places |= set() if shift is None else {size - 1 - shift}
            if name in ORDERS or name == "eq":
                ends = [end for each in user.args if each is not node for end in self._ends(each)]
                self.ends |= set() if shift is None else {end - int(name == "eq") - shift for end in ends}
            elif (
                name in ("add", "sub") and user.args[0] is node and isinstance(user.args[1], int) and shift is not None
            ):
                self._follow(user, shift + (user.args[1] if name == "add" else -user.args[1]))
            elif name == "remainder" and user.args[0] is node:  # a place whatever it is of
                continue
            elif isinstance(user.meta.get("val"), torch.Tensor) and _is_whole(user):
                self._follow(user, shift if name in SAME and user.args[0] is node else None)

    def _axes(self, user: fx.Node, node: fx.Node, name: str) -> Iterator[Any]:
        """The sizes of the axes of which the node is places."""
        if name == "embedding" and user.args[1] is node:
            yield self._size(user.args[0], 0)
        elif name in LISTS:
            yield from (self._size(user.args[0], axis) for axis, each in enumerate(user.args[1]) if each is node)  # type: ignore[arg-type]
        elif name in LINES and user.args[2] is node:
            yield self._size(user.args[0], user.args[1])

    def _size(self, of: Any, axis: Any) -> Any:
        shape = of.meta["val"].shape
        return sympy.sympify(self.sized(shape[axis])) if len(shape) else sympy.Integer(1)

    def _ends(self, other: Any) -> Iterator[Any]:
        """The number of places that a value counts, as `arange` makes it."""
        while isinstance(other, fx.Node) and _name(other) in SAME:
            other = other.args[0]
        if isinstance(other, fx.Node) and _name(other) == "arange":
            yield self._size(other, 0)


def _name(node: fx.Node) -> str:
    return str(node.target.overloadpacket.__name__) if isinstance(node.target, torch._ops.OpOverload) else ""


def _is_whole(node: fx.Node) -> bool:
    dtype = node.meta["val"].dtype
    return not dtype.is_floating_point and dtype != torch.bool
