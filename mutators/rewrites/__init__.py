"""Structural rewrites of kernels, by name."""

from mutators.rewrites import cuda, loops, memory, parallel, reductions, scalars
from mutators.rewrites.base import REGISTRY, Rewrite, Site

__all__ = ["REWRITES", "Rewrite", "Site"]

REWRITES = dict(sorted(REGISTRY.items()))

del cuda, loops, memory, parallel, reductions, scalars
