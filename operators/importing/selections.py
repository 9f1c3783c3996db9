"""Rows that a mask selects, as a router of experts does: their number hangs on values, for which a graph has no size.

All rows are kept in the place of the selected ones, with the mask beside them, and where rows come together again those
that it does not select come to nothing. What is assumed on the way (that some row is selected) holds for a loop over
experts, and trials against the source tell where it does not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary

from operators.importing.foreign import Failed
from operators.importing.symbols import plain, value_of

Held = tuple[int, Tensor]
"""The axis of the rows, and the mask of those that are selected."""
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    each: getattr(operator, each.strip("_")) for each in ("eq", "ne", "gt", "ge", "lt", "le")
}
PASSING = ("any", "sum", "getitem", "count_nonzero")
BOUNDED = {Tensor.item, Tensor.tolist}
"""Functions that read numbers of tensors; tensors of one number stand in the place of those that are not known."""


class Selections:
    """Keeps the selected rows of one recorded call."""

    def __init__(self) -> None:
        self.held = WeakTensorKeyDictionary()
        self.assumed = WeakTensorKeyDictionary()
        """The number that is taken for that of a tensor which counts selected rows, or tells whether there are any."""

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
        if rule := RULES.get(name):
            return rule(self, func, *args, **kwargs)
        return NotImplemented

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], found: Any) -> Any:
        """The result of any other function; what it makes of selected rows is selected rows."""
        if any(isinstance(each, Tensor) and _is_unknown(list(each.shape)) for each in pytree.tree_leaves(found)):
            raise DynamicOutputShapeException(getattr(func, "__name__", func))
        self._assume(getattr(func, "__name__", "").strip("_"), args, found)
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

    # --- selecting --------------------------------------------------------------------------------------------------

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
            return self._keep(rows, at, mask.reshape(-1))
        own = [each for each in items if isinstance(each, Tensor) and each in self.held]
        if not own:
            return NotImplemented
        first = next(number for number, each in enumerate(items) if isinstance(each, Tensor))
        return self._keep(func(x, index), first, self.held[own[0]][1])

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

    # --- coming together --------------------------------------------------------------------------------------------

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
        longer = torch.cat([x, torch.zeros_like(x[:1])])  # a row more, for what is not selected
        longer[(torch.where(mask, items[0], x.shape[0]), *items[1:])] = value
        x.copy_(longer[: x.shape[0]])
        return None

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


RULES: Mapping[str, Callable[..., Any]] = {
    "__getitem__": Selections.taken, "__setitem__": Selections.put,
    **dict.fromkeys(("index_add", "index_add_", "scatter_add", "scatter_add_"), Selections.added),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "softmax"), Selections.summed),
    "masked_select": Selections.kept,
    **dict.fromkeys(("cat", "concat", "concatenate"), Selections.joined),
}  # fmt: skip
