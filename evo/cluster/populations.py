"""Populations in actors: one actor for each operator, rebuilt from the store when it dies."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from evo import records
from evo.archive import Cell, Elite
from evo.cluster.connection import TRIES, ActorGone, Cluster, Host
from evo.config import RunConfig
from evo.individual import Individual
from evo.journal import Journal
from evo.pool import EngineError
from evo.strategies.base import Heard, Leader, Listening, Rival, Strategy, other_request
from mutators.base import Request
from operators.spec import Operator, Task

PAGE_ROWS = 2_000
"""Tells that are read from the store, and sent to an actor, at a time."""
UNHEARD_LIMIT = 50
"""Tells that may be on their way to a population before the driver waits for it."""


class PopulationActor(Host):
    """It holds `Populations`."""


class Populations:
    """The strategies of one operator's tasks, each with its population."""

    def __init__(self, config_json: str, operator: str) -> None:
        config = RunConfig.from_json(config_json)
        self._strategies: dict[Task, Strategy] = {
            task: config.make_strategy(made, task) for made, task in config.tasks() if made.name == operator
        }

    def ask(self, task: Task, count: int) -> list[Request]:
        """The next requests of a task, `count` at most; see `Strategy`."""
        return self._strategies[task].ask(count)

    def tell(self, task: Task, individual: Individual) -> str:
        """The population takes a finished request in; see `Strategy`."""
        return self._strategies[task].tell(individual)

    def hear(self, task: Task, leader: Leader) -> None:
        """A task's strategy hears of a leader, if it listens; see `Listening`."""
        strategy = self._strategies[task]
        if isinstance(strategy, Listening):
            strategy.hear(leader)

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        """What a request's child is paired with; see `Strategy`."""
        return self._strategies[task].rival(request, cell)

    def best(self, task: Task) -> Elite | None:
        """The best kernel of a task so far, if there is one."""
        return self._strategies[task].best

    def replay(self, task: Task, history: Sequence[Mapping[str, Any]]) -> None:
        """It applies stored asks (`wanted`, `digests`), tells (rows of `records.TOLD`) and leaders that were heard of
        (`leader`) again, in this order.
        """
        strategy = self._strategies[task]
        for entry in history:
            if "leader" in entry:
                self.hear(task, entry["leader"])
            elif "wanted" not in entry:
                strategy.tell(records.individual_from(entry))
            elif [request.digest for request in strategy.ask(entry["wanted"])] != entry["digests"]:
                raise other_request(task, f"of ask {entry['seq']}")


@dataclass
class _Progress:
    """How far a strategy has come: asks that were answered with something, and tells."""

    asks: int = 0
    tells: int = 0
    wanted: int = 0
    """By the last of these asks."""
    digests: Sequence[str] = ()
    """Of the requests that it was answered with."""
    heard: list[Heard] = field(default_factory=list)
    """Leaders."""


class RemotePopulations:
    """One operator's populations in an actor on the driver's machine. If it dies, another one is rebuilt.

    Used by one thread, as strategies are.
    """

    def __init__(self, cluster: Cluster, config: RunConfig, operator: Operator, store: Journal) -> None:
        here = config.model_copy(update={"operators": [str(operator.folder)]})
        self._cluster = cluster
        self._arguments = (here.to_json(), operator.name)
        self._store = store
        self._progress: dict[Task, _Progress] = {}
        self._unheard: list[Any] = []
        self._start()

    def ask(self, task: Task, count: int) -> list[Request]:
        """The next requests of a task, `count` at most. It raises EngineError where the actor dies again and again."""
        requests: list[Request] = self._call("ask", task, count)
        if requests:
            progress = self._of(task)
            progress.asks += 1
            progress.wanted, progress.digests = count, [request.digest for request in requests]
        return requests

    def tell(self, task: Task, individual: Individual) -> None:
        """The driver does not wait until the actor has heard it: calls arrive in order."""
        self._of(task).tells += 1
        self._send("tell", task, individual)

    def hear(self, task: Task, leader: Leader) -> None:
        """As `tell`, of a leader."""
        progress = self._of(task)
        progress.heard.append((progress.asks, progress.tells, leader))
        self._send("hear", task, leader)

    def _send(self, method: str, *arguments: Any) -> None:
        self._unheard.append(self._actor.call.remote(method, *arguments))
        if len(self._unheard) >= UNHEARD_LIMIT:
            self._settle()

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        """What a request's child is paired with; it raises what `ask` does."""
        rival: Rival = self._call("rival", task, request, cell)
        return rival

    def best(self, task: Task) -> Elite | None:
        """The best kernel of a task so far, if there is one; it raises what `ask` does."""
        elite: Elite | None = self._call("best", task)
        return elite

    def restore(self, task: Task, asks: int, tells: int, heard: Sequence[Heard]) -> None:
        """It brings a new population to where the store says that it was, after so many asks and tells."""
        progress = self._of(task)
        progress.asks, progress.tells, progress.heard = asks, tells, list(heard)
        try:
            self._replay(task, progress)
        except ActorGone:
            self._rebuild()

    def _of(self, task: Task) -> _Progress:
        return self._progress.setdefault(task, _Progress())

    def _start(self) -> None:
        self._actor = self._cluster.start(PopulationActor, Populations, *self._arguments)

    def _call(self, method: str, *arguments: Any) -> Any:
        for _ in range(TRIES):
            reference = self._actor.call.remote(method, *arguments)
            try:
                self._hear()
                return self._cluster.answer(reference)
            except ActorGone:
                self._rebuild()
        raise EngineError(f"the actor of {self._arguments[1]}'s populations died {TRIES} times in a row")

    def _settle(self) -> None:
        try:
            self._hear()
        except ActorGone:
            self._rebuild()

    def _hear(self) -> None:
        while self._unheard:
            self._cluster.answer(self._unheard[0])
            del self._unheard[0]

    def _rebuild(self) -> None:
        """Another actor, brought to where the last one was. Every tell is in the store, and every ask but the last."""
        for _ in range(TRIES):
            self._cluster.stop(self._actor)
            self._unheard.clear()
            self._start()
            with suppress(ActorGone):
                for task, progress in self._progress.items():
                    self._replay(task, progress)
                return
        raise EngineError(f"the actor of {self._arguments[1]}'s populations died {TRIES} times in a row")

    def _replay(self, task: Task, progress: _Progress) -> None:
        """The actor works on one page while the next is read."""
        replayed: list[Any] = []
        for page in _with_leaders(_history(self._store, task, progress), progress.heard):
            replayed.append(self._actor.call.remote("replay", task, page))
            if len(replayed) > 1:
                self._cluster.answer(replayed.pop(0))
        self._cluster.answer(replayed.pop())


