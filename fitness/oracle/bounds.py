"""Error bounds: how far from the right answer a result may be, by rounding-error analysis, and how far outputs are.

Answers and outputs are flat: numpy arrays, or tensors where they lie on a GPU. They are compared at memory speed: here
is the Python half of native/checks.cpp, for numpy's arrays and torch's on the CPU. A target whose outputs lie elsewhere
says with `compare_by` what computes the same there.

`python -m tests.bench.calibration` shows the margins that they leave between right kernels and wrong ones.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fitness.oracle.inputs import FEW, TORCH_DTYPES
from fitness.sandbox.native import checks
from operators.definition.spec import LONGEST_CHAIN
from operators.dtypes import DType

A_OUT = 1.01
"""One rounding to the output type, and a little."""
B_SUM = 2.0
REFERENCE_SLACK = {"fp64": 2.0}
"""Both of these are multiplied with it: in fp64 the reference errs as much as a kernel."""
LINEAR_FAMILIES = ("scaled", "structured", "integers", "few", "specials", "mixture")
"""Equal terms make every rounding of a sum go the same way: the bound then grows with K, not with its root."""
FEW_TERMS = 16
"""Number of terms up to which the bound grows with K for all inputs: roundings are too few to cancel reliably."""
USUAL_CHAIN = 2**12
"""Number of terms up to which the usual error grows with their root, as that of sums of blocks does."""
COARSE_DRIFT = 1 / 16
"""Roundoffs per term of sums over 16-bit inputs: what is cut off their products has few bits, which are not evenly
spread (those of squares, modulo 8, are 0, 1 and 4), so that the roundings of a long sum lean to one side."""
LONG_DRIFT = 1 / 256
"""Roundoffs per term at most, else K u of them: terms that are small beside the last bits of a long sum of one sign are
cut off more often than rounded up. A plain fp32 sum of 2**16 squares so loses 100 roundoffs."""
TENSOR_DRIFT = 1 / 32
"""Rms of what products of 16-bit inputs on tensor cores may lose, in sqrt(K) roundoffs of S: they cut off a sum after
every 16 terms instead of rounding it, always towards zero. An H100's, of 4096 terms that cancel, lose 1/74."""
SPLIT_DRIFT = 1 / 16
"""The same where products of fp32 are made on tensor cores, in parts: instructions for TF32 take 8 terms at a time, and
an H100's, of 4096 terms, lose 1/19; three of them in one accumulator lose three times that. RMS_LIMIT grants four times
as much. A lone TF32 product errs less from some K on: integers that it cannot hold, of the family `few`, find it."""
SPLIT_LEAN = 1 / 16
"""Roundoffs of |y| that those lose per term, as every cut goes towards zero and cuts what has been summed: an H100's
lose 1/19 where terms have one sign, three in one accumulator three times that. Again four times as much is granted."""
SMALLEST_SUBNORMAL = {"fp64": 2.0**-1074, "fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
EXACT_HEADROOM = 64
"""Factor by which sums of integers must stay below what the accumulator holds, for algorithms such as Strassen's."""
FEW_HEADROOM = 4
"""The same where all but a few terms are zero: what carries them has digits that leave no more."""

MEASURED_FACTOR = 4.0
"""A `measured` bound as a multiple of the largest error of the trusted implementations, relative to S, ..."""
MEASURED_LEAST = 4.0
"""... ... the least of it in roundoffs (two units in the last place, as vector math has them), ..."""
MEASURED_MOST = 16.0
"""... ... and the most of it as a multiple of the error of a plain sum: what errs more is no measure."""

RMS_LIMIT = {"fp64": 4.0, "fp32": 4.0, "fp16": 1.5, "bf16": 1.5}
"""By output type. Vector math with errors of 4 ulp is legal, so that fp32 and fp64 get more."""
USUAL_OUT = 0.42
"""Rms of one rounding, in roundoffs."""
USUAL_SUM = 0.25
"""Rms of the rounding errors of a plain sum of K terms of one size, in sqrt(K) roundoffs."""
DRIFTING_FAMILIES = ("structured", "mixture")
"""Sums of terms in order, or of equal ones, lean to one side in one algorithm and not in another: no more is asked of
any than of a plain sum whose roundings all do. (A softmax that corrects its sum with every larger term of a sorted row
multiplies by factors so near to 1 that they round alike: it loses 0.2 roundoffs a term.)"""
SPLIT_PRODUCT = 8.0
"""Roundoffs that products of two fp32 numbers lose at most, each taken as two of TF32: 2 for what is left of each
number, 4 for the product of the lower parts, which is left out (CUTLASS, OpMultiplyAddFastF32; Ootomo and Yokota,
"Recovering single precision accuracy from Tensor Cores", IJHPCA 36, 2022). Lone TF32 products lose up to 2**13."""
USUAL_WEIGHT = 8
"""Weight of the usual error: it counts as USUAL_WEIGHT / n errors beside the n independent ones that trusted
implementations made."""


@dataclass(frozen=True)
class Precision:
    """The types that decide on an output's bound."""

    element: DType
    """Type of the output's elements."""
    accumulator: DType
    storage: DType
    """T, of the inputs."""

    @property
    def in_parts(self) -> bool:
        """Whether products of two such numbers may be made of their parts, on tensor cores where there are some."""
        return self.storage.name == self.accumulator.name == "fp32"

    @property
    def slack(self) -> float:
        """The factor by which bounds grow because the reference itself is rounded; 1 where it is more precise."""
        return REFERENCE_SLACK.get(self.element.name, 1.0)


def growth(precision: Precision, terms: int, family: str) -> float:
    """The growth with K of the rounding errors of a sum of K terms, in roundoffs of S."""
    chain = min(terms, LONGEST_CHAIN)
    if family in LINEAR_FAMILIES or terms <= FEW_TERMS:
        return max(chain, math.sqrt(terms))
    drift = COARSE_DRIFT if precision.storage.size < 4 else 0.0
    long_drift = min(precision.accumulator.unit_roundoff * chain, LONG_DRIFT)
    return math.sqrt(terms) + (drift + long_drift) * chain


def element_bound(
    precision: Precision,
    y64: Any,
    s: Any,
    *,
    terms: int,
    roundoffs: float,
    sums: bool = False,
    tensor_cores: bool = False,
) -> ErrorBound:
    """|y - y64| <= a u |y64| + roundoffs u_acc S + eta, for every element.

    `sums`: products of fp32 that are summed may be made of numbers in parts, on `tensor_cores` where there are some.
    """
    element, accumulator = precision.element, precision.accumulator
    out, acc = (torch.finfo(TORCH_DTYPES[t.name]) for t in (element, accumulator))
    leaning = USUAL_SUM / B_SUM * roundoffs / precision.slack
    usual = min(leaning, USUAL_SUM * math.sqrt(USUAL_CHAIN))
    split = sums and precision.in_parts
    lean = SPLIT_LEAN * min(terms, LONGEST_CHAIN) if split and tensor_cores else 0.0
    rounding = precision.slack * A_OUT * element.unit_roundoff
    found = bound(
        y64,
        s,
        rounding=rounding + RMS_LIMIT[element.name] * lean * accumulator.unit_roundoff,
        growth=(roundoffs + (SPLIT_PRODUCT if split else 0.0)) * accumulator.unit_roundoff,
        eta=SMALLEST_SUBNORMAL[element.name] + (terms + 1) * acc.smallest_normal,  # what underflows may be flushed
        y_limit=out.max * (1 - element.unit_roundoff),
        s_limit=acc.max / 2,
        usual_rounding=USUAL_OUT * element.unit_roundoff,
        usual_growth=usual * accumulator.unit_roundoff,
    )
    leaning_rms = found.least_rms + (found.usual_rms - found.least_rms) * leaning / usual
    least_rms = found.least_rms
    if precision.storage.size == 2 or (split and tensor_cores):
        drift = SPLIT_DRIFT if split else TENSOR_DRIFT
        cut_off = drift * math.sqrt(min(terms, LONGEST_CHAIN)) / usual
        cut_off_y = lean * accumulator.unit_roundoff / (USUAL_OUT * element.unit_roundoff)
        least_rms = max(least_rms, min(found.usual_rms * cut_off, leaning_rms), found.least_rms * cut_off_y)
    return replace(found, least_rms=least_rms, leaning_rms=leaning_rms)


def analysed(precision: Precision, terms: int, family: str) -> float:
    """Roundoffs of S that rounding-error analysis allows the sums of an output."""
    return precision.slack * B_SUM * growth(precision, terms, family)


def measured(precision: Precision, terms: int, family: str, y64: Any, s: Any, trusted: Sequence[Any]) -> float:
    """Roundoffs of S that follow from the largest error of trusted outputs, of those that are finite where y64 is."""
    largest = _largest(precision, y64, s, trusted)
    plain = growth(precision, terms, family)
    return MEASURED_FACTOR * min(max(largest, MEASURED_LEAST, USUAL_SUM * plain), MEASURED_MOST * plain)


def naively(precision: Precision, terms: int, roundoffs: float, y64: Any, s: Any, naive: Sequence[Any]) -> float:
    """Roundoffs that are allowed, or what the naive kernel makes of a sum longer than others are granted."""
    if terms <= LONGEST_CHAIN:
        return roundoffs
    worst = precision.slack * B_SUM * terms
    return max(roundoffs, min(MEASURED_FACTOR * _largest(precision, y64, s, naive), worst))


def _largest(precision: Precision, y64: Any, s: Any, trusted: Sequence[Any]) -> float:
    """The largest error of trusted outputs, in roundoffs of S; of those that are finite where y64 is."""
    scale = abs(s).clip(min=float(np.finfo(np.float32).tiny))
    scale[~(scale < math.inf)] = math.inf
    errors = (judge(y, y64, scale).max_ratio / precision.accumulator.unit_roundoff for y in trusted)
    return max((error for error in errors if math.isfinite(error)), default=0.0)


def demand_exact(precision: Precision, limits: ErrorBound, y64: Any, s: Any, *, family: str) -> None:
    """Allow no error where all sums on the way, and the result, are integers that their types hold."""
    headroom = FEW_HEADROOM if family == FEW else EXACT_HEADROOM
    values, sums, allowed = (torch.as_tensor(array) for array in (y64, s, limits.allowed))
    rounded = values.to(TORCH_DTYPES[precision.element.name]).double()
    held = sums * headroom <= precision.accumulator.exact_integer_limit
    allowed[held & (rounded == values)] = 0.0


def rms_limit(
    precision: Precision,
    limits: ErrorBound,
    trusted: Sequence[Judgement],
    *,
    family: str = "nominal",
    naive: bool,
    one_of_many: bool = False,
) -> float:
    """The largest root mean square of error / allowed that passes.

    It is a multiple of what trusted outputs came to. Few errors, or many that depend on one (that of a row's sum), tell
    little: the fewer of them are independent, the more counts what is usual, where that is more, and the wider is the
    limit. What is usual is the least also without a `naive` kernel among the trusted, when it is not known what a plain
    sum costs, and where the reference errs as much as a kernel, so that those that add in its order seem to make no
    error at all. Where the inputs are `one_of_many`, of which the largest limit counts, those others show what chance
    does.
    """
    best = max((t for t in trusted if not t.mismatches), key=lambda t: t.rms_ratio, default=None)
    count, rms = (max(best.independent, 1), best.rms_ratio) if best else (1, 0.0)
    weight = USUAL_WEIGHT / count
    level = math.sqrt((count * rms**2 + weight * limits.usual_rms**2) / (count + weight))
    level = max(level, rms, limits.least_rms)
    if not naive or precision.slack > 1:
        level = max(level, limits.usual_rms)
    luck = 1.0 if one_of_many else 1 + 4 / math.sqrt(count)
    drift = limits.leaning_rms if family in DRIFTING_FAMILIES else 0.0
    return max(level * RMS_LIMIT[precision.element.name] * luck, drift)


def backward_limit(precision: Precision, moved: Judgement) -> float:
    """The same from a right result on inputs that were moved by one roundoff: no kernel needs to be better than
    that."""
    return moved.rms_ratio * RMS_LIMIT[precision.element.name]


# --- outputs against answers ------------------------------------------------------------------------------------------


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
    """Distance of an output from its answer."""

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
class ErrorBound:
    """Largest error of each element of an output, and the usual one of rounding."""

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
    """The comparison of arrays of one type."""

    judge: Callable[[Any, Any, Any], Judgement]
    """See `judge` below."""
    bound: Callable[..., ErrorBound]
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
) -> ErrorBound:
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


def _bound_array(y: Any, s: Any, *numbers: float) -> ErrorBound:
    if y.size != s.size:
        raise ValueError(f"{y.size} values and {s.size} magnitudes")
    allowed, sums = np.empty(y.size), np.empty(2)
    _library().evo_bound(y.ctypes.data, s.ctypes.data, y.size, *numbers, allowed.ctypes.data, sums.ctypes.data)
    least, usual = np.sqrt(sums / max(y.size, 1))
    return ErrorBound(allowed, float(least), float(usual))


compare_by(np.ndarray, Comparisons(_judge_array, _bound_array))
