"""Whole outputs against their answers, at memory speed: the Python half of the comparisons in native/checks.cpp.

Arrays are numpy's, or torch's on the CPU. A target whose outputs lie elsewhere says with `compare_by` what computes the
same there.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fitness.sandbox.native import checks


class _Judgement(ctypes.Structure):
    """Mirror of `Judgement` in checks.cpp."""

    _fields_ = (
        ("max_ratio", ctypes.c_double),
        ("square_sum", ctypes.c_double),
        ("mismatches", ctypes.c_int64),
        ("first_bad", ctypes.c_int64),
        ("sign_changes", ctypes.c_int64),
    )


@lru_cache
def _library() -> ctypes.CDLL:
    library = checks()
    pointer, int64, double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    for name in ("evo_judge_f32", "evo_judge_f64"):
        getattr(library, name).argtypes = (pointer, pointer, pointer, int64, ctypes.POINTER(_Judgement))
        getattr(library, name).restype = None
    library.evo_bound.argtypes = (pointer, pointer, int64, *(double,) * 7, pointer, pointer)
    library.evo_bound.restype = None
    return library


@dataclass(frozen=True)
class Judgement:
    """How far an output was from its answer."""

    max_ratio: float
    """Largest error as a multiple of what is allowed; infinite for NaN where a number belongs."""
    rms_ratio: float
    """Root mean square of the same ratios, where finite."""
    mismatches: int
    """Elements whose ratio exceeds 1."""
    first_bad: int | None
    independent: int
    """About how many of the errors are independent of their neighbours, from how often the sign changes."""


@dataclass(frozen=True)
class Bound:
    """What each element of an output may be off by, and what rounding usually makes of it."""

    allowed: Any
    """fp64, an array or a tensor like the answers."""
    least_rms: float
    """Root mean square, relative to `allowed`, of the rounding of right results to the output's type."""
    usual_rms: float
    """The same with the rounding errors of a plain sum."""
    leaning_rms: float = 0.0
    """The same of a sum whose roundings all go the same way."""


@dataclass(frozen=True)
class Comparisons:
    """How arrays of one type are compared."""

    judge: Callable[[Any, Any, Any], Judgement]
    """See `judge` below."""
    bound: Callable[..., Bound]
    """See `bound` below, whose numbers follow the two arrays in their order."""


_comparisons: dict[type, Comparisons] = {}


def compare_by(kind: type, comparisons: Comparisons) -> None:
    """It has arrays of this type, and of types derived from it, compared so from now on."""
    _comparisons[kind] = comparisons


def _of(array: Any) -> Comparisons:
    return next(_comparisons[kind] for kind in type(array).__mro__ if kind in _comparisons)


def _here(array: Any) -> Any:
    """A tensor on the CPU as numpy sees it."""
    return array.numpy() if isinstance(array, torch.Tensor) and array.device.type == "cpu" else array


def place_of(first: int, shape: Sequence[int]) -> list[int]:
    """An element's index along every axis, by its place in the flat array."""
    return [int(i) for i in np.unravel_index(first, shape)] if shape else []


def judge(y: Any, expected: Any, allowed: Any) -> Judgement:
    """One output against fp64 answers and allowed errors of the same size.

    An answer that is not finite must be met exactly; where `allowed` is infinite, anything goes.
    """
    y, expected, allowed = (_here(array) for array in (y, expected, allowed))
    return _of(expected).judge(y, expected, allowed)


def bound(
    y: Any,
    s: Any,
    *,
    rounding: float,
    growth: float,
    eta: float,
    y_limit: float,
    s_limit: float,
    usual_rounding: float,
    usual_growth: float,
) -> Bound:
    """|error| <= rounding |y| + growth s + eta, in fp64.

    Any finite result is allowed where |y| or s exceeds its limit: it depends on the order of the operations whether
    those overflow. Nothing but the same value is where y is not finite.
    """
    numbers = (rounding, growth, eta, y_limit, s_limit, usual_rounding, usual_growth)
    return _of(y).bound(y, s, *numbers)


def _judge_array(y: Any, expected: Any, allowed: Any) -> Judgement:
    if y.dtype not in (np.float32, np.float64) or not y.flags.c_contiguous:
        y = np.ascontiguousarray(y, dtype=np.float64)
    if not y.size == expected.size == allowed.size:
        raise ValueError(f"{y.size} values against {expected.size} answers and {allowed.size} bounds")
    found = _Judgement()
    run = _library().evo_judge_f32 if y.dtype == np.float32 else _library().evo_judge_f64
    run(y.ctypes.data, expected.ctypes.data, allowed.ctypes.data, y.size, ctypes.byref(found))
    return Judgement(
        float(found.max_ratio),
        math.sqrt(found.square_sum / max(y.size, 1)),
        int(found.mismatches),
        int(found.first_bad) if found.first_bad >= 0 else None,
        min(2 * int(found.sign_changes) + 1, y.size),
    )


def _bound_array(y: Any, s: Any, *numbers: float) -> Bound:
    if y.size != s.size:
        raise ValueError(f"{y.size} values and {s.size} magnitudes")
    allowed, sums = np.empty(y.size), np.empty(2)
    _library().evo_bound(y.ctypes.data, s.ctypes.data, y.size, *numbers, allowed.ctypes.data, sums.ctypes.data)
    least, usual = np.sqrt(sums / max(y.size, 1))
    return Bound(allowed, float(least), float(usual))


compare_by(np.ndarray, Comparisons(_judge_array, _bound_array))