class RemoteStrategy:
    """`evo.strategies.base.Strategy` whose state is in its operator's actor."""

    def __init__(self, populations: RemotePopulations, task: Task) -> None:
        self._populations = populations
        self._task = task
        self._best: Elite | None = None
        self._best_is_known = True

    def ask(self, count: int) -> list[Request]:
        """See `Strategy`; it raises what `RemotePopulations.ask` does, as all methods here do."""
        return self._populations.ask(self._task, count)

    def tell(self, individual: Individual) -> str:
        """See `Strategy`; what is done with it is known in the actor alone."""
        self._best_is_known = False
        self._populations.tell(self._task, individual)
        return "sent"

    def hear(self, leader: Leader) -> None:
        """See `evo.strategies.base.Listening`."""
        self._populations.hear(self._task, leader)

    def restore(self, asks: int, tells: int, heard: Sequence[Heard]) -> None:
        """See `evo.strategies.base.Restorable`."""
        self._best_is_known = False
        self._populations.restore(self._task, asks, tells, heard)

    def rival(self, request: Request, cell: Cell) -> Rival:
        """See `Strategy`."""
        return self._populations.rival(self._task, request, cell)

    @property
    def best(self) -> Elite | None:
        """See `Strategy`; the actor is asked only after something was told."""
        if not self._best_is_known:
            self._best = self._populations.best(self._task)
            self._best_is_known = True
        return self._best


def _history(store: Journal, task: Task, progress: _Progress) -> Iterator[list[dict[str, Any]]]:
    """What the strategy has heard and answered so far, in order, for `Populations.replay`."""
    asked = store.rows(
        "select seq, any_value(wanted) as wanted, list(digest order by position) as digests from asks "
        "where task = ? and wanted > 0 group by seq order by seq limit ?",
        [str(task), progress.asks],
    ).to_pylist()
    if len(asked) < progress.asks:  # the driver has not stored the last one yet
        asked.append({"seq": math.inf, "wanted": progress.wanted, "digests": progress.digests})
    left, after = progress.tells, -1
    while left:
        told = store.rows(
            f"select * from ({records.TOLD}) where task = ? and seq > ? order by seq limit ?",
            [str(task), after, min(PAGE_ROWS, left)],
        ).to_pylist()
        told = records.with_measurements(told, store)
        left, after = left - len(told), told[-1]["seq"]
        earlier = [entry for entry in asked if entry["seq"] < after]
        asked = asked[len(earlier) :]
        yield sorted([*earlier, *told], key=lambda entry: entry["seq"])
    yield asked


def _with_leaders(pages: Iterable[list[dict[str, Any]]], heard: Sequence[Heard]) -> Iterator[list[dict[str, Any]]]:
    """The pages of a history with what was heard between its asks and tells."""
    waiting, asks, tells = deque(heard), 0, 0
    for page in pages:
        merged = []
        for entry in page:
            while waiting and waiting[0][:2] == (asks, tells):
                merged.append({"leader": waiting.popleft()[2]})
            merged.append(entry)
            asks, tells = (asks + 1, tells) if "wanted" in entry else (asks, tells + 1)
        yield merged
    yield [{"leader": leader} for *_, leader in waiting]
