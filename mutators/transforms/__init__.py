"""Structural transforms of kernels, by name."""

from mutators.transforms import cooperative, cuda, loops, memory, parallel, reductions, scalars, thread_tile, vectors
from mutators.transforms.base import REGISTRY, Site, TreeTransform

__all__ = ["TRANSFORMS", "Site", "TreeTransform"]

TRANSFORMS = dict(sorted(REGISTRY.items()))

del cooperative, cuda, loops, memory, parallel, reductions, scalars, thread_tile, vectors
