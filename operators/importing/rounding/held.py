"""Rounding errors that go with tensors, in roundoffs of the accumulator, by the memory that holds the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from operators.dtypes import ACCUMULATOR, DTYPES, DType
from operators.importing.graphs.graph import TORCH_DTYPES
from operators.importing.graphs.mode import DispatchMode
from operators.shared.errors import NORMAL_MIN

FEW_TERMS = 16
"""Sums of so many terms or fewer are off by all their roundings; of more, by the root of their number."""
ALIKE = 1 / 3
"""Share of the roundoffs of equal terms that a bound needs: half of them are added to less than half of the sum."""
LARGEST = 1e300
"""Largest magnitude: the result may be any number, and none."""
FREED = 8
"""Tensors that are no more, and whose errors may be there yet: to look for them at each operator takes longer than
most operators."""
INFINITE = 1e299
"""Magnitude where the result may be infinite, on the side where it is."""


class HeldErrors(DispatchMode):  # type: ignore[no-untyped-call]
    """The errors of tensors, and what sums of them are off by."""

    def __init__(self, dtype: DType | str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        element = dtype if isinstance(dtype, DType) else DTYPES[dtype]
        self.roundoff = DTYPES[ACCUMULATOR[element.name]].unit_roundoff
        self.granted = 2 * self.roundoff
        """Error that the bound grants a result for S = 1."""
        self.least = NORMAL_MIN[ACCUMULATOR[element.name]]
        """A smaller result may be flushed to zero, or come of what was."""
        ratio = element.unit_roundoff / self.roundoff
        self.stored = ratio / 2 if ratio > 1 else 0.0
        """Error of storing a result, relative to it, in roundoffs over two."""
        self.element = TORCH_DTYPES[element.name]
        self.most = torch.finfo(self.element).max
        self.sum_type = TORCH_DTYPES[ACCUMULATOR[element.name]]
        self.most_sum = torch.finfo(self.sum_type).max
        """A larger result, or sum on the way to one, is infinite: what is made of it may be any number."""
        self.longest = 1
        self._held: dict[int, tuple[StorageWeakRef, Tensor]] = {}
        self._most = FREED

    def of(self, x: Any) -> Tensor | None:
        """The errors of a tensor; None: it has none."""
        if not isinstance(x, Tensor) or x.untyped_storage()._cdata not in self._held:
            return None
        return self._held[x.untyped_storage()._cdata][1].as_strided(x.size(), x.stride(), x.storage_offset())

    def sized(self, x: Tensor) -> Tensor:
        """The same, zeros where it has none."""
        found = self.of(x)
        return torch.zeros(x.shape, dtype=torch.float64, device=x.device) if found is None else found

    def lost(self, x: Any) -> Tensor | None:
        """Where a tensor may be infinite, so that even its product with 0 is any number; None: nowhere."""
        own = self.of(x)
        found = None if own is None else own * self.granted > self.most_sum
        return found if found is not None and found.any() else None

    def keep(self, x: Tensor, error: Tensor | None) -> None:
        """Let a tensor have these errors."""
        storage = x.untyped_storage()
        if storage._cdata not in self._held:
            if error is None:
                return
            self._drop_freed()
            count = storage.nbytes() // x.element_size()
            memory = torch.zeros(count, dtype=torch.float64, device=x.device)
            self._held[storage._cdata] = StorageWeakRef(storage), memory  # type: ignore[no-untyped-call]
        shadow = self._held[storage._cdata][1].as_strided(x.size(), x.stride(), x.storage_offset())
        shadow.copy_(shadow.new_zeros(()) if error is None else bounded(error))

    def _drop_freed(self) -> None:
        """Forget memory that is no more, some of it at a time. Its address is no other's meanwhile."""
        if len(self._held) >= self._most:
            self._held = {key: each for key, each in self._held.items() if not each[0].expired()}  # type: ignore[no-untyped-call]
            self._most = len(self._held) + FREED

    def keep_floating(self, y: Tensor, error: Tensor | None, exact: bool = False) -> None:
        """The same for a result that is stored, and rounded unless it is exact: what leaves the range is any number."""
        size = torch.where(y.isinf(), 0.0, y.double().abs())
        over = y.isfinite() & (size > self.most)
        if error is None and over.any():
            error = torch.zeros_like(size)
        if error is not None:
            if not exact:
                error = error + self.stored * size + torch.where(size < self.least, size / (2 * self.roundoff), 0.0)
            self.keep(y, torch.where(over, error.clamp(min=INFINITE), error))

    def where_it_fits(self, error: Tensor, size: Tensor, y: Tensor) -> Tensor:
        """The errors of sums with terms of a total size, the largest where a sum on the way may leave the range."""
        return torch.where((size > self.most_sum) & y.isfinite(), LARGEST, error)

    def magnitude(self, y: Tensor) -> Tensor:
        """S of a result."""
        last = self.stored * torch.nan_to_num(y.double().abs(), nan=0.0, posinf=0.0)
        error = (self.sized(y) - last).clamp(min=0) if self.of(y) is not None else self.sized(y)
        return error / self.unit

    @property
    def unit(self) -> float:
        """Roundoffs of the longest sum so far."""
        return growth(self.longest)

    def sums(self, terms: int) -> float:
        """Roundoffs of a sum of so many terms."""
        self.longest = max(self.longest, terms)
        return growth(terms)

    def leaning(self, x: Tensor, along: Sequence[int]) -> Any:
        """Roundoffs of the sums of x along some axes, which are kept: the roundings of equal terms all go one way, and
        a clamp makes many of the largest or of the smallest."""
        terms = self.sums(length(x, along))
        if length(x, along) <= FEW_TERMS:
            return terms
        ends = x.amax(list(along), True), x.amin(list(along), True)
        alike = [(x == end).double().sum(list(along), True) * (end != 0) for end in ends]
        return (ALIKE * torch.maximum(*alike)).clamp(min=terms)


def bounded(error: Tensor) -> Tensor:
    """Errors none of which is above LARGEST."""
    return torch.nan_to_num(error.double(), nan=LARGEST, posinf=LARGEST).clamp_(max=LARGEST)


def growth(terms: int) -> float:
    """Roundoffs of a sum of so many terms, relative to their magnitudes' sum."""
    return float(terms) if terms <= FEW_TERMS else math.sqrt(terms)


def axes(x: Tensor, dims: Any) -> list[int]:
    """The axes that an operator's argument names, all for None, counted from the first."""
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(x.dim()))
    return [d % max(x.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims)]


def length(x: Tensor, along: Sequence[int]) -> int:
    """The number of elements along some axes."""
    return math.prod(x.shape[d] for d in along) if x.dim() else 1
