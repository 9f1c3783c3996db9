"""Second implementations of the operators in numpy and scipy, by people who never saw reference.py.

`python -m tests.operators.second` prints how far each is from the reference, in fp64, relative to the result's size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.ndimage
import scipy.sparse
import scipy.special

Second = Callable[..., Any]
"""Gets dims, scalars and arrays by name; returns the output or outputs by name."""


def _stencil_2d(u: np.ndarray, rate: np.ndarray, **_: object) -> np.ndarray:
    v = u.copy()
    v[1:-1, 1:-1] += rate * scipy.ndimage.laplace(u)[1:-1, 1:-1]
    return v


def _hinge(predicted: np.ndarray, target: np.ndarray, **_: object) -> np.ndarray:
    return np.where(target == 1, np.maximum(0, 1 - predicted), np.maximum(0, 1 + predicted))


def _simpson(samples: np.ndarray, low: float, high: float, intervals: int, **_: object) -> np.ndarray:
    import scipy.integrate

    end = intervals // 2 * 2
    step = (high - low) / intervals
    return np.asarray(scipy.integrate.simpson(samples[: end + 1], dx=step) if end else 0.0)


SECOND: Mapping[str, Second] = {
    "softmax": lambda x, **_: scipy.special.softmax(x, axis=1),
    "rms_norm": lambda x, weight, bias, eps, cols, **_: (
        weight * x / np.hypot(np.linalg.norm(x, axis=1, keepdims=True) / math.sqrt(cols), math.sqrt(eps)) + bias
    ),
    "gelu": lambda x, **_: x * scipy.special.ndtr(x),
    "relu": lambda x, **_: np.where(x > 0, x, 0),
    "leaky_relu": lambda x, alpha, **_: np.maximum(x, alpha * x),
    "elu": lambda x, alpha, **_: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0)),
    "selu": lambda x, alpha, scale, **_: scale * (np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))),
    "sigmoid": lambda x, **_: scipy.special.expit(x),
    "row_tanh": lambda x, **_: np.tanh(x),
    "matrix_mul": lambda a, b, **_: np.einsum("il,lj->ij", a, b, optimize=True),
    "spmv_csr": lambda row_offsets, col_indices, values, x, rows, cols, **_: (
        scipy.sparse.csr_matrix((values, col_indices, row_offsets), shape=(rows, cols)) @ x
    ),
    "stencil_2d": _stencil_2d,
    "prefix_sum": lambda x, **_: np.array(list(itertools.accumulate(x))),
    "cross_entropy_loss": lambda predicted, target, **_: (
        -scipy.special.xlogy(target, np.maximum(predicted, 1e-8)).sum()
    ),
    "hinge_loss": _hinge,
    "mse_loss": lambda x, y, n, **_: np.linalg.norm(x - y) ** 2 / n,
    "dot_product": lambda x, y, **_: np.einsum("i,i", x, y),
    "vector_add": lambda x, y, **_: np.stack([x, y]).sum(axis=0),
    "matrix_scalar_mul": lambda x, alpha, **_: np.multiply(x, alpha),
    "matrix_copy": lambda x, **_: x,
    "matrix_transpose": lambda x, **_: np.einsum("rc->cr", x),
    "reverse_array": lambda x, **_: x[::-1],
    "monte_carlo_int": lambda samples, low, high, **_: np.mean(samples) * (high - low),
    "simpson_int": _simpson,
}
