"""Rounding errors of what kernels are made of, counted in roundoffs: units of the accumulator's unit roundoff.

`magnitude()` of an operator adds them up and halves the sum, since the error bound allows b = 2 roundoffs of S.
"""

from __future__ import annotations

import torch
from torch import Tensor

from operators.dtypes import DType, resolve_dtype

EXP_ULPS = 4
"""Largest error of a fast single-precision exponential: glibc's vector `expf`, or `exp2` of a scaled argument."""
LOG_ULPS = 4
"""The same of a logarithm, near 1 in units of 1: glibc's vector variant, CUDA's `__logf`."""
ROOT_ULPS = 2
"""The same of a reciprocal square root: CUDA's `rsqrtf`."""
SINE_ULPS = 4
"""The same of sine and cosine, in units of 1."""
DIVISION_ULPS = 2
"""The same of a quotient: CUDA's `__fdividef`."""
NORMAL_MIN = {"fp64": 2.0**-1022, "fp32": 2.0**-126}
"""Below it the accumulator's numbers may be flushed to zero."""


def exp_error(argument: Tensor) -> Tensor:
    """Relative, of exp(argument): its own, and what one rounding each of the argument and its scaling for exp2 do."""
    return 2 * EXP_ULPS + 2 * argument.abs()


def sigmoid_error(x: Tensor) -> Tensor:
    """Relative, of 1 / (1 + exp(-x)): the exponential's share of the sum, the sum, the quotient."""
    return torch.sigmoid(-x) * exp_error(x) + 1 + 2 * DIVISION_ULPS


def flushed(dtype: DType) -> float:
    """The loss, in roundoffs of 1, where a factor underflows."""
    accumulator = resolve_dtype("ACC", dtype.name)
    return NORMAL_MIN[accumulator.name] / accumulator.unit_roundoff
