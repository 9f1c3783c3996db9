"""Two attentions over parts of the keys become that over all: outputs weighted by their log-sum-exp."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled
from operators.shared.errors import LOG_ULPS, exp_error


def reference(v_a: Tensor, lse_a: Tensor, v_b: Tensor, lse_b: Tensor) -> dict[str, Tensor]:
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = _weights(lse_a, lse_b)
    return {"v": weight_a * v_a + weight_b * v_b, "lse": lse}


def magnitude(v_a: Tensor, lse_a: Tensor, v_b: Tensor, lse_b: Tensor) -> dict[str, Tensor]:
    """A weight carries the errors of the exponentials, of the differences in them, of sum, quotient and product."""
    weight_a, weight_b = _weights(lse_a, lse_b)
    distance = (lse_a - lse_b).abs().clamp(max=200)
    own = (2 * exp_error(distance) + 6).T[..., None]
    size = weight_a * v_a.abs() + weight_b * v_b.abs()
    lse = torch.maximum(lse_a, lse_b).abs() + 2 * LOG_ULPS + exp_error(distance) * torch.exp(-distance)
    return {"v": size * own / 2, "lse": lse / 2}


def library(v_a: Tensor, lse_a: Tensor, v_b: Tensor, lse_b: Tensor) -> dict[str, Tensor]:
    # No vendor has it; this is the formula in a few calls.
    found = reference(v_a.to(lse_a.dtype), lse_a, v_b.to(lse_a.dtype), lse_b)
    return {"v": found["v"].to(v_a.dtype), "lse": found["lse"]}


def relations(v_a: Tensor, lse_a: Tensor, v_b: Tensor, lse_b: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"v_a": v_a, "lse_a": lse_a, "v_b": v_b, "lse_b": lse_b}
    swapped = {"v_a": v_b, "lse_a": lse_b, "v_b": v_a, "lse_b": lse_a}
    tokens = {"v_a": 0, "lse_a": 1, "v_b": 0, "lse_b": 1}
    heads = {"v_a": 1, "lse_a": 0, "v_b": 1, "lse_b": 0}
    return [
        Relation("parts swapped", swapped, lambda found: found),
        permuted("tokens in another order", tensors, rng, inputs=tokens, outputs={"v": 0, "lse": 1}),
        permuted("heads in another order", tensors, rng, inputs=heads, outputs={"v": 1, "lse": 0}),
        scaled("values doubled", tensors, inputs={"v_a": 2.0, "v_b": 2.0}, outputs={"v": 2.0}),
    ]


def _weights(lse_a: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """[tokens, heads, 1]."""
    weight_a, weight_b = torch.sigmoid(lse_a - lse_b), torch.sigmoid(lse_b - lse_a)
    return weight_a.T[..., None], weight_b.T[..., None]
