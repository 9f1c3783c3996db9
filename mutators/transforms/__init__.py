"""Structural transforms of kernels, by name."""

from mutators.transforms import cuda, grid, loops, memory, reductions
from mutators.transforms.base import REGISTRY, Site, TreeTransform

__all__ = ["TRANSFORMS", "Site", "TreeTransform"]

TRANSFORMS = dict(sorted(REGISTRY.items()))

del cuda, grid, loops, memory, reductions
