"""Valid cross-correlation of an image with a filter."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Relation, scaled
from operators.shared.sums import SMALL, zero_sums


def reference(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x[None, None], w[None, None])[0, 0]


def magnitude(x: Tensor, w: Tensor) -> Tensor:
    return reference(x.abs(), w.abs())


def library(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x[None, None], w[None, None])[0, 0]


def cancel(x: Tensor, w: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
    """The image is constant but for its last places; the filter sums to nearly nothing."""
    x = (x[:1, :1].double() * (1 + SMALL * x.double())).to(x.dtype)
    return {"x": x, "w": zero_sums(w.reshape(1, -1), dtype, rng).reshape(w.shape)}


def relations(x: Tensor, w: Tensor) -> list[Relation]:
    tensors = {"x": x, "w": w}
    mirrored = {"x": x.flip(1), "w": w.flip(1)}
    upside_down = {"x": x.flip(0), "w": w.flip(0)}
    return [
        Relation("mirrored", mirrored, lambda found: {"y": found["y"].flip(1)}),
        Relation("upside down", upside_down, lambda found: {"y": found["y"].flip(0)}),
        scaled("image doubled", tensors, inputs={"x": 2.0}, outputs={"y": 2.0}),
    ]
