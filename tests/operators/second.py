"""Second implementations of the operators in numpy and scipy, by people who never saw reference.py.

`python -m tests.operators.second` prints how far each is from the reference, in fp64, relative to the result's size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.fft
import scipy.integrate
import scipy.linalg.blas
import scipy.ndimage
import scipy.signal
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
    end = intervals // 2 * 2
    step = (high - low) / intervals
    return np.asarray(scipy.integrate.simpson(samples[: end + 1], dx=step) if end else 0.0)


def _stencil_3d(u: np.ndarray, rate: np.ndarray, **_: object) -> np.ndarray:
    v, inner = u.copy(), (slice(1, -1),) * 3
    v[inner] += rate * scipy.ndimage.laplace(u)[inner]
    return v


def _rope(x: np.ndarray, rows: int, pairs: int, base: float, **_: object) -> np.ndarray:
    angle = np.outer(np.arange(rows), np.exp(-np.arange(pairs) / pairs * math.log(base)))
    turned = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
    return np.stack((turned.real, turned.imag), axis=2).reshape(x.shape)


def _merged(
    v_a: np.ndarray, lse_a: np.ndarray, v_b: np.ndarray, lse_b: np.ndarray, **_: object
) -> dict[str, np.ndarray]:
    lse = scipy.special.logsumexp([lse_a, lse_b], axis=0)
    parts = [np.exp(part - lse).T[..., None] * v for part, v in ((lse_a, v_a), (lse_b, v_b))]
    return {"v": parts[0] + parts[1], "lse": lse}


def _fused(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float, cols: int, **_: object) -> Any:
    total = x + residual
    size = np.hypot(np.linalg.norm(total, axis=1, keepdims=True) / math.sqrt(cols), math.sqrt(eps))
    return {"residual": total, "x": weight * total / size}


def _normalized(axis: int) -> Second:
    return lambda x, weight, bias, eps, **_: (
        weight * (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps) + bias
    )


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, dim: int, **_: object) -> np.ndarray:
    return np.einsum("ij,jc->ic", scipy.special.softmax(np.einsum("il,jl->ij", q, k) / math.sqrt(dim), axis=1), v)


def _triangle(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, width: int, **_: object) -> np.ndarray:
    y = np.empty_like(q)
    for b, h in np.ndindex(q.shape[:2]):
        scores = np.einsum("id,jd->ijd", q[b, h], k[b, h]) / math.sqrt(width)
        scores[mask[b] > 0.5] = -np.inf
        y[b, h] = np.einsum("ijd,jd->id", scipy.special.softmax(scores, axis=1), v[b, h])
    return y


def _triangle_product(
    x: np.ndarray, mask: np.ndarray, left_weight: np.ndarray, right_weight: np.ndarray, left_gate: np.ndarray,
    right_gate: np.ndarray, out_gate: np.ndarray, out_weight: np.ndarray, eps: float, **others: Any,
) -> np.ndarray:  # fmt: skip
    def side(weight: np.ndarray, gate: np.ndarray) -> np.ndarray:
        return np.where(mask[..., None] > 0, scipy.special.expit(np.inner(z, gate)) * np.inner(z, weight), 0)

    norm, second = _normalized(-1), {name: others[f"out_norm_{name}"] for name in ("weight", "bias")}
    z = norm(x, others["norm_weight"], others["norm_bias"], eps)
    left, right = side(left_weight, left_gate), side(right_weight, right_gate)
    t = norm(np.einsum("bikd,bjkd->bijd", left, right, optimize=True), **second, eps=eps)
    return np.inner(t * scipy.special.expit(np.inner(z, out_gate)), out_weight)


def _pooled(x: np.ndarray, size: int, stride: int, pad: int, **_: object) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return np.asarray(windows[:, :, ::stride, ::stride].max(axis=(4, 5)))


def _coo(row_indices: Any, col_indices: Any, values: Any, x: Any, rows: int, cols: int, **_: object) -> Any:
    return scipy.sparse.coo_matrix((values, (row_indices, col_indices)), shape=(rows, cols)) @ x


def _csr(row_offsets: Any, col_indices: Any, values: Any, x: Any, rows: int, cols: int, **_: object) -> Any:
    return scipy.sparse.csr_matrix((values, col_indices, row_offsets), shape=(rows, cols)) @ x


def _csc(col_offsets: Any, row_indices: Any, values: Any, x: Any, rows: int, cols: int, **_: object) -> Any:
    return scipy.sparse.csc_matrix((values, row_indices, col_offsets), shape=(rows, cols)) @ x


def _ell(col_ids: Any, values: Any, x: Any, rows: int, cols: int, **_: object) -> Any:
    row, slot = np.nonzero(col_ids >= 0)
    return scipy.sparse.coo_matrix((values[row, slot], (row, col_ids[row, slot])), shape=(rows, cols)) @ x


def _fft(x_re: np.ndarray, x_im: np.ndarray, **_: object) -> dict[str, np.ndarray]:
    y = scipy.fft.fft(x_re + 1j * x_im)
    return {"y_re": y.real, "y_im": y.imag}


def _top_k(x: np.ndarray, n: int, k: int, **_: object) -> dict[str, np.ndarray]:
    indices = np.lexsort((np.arange(n), -x))[:k]
    return {"values": x[indices], "indices": indices.astype(np.int32)}


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
    "spmv_csr": _csr,
    "spmv_coo": _coo,
    "spmv_csc": _csc,
    "spmv_ell": _ell,
    "spmm_csr": _csr,
    "spmm_coo": _coo,
    "spmm_csc": _csc,
    "spmm_ell": _ell,
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
    "square_matrix_mul": lambda a, b, **_: np.einsum("il,lj->ij", a, b, optimize=True),
    "matrix_vector_mul": lambda a, x, **_: np.einsum("ij,j->i", a, x),
    "matrix_power": lambda a, power, **_: np.linalg.matrix_power(a, power),
    "high_order_contraction": lambda a, b, **_: np.tensordot(a, b, axes=([1, 3], [0, 2])),
    "layer_norm": _normalized(1),
    "batch_norm": _normalized(0),
    "swiglu": lambda gate, value, beta, **_: gate * scipy.special.expit(beta * gate) * value,
    "silu_and_mul": lambda x, cols, **_: x[:, :cols] * scipy.special.expit(x[:, :cols]) * x[:, cols:],
    "rope": _rope,
    "merge_attn_states": _merged,
    "fused_add_rms_norm": _fused,
    "softmax_attention": _attention,
    "triangle_attention": _triangle,
    "triangle_multiplication": _triangle_product,
    "conv_1d": lambda x, w, **_: np.correlate(x, w, "valid"),
    "conv_2d": lambda x, w, **_: scipy.signal.correlate2d(x, w, "valid"),
    "max_pooling_2d": _pooled,
    "stencil_3d": _stencil_3d,
    "fft": _fft,
    "sorting": lambda x, **_: np.sort(x),
    "top_k": _top_k,
    "swish": lambda x, **_: x * scipy.special.expit(x),
    "hard_sigmoid": lambda x, **_: np.interp(x, [-3, 3], [0, 1]),
    "softplus": lambda x, **_: np.logaddexp(0, x),
    "softsign": lambda x, **_: np.divide(x, np.abs(x) + 1),
    "hard_tanh": lambda x, **_: np.clip(x, -1, 1),
    "log_softmax": lambda x, **_: scipy.special.log_softmax(x, axis=1),
    "matrix_mul_tn": lambda a, b, **_: np.matmul(a.T, b),
    "matrix_mul_nt": lambda a, b, **_: np.inner(a, b),
    "matrix_mul_tt": lambda a, b, **_: np.matmul(b, a).T,
    "batched_matrix_mul": lambda a, b, **_: np.matmul(a, b),
    "tensor_matrix_mul": lambda a, b, **_: np.tensordot(a, b, axes=(2, 0)),
    "diagonal_matrix_mul": lambda diagonal, x, **_: (x.T * diagonal).T,
    "symmetric_matrix_mul": lambda a, b, **_: np.inner(a, b),
    "upper_triangular_matrix_mul": lambda a, b, **_: scipy.linalg.blas.dtrmm(1.0, a, b),
    "lower_triangular_matrix_mul": lambda a, b, **_: scipy.linalg.blas.dtrmm(1.0, a, b, lower=1),
}


def deviation(name: str) -> float:
    """The largest |second - reference| on hidden shapes and finite inputs, relative to the largest |reference|."""
    import torch

    from fitness.oracle.inputs import draw, families
    from operators.catalog import functions, load

    operator, largest = load(name), 0.0
    offers = functions(operator.folder)
    for seed, workload in enumerate(operator.hidden):
        for family in (f for f in families(offers) if f != "specials"):
            inputs = draw(
                operator, offers, dims=workload.dims, dtype="fp64", family=family, rng=np.random.default_rng(seed)
            )
            values = {**inputs.dims, **{s.name: s.value for s in operator.scalars}}
            right = offers.reference(values | {n: t.clone() for n, t in inputs.tensors.items()})
            found = SECOND[name](**values, **{n: t.numpy().copy() for n, t in inputs.tensors.items()})
            found = found if isinstance(found, Mapping) else {operator.outputs[0].name: found}
            for output, y in right.items():
                size = float(y.double().abs().max()) if y.numel() else 0.0
                if size:
                    distance = torch.from_numpy(np.array(found[output], dtype=np.float64)) - y.double()
                    largest = max(largest, float(distance.abs().max()) / size)
    return largest


if __name__ == "__main__":
    for operator in sorted(SECOND):
        print(f"{operator:24} {deviation(operator):.1e}", flush=True)
