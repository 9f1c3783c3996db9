"""Cells of a behaviour space, each holding its elite (MAP-Elites: Mouret and Clune, arXiv:1504.04909)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from fitness.base import Anchor
from fitness.levels import LEAST_GAIN
from operators.kernel import Kernel

Cell = tuple[str, ...]
MARGIN = LEAST_GAIN
"""An elite is replaced only by a kernel faster by this log ratio, and by 1.96 standard errors of the comparison."""


class AddStatus(Enum):
    """What `Archive.add` did; false when nothing happened."""

    REJECTED = "rejected"
    IMPROVED = "improved"
    NEW = "new"

    def __bool__(self) -> bool:
        return self is not AddStatus.REJECTED


@dataclass(frozen=True)
class Elite:
    """The best kernel known of one cell."""

    kernel: Kernel
    cell: Cell
    log_speedup: float
    log_speedup_se: float

    def as_anchor(self) -> Anchor:
        return Anchor(self.kernel, self.log_speedup, self.log_speedup_se)


class Archive:
    """One island's cells. Only its owner adds to it."""

    def __init__(self) -> None:
        self._elites: dict[Cell, Elite] = {}
        self._ranked: tuple[Elite, ...] | None = ()
        """None after a change."""

    def __len__(self) -> int:
        return len(self._elites)

    def get(self, cell: Cell) -> Elite | None:
        """The elite of a cell."""
        return self._elites.get(cell)

    def add(self, elite: Elite, *, comparison_se: float) -> AddStatus:
        """Offer a correct kernel. `comparison_se`: standard error of its log ratio to the elite in place."""
        current = self._elites.get(elite.cell)
        if current and elite.log_speedup - current.log_speedup <= max(MARGIN, 1.96 * comparison_se):
            return AddStatus.REJECTED
        self._elites[elite.cell] = elite
        self._ranked = None
        return AddStatus.IMPROVED if current else AddStatus.NEW

    def refile(self, kernel_id: str, axis: Cell) -> None:
        """Put an elite into the cell that ends with `axis`, as its own now does with something as long; if it is one.

        It has to beat the elite that is there, like any other.
        """
        found = next((elite for elite in self._elites.values() if elite.kernel.id == kernel_id), None)
        if found and (cell := (*found.cell[: -len(axis)], *axis)) != found.cell:
            del self._elites[found.cell]
            self._ranked = None
            self.add(replace(found, cell=cell), comparison_se=found.log_speedup_se)

    def clear(self) -> None:
        """Empty every cell."""
        self._elites.clear()
        self._ranked = ()

    def ranked(self) -> tuple[Elite, ...]:
        """Elites, fastest first; ties by cell, so that the order does not depend on history."""
        if self._ranked is None:
            self._ranked = tuple(sorted(self._elites.values(), key=lambda e: (-e.log_speedup, e.cell)))
        return self._ranked

    @property
    def best(self) -> Elite | None:
        return self.ranked()[0] if self._elites else None
