"""Distributions of a problem's tensors: seen where torch's factories are called, or in drawn values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from operators.importing.symbols import plain, value_of

Drawn = tuple[str, Any, Any]
"""`uniform`, `normal`, `integers` or `constant`, with two numbers, which may be symbolic for `integers`."""
_COPIES = {"_to_copy", "clone", "detach", "alias", "copy", "contiguous", "squeeze", "unsqueeze"}


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
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
        before = self.of(args[0])
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
