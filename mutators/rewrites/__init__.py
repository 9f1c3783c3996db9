"""Structural rewrites of kernels, by name."""

from mutators.rewrites import cooperative, cuda, loops, memory, parallel, reductions, scalars, thread_tile, vectors
from mutators.rewrites.base import REGISTRY, Rewrite, Site

__all__ = ["REWRITES", "Rewrite", "Site"]

REWRITES = dict(sorted(REGISTRY.items()))

del cooperative, cuda, loops, memory, parallel, reductions, scalars, thread_tile, vectors
