"""Structural transforms of kernels, by name."""

from mutators.transforms import cuda, loops, memory, reductions, vectors
from mutators.transforms.base import REGISTRY, Site, TreeTransform

__all__ = ["TRANSFORMS", "Site", "TreeTransform"]

TRANSFORMS = dict(sorted(REGISTRY.items()))

del cuda, loops, memory, reductions, vectors
