"""Sums of segments of a vector: put what your operator computes in its place."""

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, scaled


def inputs(segments: int, n: int, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """Ends anywhere for the inputs that are timed; in others a power law as well, with long segments and empty ones."""
    power = 1.0 if family == "nominal" else float(rng.choice([1.0, 4.0, 16.0]))
    ends = np.sort(rng.random(segments - 1) ** power * (n + 1)).astype(np.int32)
    return {"offsets": torch.from_numpy(np.concatenate([[0], ends, [n]]).astype(np.int32))}


def data_dims(offsets: Tensor) -> dict[str, int]:
    return {"longest": int(offsets.diff().max())}


def reference(offsets: Tensor, x: Tensor, segments: int) -> Tensor:  # in fp64
    of_element = torch.arange(segments, device=x.device).repeat_interleave(offsets.diff())
    return x.new_zeros(segments).index_add_(0, of_element, x)


def prepare(offsets: Tensor) -> Tensor:  # what the library wants and is not timed
    return offsets.long()


def library(prepared: Tensor, x: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=prepared, unsafe=True, initial=0)


def magnitude(offsets: Tensor, x: Tensor, segments: int) -> Tensor:  # of the terms without their signs
    return reference(offsets, x.abs(), segments)


def relations(x: Tensor) -> list[Relation]:  # what holds whatever the reference says
    return [scaled("values doubled", {"x": x}, inputs={"x": 2.0}, outputs={"y": 2.0})]
