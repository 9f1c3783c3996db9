"""The base of transforms: named functions that list the places where they apply, with the edits they would make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mutators.analysis.cpp_tree import SyntaxTree
from mutators.analysis.source_text import Edit
from operators.dtypes import TARGETS


@dataclass(frozen=True)
class Site:
    """One place where a transform applies."""

    description: str
    """Change and its place: ``tile loop `j` of matrix_mul (line 9) by TILE_J``."""
    edits: tuple[Edit, ...]
    """All made at once; they do not overlap."""
    tune: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """New tunables, the default first."""


@dataclass(frozen=True)
class TreeTransform:
    """A kind of change. It keeps what the kernel computes, up to the order of floating-point operations."""

    name: str
    sites: Callable[[SyntaxTree], Iterable[Site]]
    targets: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line for people."""
        return (self.sites.__doc__ or "").strip().split("\n")[0]


REGISTRY: dict[str, TreeTransform] = {}
"""Filled by the modules of this package; read it as `mutators.transforms.TRANSFORMS`."""

Sites = Callable[[SyntaxTree], Iterable[Site]]


def transform(name: str, *targets: str) -> Callable[[Sites], Sites]:
    """Register a transform, for all targets unless some are named."""

    def register(sites: Sites) -> Sites:
        REGISTRY[name] = TreeTransform(name, sites, targets or TARGETS)
        return sites

    return register
