"""AlphaFold 3's triangle multiplicative update along outgoing edges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType, resolve_dtype
from operators.relations import Relation, permuted, scaled
from operators.shared.errors import ROOT_ULPS, sigmoid_error
from operators.shared.norms import affine_magnitude, standardized

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
CHUNK = 1 << 24
"""Elements that are computed at once."""
FEW_TERMS = 16
"""Number of terms up to which the roundings of a sum may all add up."""
INDEPENDENT = 3.0
"""Factor by which the sum of independent errors may exceed the root of the sum of their squares."""
WEIGHTS = (
    "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate",
    "out_norm_weight", "out_norm_bias", "out_weight",
)  # fmt: skip


def inputs(
    batch: int, length: int, dtype: DType, rng: np.random.Generator, family: str, device: torch.device
) -> dict[str, Tensor]:
    """Draw a mask of zeros and ones; the one that is timed has ones alone."""
    kept = drawing.uniform((batch, length, length), rng, device) >= (0 if family == "nominal" else rng.random())
    return {"mask": kept.to(TORCH_DTYPES[dtype.name])}


def reference(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_weight: Tensor, right_weight: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_weight: Tensor, eps: float,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x)
    for b in range(len(x)):
        right = torch.empty((*mask.shape[1:], len(right_weight)), dtype=x.dtype, device=x.device)
        for rows in _parts(x, right):
            z = standardized(x[b, rows], eps, -1) * norm_weight + norm_bias
            right[rows] = (z @ right_weight.T) * torch.sigmoid(z @ right_gate.T) * mask[b, rows, :, None]
        for rows in _parts(x, right):
            z = standardized(x[b, rows], eps, -1) * norm_weight + norm_bias
            left = (z @ left_weight.T) * torch.sigmoid(z @ left_gate.T) * mask[b, rows, :, None]
            normed = standardized(_products(left, right), eps, -1) * out_norm_weight + out_norm_bias
            y[b, rows] = (normed * torch.sigmoid(z @ out_gate.T)) @ out_weight.T
    return y


def magnitude(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_weight: Tensor, right_weight: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_weight: Tensor, eps: float, dtype: DType,
) -> Tensor:  # fmt: skip
    """S is the error of the last product over twice its growth: errors are followed from step to step.

    Those that a sum inherits come from different roundings, and add up as the root of the sum of their squares.
    """
    step, s = _Steps.of(dtype), torch.empty_like(x)
    terms = _growth(max(x.shape[2], x.shape[3], len(right_weight)))
    for b in range(len(x)):
        parts: list[_Inexact] = []
        for rows in _parts(x, right_weight):
            z = step.normed(x[b, rows], norm_weight, norm_bias, eps)
            parts.append(step.gated(step.product(z, right_weight), step.product(z, right_gate), mask[b, rows]))
        right = _Inexact(torch.cat([part.value for part in parts]), torch.cat([part.error for part in parts]))
        del parts
        for rows in _parts(x, right_weight):
            z = step.normed(x[b, rows], norm_weight, norm_bias, eps)
            left = step.gated(step.product(z, left_weight), step.product(z, left_gate), mask[b, rows])
            normed = step.renormed(step.pairs(left, right), out_norm_weight, out_norm_bias, eps)
            gated = step.gated(normed, step.product(z, out_gate), None)
            inherited = (gated.error.square() @ out_weight.square().T).sqrt()
            sizes = gated.value.abs() @ out_weight.abs().T
            s[b, rows] = (_growth(gated.value.shape[-1]) * sizes + INDEPENDENT * inherited) / (2 * terms)
    return s


def library(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_weight: Tensor, right_weight: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_weight: Tensor, dim: int, hidden: int, eps: float,
) -> Tensor:  # fmt: skip
    z = torch.nn.functional.layer_norm(x, (dim,), norm_weight, norm_bias, eps)
    left = (z @ left_weight.T) * mask[..., None] * torch.sigmoid(z @ left_gate.T)
    right = (z @ right_weight.T) * mask[..., None] * torch.sigmoid(z @ right_gate.T)
    product = torch.einsum("bikd,bjkd->bijd", left, right)
    normed = torch.nn.functional.layer_norm(product, (hidden,), out_norm_weight, out_norm_bias, eps)
    return (normed * torch.sigmoid(z @ out_gate.T)) @ out_weight.T


def cancel(
    left_weight: Tensor, right_weight: Tensor, left_gate: Tensor, right_gate: Tensor, out_gate: Tensor,
    out_norm_weight: Tensor, out_norm_bias: Tensor, out_weight: Tensor,
) -> dict[str, Tensor]:  # fmt: skip
    """Every second hidden channel is the one before it, taken away but for a 4,096th; a last one counts as little."""
    even = len(out_norm_weight) // 2 * 2
    rows = {
        "left_weight": left_weight, "right_weight": right_weight, "left_gate": left_gate, "right_gate": right_gate,
        "out_gate": out_gate, "out_norm_weight": out_norm_weight, "out_norm_bias": out_norm_bias,
    }  # fmt: skip
    changed = {name: weight.clone() for name, weight in rows.items()}
    for weight in changed.values():
        weight[1:even:2] = weight[0:even:2]
    last = out_weight.clone()
    last[:, 1:even:2] = -last[:, 0:even:2] * (1 - 2.0**-12)
    last[:, even:] *= 2.0**-12
    return changed | {"out_weight": last}


def relations(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_weight: Tensor, right_weight: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_weight: Tensor, rng: np.random.Generator,
) -> list[Relation]:  # fmt: skip
    named = locals()
    tensors: Mapping[str, Tensor] = {name: named[name] for name in ("x", "mask", *WEIGHTS)}
    projections = ("left_weight", "right_weight", "left_gate", "right_gate", "out_gate")
    channels = {"x": 3, "norm_weight": 0, "norm_bias": 0, **dict.fromkeys(projections, 1)}
    hidden = {**dict.fromkeys(projections, 0), "out_norm_weight": 0, "out_norm_bias": 0, "out_weight": 1}
    order = drawing.permutation(mask.shape[1], rng, mask.device)
    moved = {"x": x[:, order][:, :, order].contiguous(), "mask": mask[:, order][:, :, order].contiguous()}
    return [
        permuted("batches in another order", tensors, rng, inputs={"x": 0, "mask": 0}, outputs={"y": 0}),
        permuted("channels of x in another order", tensors, rng, inputs=channels, outputs={}),
        permuted("hidden channels in another order", tensors, rng, inputs=hidden, outputs={}),
        permuted("channels of y in another order", tensors, rng, inputs={"out_weight": 0}, outputs={"y": 3}),
        scaled("last weights doubled", tensors, inputs={"out_weight": 2.0}, outputs={"y": 2.0}),
        Relation("positions in another order", moved, lambda found: {"y": found["y"][:, order][:, :, order]}),
    ]


def _parts(x: Tensor, hidden: Tensor) -> list[slice]:
    """Rows of pairs that are computed at once."""
    length, width = x.shape[1], max(x.shape[3], hidden.shape[-1], hidden.shape[0])
    step = max(CHUNK // (length * width), 1)
    return [slice(start, start + step) for start in range(0, length, step)]


def _products(left: Tensor, right: Tensor) -> Tensor:
    return torch.einsum("ikd,jkd->ijd", left, right)


def _growth(terms: int) -> float:
    """Roundoffs of a sum of so many terms."""
    return float(terms) if terms <= FEW_TERMS else math.sqrt(terms)


@dataclass(frozen=True)
class _Inexact:
    """A tensor and the errors of its elements, in roundoffs."""

    value: Tensor
    error: Tensor


@dataclass(frozen=True)
class _Steps:
    """The steps of the update with their errors."""

    roundoff: float
    """The accumulator's."""
    stored: float
    """Roundoffs of a result that may be stored as T in between."""
    largest: float
    """The largest number of the accumulator."""

    @staticmethod
    def of(dtype: DType) -> _Steps:
        accumulator = resolve_dtype("ACC", dtype.name)
        ratio = dtype.unit_roundoff / accumulator.unit_roundoff
        largest = torch.finfo(TORCH_DTYPES[accumulator.name]).max
        return _Steps(accumulator.unit_roundoff, ratio if ratio > 1 else 0.0, largest)

    def _kept(self, value: Tensor, error: Tensor) -> _Inexact:
        return _Inexact(value, error + self.stored * value.abs())

    def normed(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> _Inexact:
        value = standardized(x, eps, -1) * weight + bias
        return self._kept(value, 2 * _growth(x.shape[-1]) * affine_magnitude(x, weight, bias, eps, -1))

    def product(self, z: _Inexact, weight: Tensor) -> _Inexact:
        own = _growth(weight.shape[1]) * (z.value.abs() @ weight.abs().T)
        return self._kept(z.value @ weight.T, own + (z.error.square() @ weight.square().T).sqrt())

    def gated(self, z: _Inexact, gate: _Inexact, mask: Tensor | None) -> _Inexact:
        share, width = torch.sigmoid(gate.value), gate.error * self.roundoff
        ends = [(torch.sigmoid(end) - share).abs() for end in (gate.value - width, gate.value + width)]
        error = torch.maximum(*ends) / self.roundoff + share * (sigmoid_error(gate.value) + self.stored)
        value = z.value * share
        found = self._kept(value, share * z.error + z.value.abs() * error + width * z.error + 2 * value.abs())
        return found if mask is None else _Inexact(found.value * mask[..., None], found.error * mask[..., None])

    def pairs(self, left: _Inexact, right: _Inexact) -> _Inexact:
        """The sums over k, and infinite errors where their squares overflow."""
        sizes = _products(left.value.abs(), right.value.abs())
        of_left = _products(left.error.square(), right.value.square())
        of_right = _products(left.value.square() + (self.roundoff * left.error).square(), right.error.square())
        error = _growth(left.value.shape[1]) * sizes + (2 * (of_left + of_right)).sqrt()
        error[sizes.square().sum(dim=-1) > self.largest / 4] = math.inf
        return self._kept(_products(left.value, right.value), error)

    def renormed(self, x: _Inexact, weight: Tensor, bias: Tensor, eps: float) -> _Inexact:
        """The norm of numbers with errors, which cannot exceed what any norm makes."""
        terms = x.value.shape[-1]
        of_mean = x.error.mean(dim=-1, keepdim=True) + _growth(terms) * x.value.abs().mean(dim=-1, keepdim=True)
        deviation = x.value - x.value.mean(dim=-1, keepdim=True)
        error = x.error + of_mean + deviation.abs() if terms > 1 else x.value.abs()  # one number is its own mean
        variance = deviation.square().mean(dim=-1, keepdim=True) + eps
        moved = (deviation.abs() * error + self.roundoff * error.square() / 2).mean(dim=-1, keepdim=True)
        relative = moved / variance + _growth(terms) / 2 + 1 + ROOT_ULPS
        z = deviation * torch.rsqrt(variance)
        most = 2 * math.sqrt(terms) / self.roundoff
        of_z = (error * torch.rsqrt(variance) + z.abs() * relative) / (1 - self.roundoff * relative).clamp(min=0.5)
        of_z = torch.where(self.roundoff * relative < 0.5, of_z.clamp(max=most), most)
        of_z[x.error.isinf().any(dim=-1)] = math.inf
        value = z * weight + bias
        return self._kept(value, weight.abs() * of_z + 2 * (z * weight).abs() + bias.abs())
