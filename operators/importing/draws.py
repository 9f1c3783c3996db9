"""Distributions of a problem's tensors: seen where torch's factories are called, or in drawn values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from operators.importing.foreign import Failed
from operators.importing.graphs.decompositions import operator_of
from operators.importing.graphs.mode import DispatchMode
from operators.importing.graphs.symbols import plain, value_of

Drawn = tuple[str, Any, Any]
"""`uniform`, `normal`, `integers` or `constant`, with two numbers, which may be symbolic for `integers`."""
_COPIES = {"_to_copy", "clone", "detach", "alias", "copy", "contiguous", "squeeze", "unsqueeze"}


class Draws(DispatchMode):  # type: ignore[no-untyped-call]
    """Watches tensors being made, and keeps by their memory what they were drawn from."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known: dict[int, Drawn] = {}
        self.kept: list[Any] = []
        """Tensors seen, alive, for no memory to be named twice."""

    def of(self, tensor: torch.Tensor) -> Drawn | None:
        """The distribution of a tensor, or None where it is not known."""
        return self.known.get(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, and note what its result is drawn from."""
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            name = func._schema.name.removeprefix("aten::")
            made, key = self._made(name, args, kwargs, result), result.untyped_storage()._cdata
            if func._schema.is_mutable and result._is_view() and made != self.known.get(key):
                made = None  # a part of the memory is drawn from another law
            self.kept.append(result)
            if made:
                self.known[key] = made
            elif func._schema.is_mutable:
                self.known.pop(key, None)
        return result

    def _made(self, name: str, args: Any, kwargs: Any, result: torch.Tensor) -> Drawn | None:
        name = name.removesuffix("_")
        numbers = [plain(a) for a in args[1:] if isinstance(a, int | float | torch.SymInt | torch.SymFloat)]
        match name:
            case "rand" | "rand_like":
                return ("uniform", 0.0, 1.0)
            case "randn" | "randn_like":
                return ("normal", 0.0, 1.0)
            case "randint" | "randint_like":
                bounds = [value_of(a) for a in args if not isinstance(a, list | tuple | torch.Tensor)]
                return ("integers", 0 if len(bounds) == 1 else bounds[0], bounds[-1] - 1)
            case "uniform":
                low, high = [*numbers, 0.0, 1.0][:2] if len(numbers) != 1 else (numbers[0], 1.0)
                return ("uniform", float(kwargs.get("from", low)), float(kwargs.get("to", high)))
            case "normal" | "normal_functional":
                mean, deviation = (numbers + [0.0, 1.0][len(numbers) :])[:2]
                return ("normal", float(kwargs.get("mean", mean)), float(kwargs.get("std", deviation)))
            case "empty" | "empty_like" | "new_empty" if result.is_floating_point():  # any numbers
                return ("normal", 0.0, 1.0)
            case "zeros" | "zeros_like" | "zero":
                return ("constant", 0.0, 0.0)
            case "ones" | "ones_like":
                return ("constant", 1.0, 0.0)
            case "full" | "full_like" | "fill":
                return ("constant", float(numbers[0]), 0.0) if numbers else None
        if not args or not isinstance(args[0], torch.Tensor):
            return None
        before = self.of(args[1 if name == "copy" else 0])
        if before is None or name in _COPIES:
            return before
        return self._moved(name, before, numbers) if len(numbers) == 1 and len(args) == 2 else None

    @staticmethod
    def _moved(name: str, before: Drawn, numbers: list[Any]) -> Drawn | None:
        kind, a, b = before
        if kind == "integers":
            return None
        number = numbers[0]
        if name in ("mul", "div") and number:
            factor = number if name == "mul" else 1 / number
            low, high = a * factor, b * (abs(factor) if kind == "normal" else factor)
            return (kind, min(low, high), max(low, high)) if kind == "uniform" else (kind, low, high)
        if name in ("add", "sub"):
            shift = number if name == "add" else -number
            return (kind, a + shift, b + shift if kind == "uniform" else b)
        return None


def shrunk(entry: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """The distribution of a tensor whose numbers are so much smaller."""
    law = re.fullmatch(r"(uniform|normal)\((.+), (.+)\)", entry.get("distribution", ""))
    return {"distribution": f"{law[1]}({scale * float(law[2]):.6g}, {scale * float(law[3]):.6g})"} if law else {}


def near_zero(entry: Mapping[str, Any]) -> bool:
    """Whether numbers of any small size may be drawn for a tensor in the place of its own."""
    law = re.fullmatch(r"(uniform|normal)\((.+), (.+)\)", entry.get("distribution", ""))
    free = law is not None and "pattern" not in entry
    return free and (law[1] == "normal" or float(law[2]) <= 0 <= float(law[3]))  # type: ignore[index]


def varied(values: torch.Tensor) -> torch.Tensor:
    """The values, drawn as operator.toml draws them where the source has one number everywhere."""
    constant = values.numel() > 1 and values.min() == values.max()
    return values + torch.rand_like(values) - 0.5 if constant else values


def observed(values: torch.Tensor) -> tuple[str, float, float, str]:
    """A distribution that drawn values look like, and their pattern (`upper`, `lower`, `symmetric` or nothing)."""
    flat = values.double().flatten()
    flat = flat[flat.isfinite()]
    if not flat.numel():
        return ("uniform", -1.0, 1.0, "")
    pattern = ""
    if values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 2:
        wide = values.double()
        if wide.equal(wide.mT):
            pattern = "symmetric"
        elif wide.equal(wide.triu()):
            pattern = "upper"
        elif wide.equal(wide.tril()):
            pattern = "lower"
        if pattern in ("upper", "lower"):
            mask = torch.ones_like(wide, dtype=torch.bool)
            flat = wide[mask.triu() if pattern == "upper" else mask.tril()]
    low, high = float(flat.min()), float(flat.max())
    if bool((flat == flat.round()).all()) and abs(low) < 2**31 and abs(high) < 2**31:
        return ("integers", low, high, pattern)
    if low >= 0 and high <= 1.0:
        return ("uniform", 0.0 if low < 0.02 else _round(low), 1.0 if high > 0.95 else _round(high), pattern)
    mean, deviation = float(flat.mean()), float(flat.std()) if flat.numel() > 1 else 1.0
    if high - low > 3.7 * deviation and flat.numel() > 30:
        return ("normal", 0.0 if abs(mean) < 0.2 * deviation else _round(mean), _round(deviation), pattern)
    return ("uniform", _round(low), _round(high), pattern)


def number(value: Any) -> str:
    """A number as operator.toml has it."""
    return f"{plain(value):.6g}"


def _round(value: float) -> float:
    return float(f"{value:.2g}")


# --- integers that no source tells the range of ---

ANY: dict[torch.dtype, tuple[int, int]] = {torch.int8: (-128, 127), torch.uint8: (0, 255)}
USUAL = (-1024, 1023)
"""The range of wider types."""
KEEPING = frozenset((
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
    """The uses of one input of integers, and the range that they tell.

    A definition with axes says that an input holds integers, and not which. Those that are places in a tensor stay
    within it, and those that are compared with places, as lengths are, reach its end. All others are any numbers of
    their type, as the graders of these formats draw them.
    """

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
            name = operator_of(user)
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
                self._follow(user, shift if name in KEEPING and user.args[0] is node else None)

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
        while isinstance(other, fx.Node) and operator_of(other) in KEEPING:
            other = other.args[0]
        if isinstance(other, fx.Node) and operator_of(other) == "arange":
            yield self._size(other, 0)


def _is_whole(node: fx.Node) -> bool:
    dtype = node.meta["val"].dtype
    return not dtype.is_floating_point and dtype != torch.bool


# --- integers of a source that is executed as it is: offsets, places and lengths ---

Rule = tuple[str, list[str]]
"""`offsets`, `places` or `lengths`, and the axes whose product is the last offset, or the number of places, or the
largest length."""
Results = Callable[[Mapping[str, torch.Tensor]], Sequence[torch.Tensor]]
"""Executes the source with these inputs in the places of its own, and raises Failed where it fails."""


def drawn_integers(
    rules: Mapping[str, Rule], shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    """Return integers by name for these sizes, drawn by torch's own generator.

    Rows between offsets that lie one beside the other are no shorter in the longer one, as the keys of a causal
    sequence are. Places are distinct while there are enough of them.
    """
    made: dict[str, torch.Tensor] = {}
    ends = {name: _size(axes, sizes) for name, (kind, axes) in rules.items() if kind == "offsets"}
    counts: dict[int, torch.Tensor] = {}
    for name in sorted(ends, key=ends.__getitem__):
        rows = shapes[name][0] - 1
        shorter = counts.get(rows, torch.zeros(max(rows, 0), dtype=torch.int64))
        counts[rows] = shorter + _parts(ends[name] - int(shorter.sum()), rows)
        made[name] = torch.cat((torch.zeros(1, dtype=torch.int64), counts[rows].cumsum(0)))
    for name, (kind, axes) in rules.items():
        size, shape = _size(axes, sizes), list(shapes[name])
        if kind == "lengths":
            made[name] = torch.randint(1, size + 1, shape)
        elif kind == "places":
            count = torch.Size(shape[-1:]).numel()
            rows = torch.Size(shape[:-1]).numel()
            each = [
                torch.randperm(size)[:count] if count <= size else torch.randint(0, size, (count,)) for _ in range(rows)
            ]
            made[name] = torch.stack(each).reshape(shape) if each else torch.zeros(shape, dtype=torch.int64)
    return made


def _size(axes: Sequence[str], sizes: Mapping[str, int]) -> int:
    return torch.Size([sizes[axis] for axis in axes]).numel()


def _parts(total: int, rows: int) -> torch.Tensor:
    """Return so many lengths, some of which may be 0, that come to a total."""
    if rows < 1:
        return torch.zeros(max(rows, 0), dtype=torch.int64)
    cuts = torch.cat(
        (torch.tensor([0]), torch.randint(0, max(total, 0) + 1, (rows - 1,)).sort().values, torch.tensor([total]))
    )
    return cuts.diff()


def found_rules(
    waiting: Mapping[str, torch.Tensor], axes: Mapping[str, Sequence[str]], sizes: Mapping[str, int], run: Results
) -> Iterator[tuple[str, Rule]]:
    """Yield the rule of each input of integers that a trial tells; sizes of variable axes must be distinct.

    `waiting`: the inputs; `axes`: those of every tensor of the definition by name.
    """
    ends = dict[int, list[str]]()
    for shape in axes.values():
        for first in range(len(shape)):
            for last in range(first + 1, min(len(shape), first + 2) + 1):
                ends.setdefault(_size(shape[first:last], sizes), list(shape[first:last]))
    for name, tensor in waiting.items():
        if rule := _rule(lambda value, n=name, t=tensor: run({n: torch.full_like(t, value)}), ends):  # type: ignore[misc]
            yield name, rule


def _rule(run: Callable[[int], Sequence[torch.Tensor]], ends: Mapping[int, list[str]]) -> Rule | None:
    def result(value: int) -> Sequence[torch.Tensor] | None:
        try:
            return run(value)
        except Failed:
            return None

    beyond = max(ends) + 1
    far = result(beyond)
    for end in sorted(ends):
        last, after = result(end - 1), result(end)
        if far is None and last is not None and after is None:
            return "places", ends[end]
        if far is not None and last and after and same(after, far) and not same(last, far):
            return "lengths", ends[end]
    return None


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Return whether results are equal, number by number."""
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, other, strict=True)
    )
