"""The protocol of everything that decides what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol

from evo.archive import Cell, Elite
from evo.individual import Individual
from fitness.base import Anchor
from mutators.base import Request
from operators.identity import digest
from operators.spec import Operator, Task

GIVEN = ("workload_set", "models")
"""Settings that the run gives to every strategy: the name of its workload set, and its language models (often none).
All others are the strategy's own."""
ANCESTOR = "ancestor"
"""The mutator name of requests for a kernel file of the operator's own folder; `params["name"]` says which."""


def request_rng(seed: int, task: Task, number: int) -> Random:
    """The only randomness a strategy may use for one request."""
    return Random(digest("request", seed, str(task), number))


class Strategy(Protocol):
    """Asks for children and learns from what became of them.

    It reads no clock, draws its randomness from (run seed, request number), and depends on nothing but the order of
    its asks and tells: applied again in that order, it is in the same state. An `ask` that answers with nothing
    changes nothing. Single-threaded.
    """

    def ask(self, count: int) -> list[Request]:
        """At most `count` requests, numbered consecutively; fewer or none while it waits for tells."""
        ...

    def tell(self, individual: Individual) -> str:
        """Learn the fate of one request, in any order; one word for what was done with it."""
        ...

    def anchor(self, request: Request, cell: Cell) -> Anchor | None:
        """The kernel that a child of this request in this cell races against; None: any correct kernel is welcome."""
        ...

    @property
    def best(self) -> Elite | None:
        """The fastest kernel it knows."""
        ...


class StrategyFactory(Protocol):
    """How a run makes its strategies."""

    def __call__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, object]) -> Strategy: ...
