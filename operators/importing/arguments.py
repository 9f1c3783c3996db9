"""Arguments of a recorded call, made anew: their types, sizes and ranges of values are those of the record.

Functions that a kernel was put into carry this module: it needs torch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

DTYPES = {
    "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64,
    "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "bool": torch.bool,
    "uint8": torch.uint8,
}  # fmt: skip


Sizes = Callable[[str, Mapping[str, Any]], list[Any]]


def argument(told: Mapping[str, Any], sizes: Sizes, name: str) -> Any:
    """Return an argument as a record describes it; `sizes` tells a tensor's by its name and what is told of it."""
    if "shape" in told:
        return _like(told, sizes(name, told))
    if "value" in told:
        return told["value"]
    if "float" in told:
        return float(told["float"])
    if "torch" in told:
        return getattr(torch, told["torch"])
    made = {key: argument(each, sizes, f"{name}_{key}") for key, each in members(told)}
    return made if "dict" in told else (list if "list" in told else tuple)(made.values())


def members(told: Mapping[str, Any]) -> Iterator[tuple[str | int, Mapping[str, Any]]]:
    """Yield the members of a list or table of arguments, as a record describes it."""
    yield from told["dict"].items() if "dict" in told else enumerate(told.get("list", told.get("tuple", ())))


def _like(told: Mapping[str, Any], shape: list[Any]) -> torch.Tensor:
    """A tensor of the recorded type, drawn from the range that its values had."""
    dtype = DTYPES[told["dtype"]]
    if dtype == torch.bool or "low" not in told:
        return drawn(shape, dtype)
    low, high = told["low"], told["high"]
    if not dtype.is_floating_point:
        return torch.randint(low, high + 1, shape, dtype=dtype)
    if low >= 0 and high > low:
        return torch.rand(shape, dtype=dtype).mul(high - low).add(low)
    if high > low:
        return torch.randn(shape, dtype=dtype).mul(told["std"]).add(told["mean"])
    return torch.full(shape, low, dtype=dtype)


def drawn(shape: list[Any], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of normal numbers, or of zeros and ones."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    return torch.randn(shape, dtype=dtype) if dtype.is_floating_point else torch.randint(0, 2, shape, dtype=dtype)
