"""The protocol of everything that decides what to try next."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Protocol, runtime_checkable

from evo.archive import Cell, Elite
from evo.individual import Individual
from fitness.base import Anchor
from mutators.base import Request
from operators.errors import UserError
from operators.identity import digest
from operators.spec import Operator, Task

GIVEN = ("workload_set", "models", "ancestors", "questions", "protocol")
"""Settings that the run gives to every strategy: the name of its workload set, its language models (often none), the
kernel files that it starts from (`naive`, and often no other), how many of its questions to models may be open at a
time, and the version of the rules that requests are made by. All others are the strategy's own."""
PROTOCOL = 2
"""The rules by which strategies of this version make requests. A run keeps those it began with, so that it can be
resumed and replayed: 1 is that of runs which do not say."""
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


@runtime_checkable
class Restorable(Protocol):
    """A strategy that reads its own past from the store, because it is far away from who would repeat it."""

    def restore(self, asks: int, tells: int) -> None:
        """Come to where it was after so many answered asks and tells. Raises UserError if it would ask otherwise."""
        ...


def other_request(task: Task, request_id: str) -> UserError:
    """What a resume says when a strategy does not ask what is stored."""
    return UserError(
        f"{task}: request {request_id} is not what this version would ask; "
        "resume with the version and operators that the run was started with"
    )


class Ancestors:
    """The kernel files that a search starts from: requests for them, and what became of those.

    The naive kernel is asked for first and alone: without it nothing has a speedup.
    """

    def __init__(self, task: Task, settings: Mapping[str, Any]) -> None:
        self.task = task
        self.names: tuple[str, ...] = tuple(settings.get("ancestors", ("naive",)))
        self._asked = 0
        self.failed = False
        """Whether the naive kernel is known to be wrong, so that there is nothing to search for."""
        self.correct: dict[str, Elite] = {}
        """By name, in the order of the tells."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def naive(self) -> Elite | None:
        """None until it is told of, and for good if it fails."""
        return self.correct.get("naive")

    @property
    def left(self) -> int:
        """How many have not been asked for."""
        return len(self.names) - self._asked

    def request(self, number: int) -> Request | None:
        """Ask for the next one under this number; None while it has to wait for the naive one, or if none is left."""
        if not self.left or (self._asked and self.naive is None):
            return None
        self._asked += 1
        return Request(self.task, number, ANCESTOR, (), 0, {"name": self.names[self._asked - 1]})

    def tell(self, individual: Individual, elite: Elite | None) -> None:
        """Learn the fate of one of these requests."""
        name = individual.request.params["name"]
        if elite:
            self.correct[name] = elite
        elif name == "naive":
            self.failed = True


class StrategyFactory(Protocol):
    """How a run makes its strategies."""

    def __call__(self, operator: Operator, task: Task, *, seed: int, settings: Mapping[str, object]) -> Strategy: ...
