"""Attention with scores of its own for every column: softmax over products of elements, not of vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, permuted, scaled
from operators.shared.errors import DIVISION_ULPS, exp_error

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
CHUNK = 1 << 24
"""Elements of a table of scores that are held at once."""


def inputs(batch: int, length: int, dtype: DType, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """A causal mask, which is the one that is timed; others have random ones. Every position may attend to itself."""
    mask = np.triu(np.ones((batch, length, length)), 1)
    if family != "nominal" and rng.integers(2):
        mask = (rng.random((batch, length, length)) < rng.random()) * (1 - np.eye(length))
    return {"mask": torch.from_numpy(mask).to(TORCH_DTYPES[dtype.name])}


def reference(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, width: int) -> Tensor:
    y = torch.empty_like(q)
    for head, rows, scores in _scores(q, k, mask, width):
        y[head][rows] = (torch.softmax(scores, dim=1) * v[head]).sum(dim=1)
    return y


def magnitude(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, length: int, width: int) -> Tensor:
    """The sum of magnitudes, and what the weights in it are off by, in halves of roundoffs over sqrt(length).

    A score carries three roundings, which the exponential makes a relative error of its weight, and adds its own. The
    sum in the denominator averages them, and adds sqrt(length), as the bound's factor does for the sum of the result.
    """
    s = torch.empty_like(q)
    for head, rows, scores in _scores(q, k, mask, width):
        p = torch.softmax(scores, dim=1)
        finite = torch.where(p > 0, scores, 0)
        distance = torch.where(p > 0, scores.amax(dim=1, keepdim=True) - scores, 0)
        own = 3 * finite.abs() + exp_error(distance) + distance
        own += (p * own).sum(dim=1, keepdim=True) + 2 * DIVISION_ULPS + 1
        s[head][rows] = (p * (2 + own / (2 * math.sqrt(length))) * v[head].abs()).sum(dim=1)
    return s


def library(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, width: int) -> Tensor:
    # No vendor has attention of elements; this is the formula in a few calls.
    wide = torch.promote_types(q.dtype, torch.float32)
    return reference(q.to(wide), k.to(wide), v.to(wide), mask.to(wide), width).to(q.dtype)


def relations(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"q": q, "k": k, "v": v, "mask": mask}
    order = drawing.permutation(mask.shape[1], rng, mask.device)
    moved = {n: t[:, :, order] for n, t in tensors.items() if n != "mask"} | {"mask": mask[:, order][:, :, order]}
    heads, columns = {"q": 1, "k": 1, "v": 1}, {"q": 3, "k": 3, "v": 3}
    return [
        permuted("heads in another order", tensors, rng, inputs=heads, outputs={"y": 1}),
        permuted("columns in another order", tensors, rng, inputs=columns, outputs={"y": 3}),
        scaled("values doubled", tensors, inputs={"v": 2.0}, outputs={"y": 2.0}),
        Relation("positions in another order", moved, lambda found: {"y": found["y"][:, :, order]}),
    ]


def _scores(q: Tensor, k: Tensor, mask: Tensor, width: int) -> Iterator[tuple[tuple[int, int], slice, Tensor]]:
    """Of some rows of a head at a time: [rows, length, width], -inf where the mask excludes."""
    batch, heads, length, _ = q.shape
    step = max(CHUNK // (length * width), 1)
    for b, h, start in itertools.product(range(batch), range(heads), range(0, length, step)):
        rows = slice(start, start + step)
        scores = q[b, h, rows, None] * k[b, h] / math.sqrt(width)
        yield (b, h), rows, scores.masked_fill(mask[b, rows, :, None] > 0.5, -math.inf)
