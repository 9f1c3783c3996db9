"""A small library of normalizations."""

from norms.layers import GatedNorm

__all__ = ["GatedNorm"]
