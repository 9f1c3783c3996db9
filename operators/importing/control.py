"""Control flow of Python that no graph has: rows that a mask selects, both ways of each `if` on a value, and loops.

The number of rows that a mask selects, as a router of experts does, hangs on values, for which a graph has no size.
All rows are kept in the place of the selected ones, with the mask beside them, and where rows come together again
those that it does not select come to nothing. That some row is selected is assumed, which holds for a loop over
experts.

A source is executed once for each way through its `if`s on values of tensors, and the values choose a result: every
way computes all of its own. Of a loop over rows one is recorded, and executed for all at once: a value that hangs on
the row has one axis more, the first.

Trials against the source tell where any of this does not hold.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from operators.importing.foreign import Failed, Unrolled
from operators.importing.graphs.decompositions import name_of
from operators.importing.graphs.symbols import plain, value_of
from operators.importing.randomness import LAWS, MADE

# --- rows that a mask selects -----------------------------------------------------------------------------------------

Held = tuple[int, Tensor]
"""The axis of the rows, and the mask of those that are selected."""
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    each: getattr(operator, each.strip("_")) for each in ("eq", "ne", "gt", "ge", "lt", "le")
}
ORDERING = ("sort", "argsort", "topk")
"""Functions that return different places."""
PASSING = ("any", "sum", "getitem", "count_nonzero")
BOUNDED = {Tensor.item, Tensor.tolist}
"""Functions that read numbers of tensors; tensors of one number stand in the place of those that are not known."""


class Selections:
    """Keeps the selected rows of one recorded call."""

    def __init__(self) -> None:
        self.held = WeakTensorKeyDictionary()
        self.assumed = WeakTensorKeyDictionary()
        """The number that is taken for that of a tensor which counts selected rows, or tells whether there are any."""
        self.distinct = WeakTensorKeyDictionary()
        """Places of which none is there twice."""
        self.read = WeakTensorKeyDictionary()
        """A tensor and the places in it that another tensor was read at."""

    def called(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a function that selects rows, or brings them together; NotImplemented: it is another one."""
        name = getattr(func, "__name__", "")
        if (name == "where" and len(args) == 1) or name in ("nonzero", "argwhere"):
            places = self._places(args[0])
            as_tuple = name == "where" or kwargs.get("as_tuple", False)
            return places if as_tuple else self._keep(torch.stack(places, -1), 0, self.held[places[0]][1])
        if func in BOUNDED:
            return self._number(func, args[0])
        if func is Tensor.__bool__ and args[0] in self.assumed:
            return bool(self.assumed[args[0]])
        if func is Tensor.__len__ and args[0] in self.held:
            return plain(args[0].shape[0])
        if rule := SELECTING.get(name):
            return rule(self, func, *args, **kwargs)
        return NotImplemented

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], found: Any) -> Any:
        """The result of any other function; what it makes of selected rows is selected rows."""
        if any(isinstance(each, Tensor) and _is_unknown(list(each.shape)) for each in pytree.tree_leaves(found)):
            raise DynamicOutputShapeException(getattr(func, "__name__", func))
        name = getattr(func, "__name__", "").strip("_")
        self._assume(name, args, found)
        if name in ORDERING and isinstance(args[0], Tensor) and args[0].dim() == 1:
            self.distinct[found if isinstance(found, Tensor) else found[1]] = True
        own = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each in self.held]
        if own:
            axis, mask = self.held[own[0]]
            for each in found if isinstance(found, tuple | list) else [found]:
                if isinstance(each, Tensor) and each not in self.held:
                    self._keep(each, axis, mask)
        return found

    def _keep(self, x: Tensor, axis: int, mask: Tensor) -> Tensor:
        """Let a tensor have such rows, on this axis or on the only one that has as many."""
        rows = value_of(mask.shape[0])
        fitting = [number for number, size in enumerate(x.shape) if value_of(size) == rows]
        if axis in fitting or len(fitting) == 1:
            self.held[x] = (axis if axis in fitting else fitting[0], mask)
        return x

    def _assume(self, name: str, args: Sequence[Any], found: Any) -> None:
        if not args or not isinstance(found, Tensor) or not isinstance(args[0], Tensor):
            return
        of_choice = name == "eq" and not args[0].is_floating_point()
        if args[0] in self.assumed and name in COMPARED and len(args) > 1 and isinstance(args[1], int):
            self.assumed[found] = COMPARED[name](self.assumed[args[0]], args[1])
        elif of_choice or name == "bincount" or (args[0] in self.assumed and name in PASSING):
            self.assumed[found] = 1

    def _number(self, func: Any, x: Tensor) -> Any:
        try:
            found = func(x)
        except (RuntimeError, DataDependentOutputException):
            return self._read(x)
        return self._read(x) if _is_unknown(found) else found

    def _read(self, x: Tensor) -> Any:
        """The numbers of a tensor, each as one of its own."""
        if not x.dim():
            return x
        parts = x.unbind()
        for each in parts if x in self.assumed else ():
            self.assumed[each] = self.assumed[x]
        return list(map(self._read, parts))

    # --- selecting ---

    def _places(self, x: Tensor) -> tuple[Tensor, ...]:
        """The places of all elements, axis by axis, of which those that are not zero are selected."""
        mask = (x if x.dtype == torch.bool else x != 0).reshape(-1)
        flat, found = torch.arange(mask.shape[0], device=x.device), []
        for size in reversed(x.shape):
            found.append(flat % size)
            flat = flat // size
        return tuple(self._keep(each, 0, mask) for each in reversed(found))

    def taken(self, func: Any, x: Tensor, index: Any) -> Any:
        """The result of `x[index]`."""
        items = index if isinstance(index, tuple) else (index,)
        at, mask = self._mask(x, items)
        if mask is not None:
            rows = x.flatten(at, at + mask.dim() - 1).clone()
            if x in self.distinct:
                self.distinct[rows] = True
            return self._keep(rows, at, mask.reshape(-1))
        own = [each for each in items if isinstance(each, Tensor) and each in self.held]
        if not own:
            return NotImplemented
        first = next(number for number, each in enumerate(items) if isinstance(each, Tensor))
        found = self._keep(func(x, index), first, self.held[own[0]][1])
        if len(items) == 1:
            self.read[found] = (x.clone(), items[0])
        return found

    def _mask(self, x: Tensor, items: Sequence[Any]) -> tuple[int, Tensor | None]:
        """The mask by which `x[items]` selects, and the first of its axes; None: it does otherwise."""
        *whole, last = items
        if any(each != slice(None) for each in whole if not isinstance(each, Tensor)):
            return 0, None
        if any(isinstance(each, Tensor) for each in whole):
            return 0, None
        at = len(whole)
        if isinstance(last, Tensor) and last.dtype == torch.bool and last.dim():
            return at, last
        if isinstance(last, slice) and any(isinstance(end, Tensor) for end in (last.start, last.stop)):
            places = torch.arange(x.shape[at], device=x.device)
            mask = torch.ones_like(places, dtype=torch.bool)
            mask = mask if last.start is None else mask & (places >= last.start)
            return at, mask if last.stop is None else mask & (places < last.stop)
        return 0, None

    # --- coming together ---

    def put(self, func: Any, x: Tensor, index: Any, value: Any) -> Any:
        """Execute `x[index] = value`."""
        items = index if isinstance(index, tuple) else (index,)
        at, mask = self._mask(x, items)
        if mask is not None:
            if isinstance(value, Tensor) and value in self.held:
                value = value.unflatten(self.held[value][0], mask.shape)  # type: ignore[no-untyped-call]
            elif isinstance(value, Tensor) and value.dim() > x.dim() - at - mask.dim():
                return NotImplemented  # rows that the source knows the number of, and no row for all
            chosen = mask.reshape([*mask.shape, *[1] * (x.dim() - at - mask.dim())])
            x.copy_(torch.where(chosen, value, x))
            return None
        if not isinstance(items[0], Tensor) or items[0] not in self.held:
            return NotImplemented
        mask = self.held[items[0]][1]
        if len(items) == 1 and items[0] in self.distinct:
            x.copy_(self._put_apart(x, items[0], value, mask))
            return None
        longer = torch.cat([x, torch.zeros_like(x[:1])])  # a row more, for what is not selected
        longer[(torch.where(mask, items[0], x.shape[0]), *items[1:])] = value
        x.copy_(longer[: x.shape[0]])
        return None

    def _put_apart(self, x: Tensor, places: Tensor, value: Any, mask: Tensor) -> Tensor:
        """The tensor with values at those of different places that are selected; what is put where it was taken from
        moves nowhere, so that its numbers hang on no order."""
        chosen = x.new_zeros(x.shape[:1], dtype=torch.bool).scatter(0, places, mask)
        source, at = self.read[value] if isinstance(value, Tensor) and value in self.read else (x, None)
        if at is not places or source.dim() != x.dim():
            source = x.index_put((places,), value if isinstance(value, Tensor) else x.new_full((), value))
        return torch.where(chosen.reshape([-1, *[1] * (x.dim() - 1)]), source, x)

    def added(self, func: Any, x: Tensor, dim: int, index: Tensor, source: Any, **more: Any) -> Any:
        """The result of a function that adds rows to places."""
        known = next((each for each in (index, source) if isinstance(each, Tensor) and each in self.held), None)
        if known is None or not isinstance(source, Tensor):
            return NotImplemented
        return func(x, dim, index, self._chosen(source, *self.held[known]), **more)

    def summed(self, func: Any, x: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The result of a sum of selected rows, or of a mean of them."""
        if not isinstance(x, Tensor) or x not in self.held:
            return NotImplemented
        axis, mask = self.held[x]
        dims = [dim] if isinstance(dim, int) else dim
        if dims is not None and axis not in [each % x.dim() for each in dims]:
            return NotImplemented
        if func.__name__ not in ("sum", "mean"):
            raise Failed(f"{func.__name__} of rows whose number hangs on values of tensors: no graph can say that")
        total = torch.sum(self._chosen(x, axis, mask), dim, *args, **kwargs)
        if func.__name__ == "sum":
            return total
        among = [n for n in range(x.dim()) if n != axis] if dims is None else [each % x.dim() for each in dims]
        return total / (mask.sum() * math.prod(x.shape[number] for number in among if number != axis))

    @staticmethod
    def _chosen(x: Tensor, axis: int, mask: Tensor) -> Tensor:
        """The rows, zero where they are not selected."""
        return torch.where(mask.reshape([-1, *[1] * (x.dim() - axis - 1)]), x, 0)

    def joined(self, func: Any, tensors: Sequence[Tensor], dim: int = 0, **_: Any) -> Any:
        """The result of joining selected rows behind each other, of which there are as many in all as of each: those of
        a router are, and trials tell where it is otherwise."""
        known = [self.held[each] for each in tensors if each in self.held]
        if not known or len(known) < len(tensors) or any(axis != dim for axis, _ in known):
            return NotImplemented
        mask, rows = torch.cat([each for _, each in known]), known[0][1].shape[0]
        places = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, rows).clamp(max=rows)
        joined = func(tensors, dim).movedim(dim, 0)
        made = joined.new_zeros([rows + 1, *joined.shape[1:]])
        made[places] = joined
        return made[:rows].movedim(0, dim)

    def kept(self, func: Any, x: Tensor, mask: Tensor) -> Tensor:
        """The result of torch.masked_select."""
        x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
        return self._keep(x.reshape(-1).clone(), 0, mask.reshape(-1))


def _is_unknown(found: Any) -> bool:
    return any(
        isinstance(each, torch.SymInt | torch.SymFloat) and free_unbacked_symbols(each)
        for each in pytree.tree_leaves(found)
    )


SELECTING: Mapping[str, Callable[..., Any]] = {
    "__getitem__": Selections.taken, "__setitem__": Selections.put,
    **dict.fromkeys(("index_add", "index_add_", "scatter_add", "scatter_add_"), Selections.added),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "softmax"), Selections.summed),
    "masked_select": Selections.kept,
    **dict.fromkeys(("cat", "concat", "concatenate"), Selections.joined),
}  # fmt: skip


# --- both ways of an `if` ---------------------------------------------------------------------------------------------

MOST_MET = 12
"""Values that one way may ask for: a loop over rows asks for each row's."""
MOST_WAYS = 32


class Branches:
    """The ways through one source."""

    def __init__(self) -> None:
        self.given: list[bool] = []
        self.met: list[Tensor] = []
        """The values that the way under way asked for."""
        self.ways = 0

    def decides(self, value: Tensor) -> bool:
        """Whether the way under way takes a value as true; a new one first does."""
        self.met.append(value)
        if len(self.met) > MOST_MET:
            raise Unrolled(f"it decides by more than {MOST_MET} values of its tensors, as a loop over rows does")
        return self.given[len(self.met) - 1] if len(self.met) <= len(self.given) else True

    def all_ways(self, call: Callable[[], Any]) -> Any:
        """The results of a source, each chosen between all ways by the values that they ask for."""
        return self._beginning(call, [])

    def _beginning(self, call: Callable[[], Any], given: list[bool]) -> Any:
        """The results of all ways that begin so."""
        self.given, self.met, self.ways = given, [], self.ways + 1
        if self.ways > MOST_WAYS:
            raise Unrolled(f"there are more than {MOST_WAYS} ways through its `if`s on values of tensors")
        found, met = call(), self.met
        for at in reversed(range(len(given), len(met))):
            other = self._beginning(call, [*given, *[True] * (at - len(given)), False])
            found = chosen(met[at], found, other)
        return found


def chosen(value: Tensor, one: Any, other: Any) -> Any:
    """The results of one way where the value is true, else those of the other."""
    ours, spec = pytree.tree_flatten(one)
    theirs, same = pytree.tree_flatten(other)
    if spec != same:
        raise Failed("the ways of an `if` on a value of a tensor return results of different kinds")

    def either(a: Any, b: Any) -> Any:
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dim() == b.dim() and a.dtype == b.dtype:
            return a if a is b else torch.where(value != 0, a, b)
        if isinstance(a, Tensor) or isinstance(b, Tensor) or a != b:
            raise Failed("the ways of an `if` on a value of a tensor return tensors of different kinds")
        return a

    return pytree.tree_unflatten(map(either, ours, theirs), spec)


# --- all rows at once -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfRow:
    """A value of each row, along the first axis."""

    all: Tensor

    @property
    def dims(self) -> int:
        """The axes of one row's."""
        return self.all.dim() - 1

    def beside(self, dims: int) -> Tensor:
        """The same for operators that align axes from the last one: axes of one element before those of a row."""
        shape = self.all.shape
        return self.all.reshape([shape[0], *[1] * (dims - self.dims), *shape[1:]])


class AllRows(fx.Interpreter):
    """Executes the computation of one row on all rows."""

    def __init__(self, module: fx.GraphModule, count: Any) -> None:
        super().__init__(module)
        self.count = count

    def of(self, tensors: Sequence[Tensor], axes: Sequence[int | None]) -> Any:
        """The results for these tensors, which have rows along an axis or none; those of all rows come one by one along
        their first axis."""
        given = [
            tensor if axis is None else OfRow(tensor.movedim(axis, 0).unsqueeze(axis + 1))
            for tensor, axis in zip(tensors, axes, strict=True)
        ]
        found = self.run(*given)
        return pytree.tree_map(self._joined, found, is_leaf=lambda each: isinstance(each, OfRow))

    def _joined(self, found: Any) -> Any:
        if isinstance(found, OfRow) and found.dims and value_of(found.all.shape[1]) == 1:
            return found.all.squeeze(1)
        if isinstance(found, OfRow | Tensor):
            raise Failed("its results have no first axis of rows")
        return found

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute an operator on all rows. It raises Failed for one without a rule."""
        name = name_of(target)
        if name in LAWS:
            return OfRow(MADE[LAWS[name]]([self.count, *args[0]], dtype=kwargs.get("dtype")))
        leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda each: isinstance(each, OfRow))
        if not any(isinstance(each, OfRow) for each in leaves):
            return target(*args, **kwargs)
        if name == "getitem":
            return args[0][args[1]]
        if name in ("squeeze_", "unsqueeze_", "transpose_"):  # views of what is used in no other way
            name, target = name[:-1], getattr(getattr(torch.ops.aten, name[:-1]), target._overloadname)
        if name == "sym_size":
            return args[0].all.shape[args[1] % args[0].dims + 1]
        if rule := RULES.get(name):
            found = rule(self, target, *args, **kwargs)
        elif torch.Tag.pointwise in target.tags or name in ALIGNED:
            found = self._aligned(target, args, kwargs)
        elif name in ALONG:
            found = self._along(target, args, kwargs)
        else:
            raise Failed(f"no rule is known for aten.{name} of all rows at once")
        return tuple(map(OfRow, found)) if isinstance(found, tuple | list) else OfRow(found)

    def spread(self, x: Any) -> Tensor:
        """The value of each row."""
        found: Tensor = x.all if isinstance(x, OfRow) else x.expand([self.count, *x.shape])
        return found

    def _aligned(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An operator on elements, whose arguments are aligned from their last axes."""
        dims = max(each.dims if isinstance(each, OfRow) else each.dim() for each in args if is_tensor(each))
        given = [each.beside(dims) if isinstance(each, OfRow) else each for each in args]
        return target(*given, **kwargs)

    def _along(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An operator that goes along axes, which are named one further."""
        first = next(each for each in pytree.tree_leaves(args, is_leaf=is_tensor) if is_tensor(each))
        dims = first.dims if isinstance(first, OfRow) else first.dim()
        made = []
        for parameter, value in zip(target._schema.arguments, args, strict=False):
            if parameter.name in ("dim", "dims", "dim0", "dim1"):
                extra = dims + 1 if target._schema.name == "aten::unsqueeze" else dims
                value = _further(value, max(extra, 1), dims)
            elif is_tensor(value):
                value = self.spread(value)
            elif isinstance(value, list | tuple) and value and all(map(is_tensor, value)):
                value = [self.spread(each) for each in value]
            made.append(value)
        defaults = [
            parameter for parameter in target._schema.arguments[len(args) :] if parameter.name in ("dim", "dims")
        ]
        if defaults and defaults[0].name not in kwargs:
            default = defaults[0].default_value
            kwargs = {**kwargs, defaults[0].name: _further(default, max(dims, 1), dims)}
        return target(*made, **kwargs)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, of a row or of none."""
    return isinstance(value, OfRow | Tensor)


def _further(dim: Any, count: int, dims: int) -> Any:
    """Axes of a row's value as those of all rows'; none of them named are all of the row's."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(1, dims + 1))
    return [each % count + 1 for each in dim] if isinstance(dim, list | tuple) else dim % count + 1


# --- rules by operator ------------------------------------------------------------------------------------------------


def _shaped(run: AllRows, target: Any, x: OfRow, size: Sequence[Any], **kwargs: Any) -> Any:
    return target(x.all, [run.count, *size], **kwargs)


def _stretched(run: AllRows, target: Any, x: OfRow, size: Sequence[Any], **kwargs: Any) -> Any:
    return target(x.beside(len(size)), [run.count, *size], **kwargs)


def _copied(run: AllRows, target: Any, x: Any, source: Any, *_: Any) -> Tensor:
    into = run.spread(x)
    value = source.beside(into.dim() - 1) if isinstance(source, OfRow) else source
    found: Tensor = value.expand(into.shape).to(into.dtype)
    return found


def _best(run: AllRows, target: Any, x: OfRow, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return target(x.all.reshape(run.count, -1), 1)
    return target(x.all, dim % max(x.dims, 1) + 1, keepdim)


def _product(run: AllRows, target: Any, a: Any, b: Any) -> Tensor:
    return torch.matmul(*(each.all if isinstance(each, OfRow) else each for each in (a, b)))


def _product_added(run: AllRows, target: Any, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    found: Tensor = beta * (c.beside(2) if isinstance(c, OfRow) else c) + alpha * _product(run, target, a, b)
    return found


def _places(run: AllRows, indices: Sequence[Any]) -> list[Any]:
    """The places of all rows: the row itself before them."""
    dims = max(each.dims if isinstance(each, OfRow) else each.dim() for each in indices if each is not None)
    row = torch.arange(run.count).reshape([-1, *[1] * dims])
    if indices[0] is None:
        raise Failed("places along another axis than the first have no rule for all rows at once")
    return [row, *(each.beside(dims) if isinstance(each, OfRow) else each for each in indices)]


def _taken(run: AllRows, target: Any, x: Any, indices: Sequence[Any]) -> Any:
    return target(run.spread(x), _places(run, indices))


def _put(run: AllRows, target: Any, x: Any, indices: Sequence[Any], values: Any, *more: Any) -> Any:
    places = _places(run, indices)
    into = run.spread(x)
    dims = places[0].dim() + into.dim() - len(places)
    return target(into, places, values.beside(dims - 1) if isinstance(values, OfRow) else values, *more)


RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), _shaped), "expand": _stretched, "copy": _copied,
    **dict.fromkeys(("argmax", "argmin"), _best), **dict.fromkeys(("mm", "bmm"), _product), "addmm": _product_added,
    **dict.fromkeys(("index", "_unsafe_index"), _taken), "index_put": _put,
    "permute": lambda run, target, x, dims: target(x.all, [0, *_further(dims, len(dims), x.dims)]),
    "repeat": lambda run, target, x, counts: target(x.beside(len(counts)), [1, *counts]),
}  # fmt: skip
ALIGNED = frozenset((
    "clone", "alias", "detach", "_to_copy", "full_like", "zeros_like", "ones_like", "constant_pad_nd",
    "lift_fresh_copy",
))  # fmt: skip
"""Operators on elements that torch does not call so, and one that goes along the last axes."""
ALONG = frozenset((
    "sum", "mean", "prod", "amax", "amin", "any", "all", "cumsum", "cumprod", "logcumsumexp", "sort", "topk", "gather",
    "scatter", "scatter_add", "select", "slice", "slice_scatter", "select_scatter", "unsqueeze", "squeeze", "cat",
    "stack", "_softmax", "_log_softmax", "var", "linalg_vector_norm", "index_select", "split", "split_with_sizes",
    "transpose",
))  # fmt: skip
