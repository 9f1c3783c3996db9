"""Which inputs the cases of a stage get: families are dealt like cards, never drawn one by one.

A fault that a family shows is so found in every stage, and not in those alone where chance brought it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from fitness.oracle.inputs import FEW, SPECIALS
from operators.definition.spec import Workload

REVEALING = (FEW, SPECIALS)
"""Families of outliers and of special values: most faults that others miss show in them."""


def revealing(deals: Sequence[str]) -> list[str]:
    """Those of what is dealt that no stage may do without."""
    return [family for family in deals if family in REVEALING]


def at_size(deals: Sequence[str]) -> int:
    """Cases of a workload's size in a full stage: one of any family beside those of a few elements, of two tensors."""
    return 1 + min(deals.count(FEW), 2)


def hand(
    workloads: Sequence[Workload], least: int, deals: Sequence[str], rng: np.random.Generator, *, first: Sequence[str]
) -> list[tuple[Workload, str]]:
    """So many cases at least of these workloads in turn: with all of `first`, then round after round of `deals`.

    The order within a round is drawn; no family comes again before all of its round came.
    """
    order = [first[i] for i in rng.permutation(len(first))]
    while len(order) < least:
        order += [deals[i] for i in rng.permutation(len(deals))]
    return list(zip(cycle(workloads), order[: max(least, len(first))], strict=False))
