"""Populations in actors: one actor for each operator, rebuilt from the store when it dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from evo import rows
from evo.cluster.connection import TRIES, ActorGone, Cluster, Host
from evo.config import RunConfig
from evo.individual import Individual
from evo.search.history import NOT_WANTED
from evo.store.reads import Journal, rows_of
from evo.strategies.base import Leader, Rival, Strategy
from evo.strategies.population import Cell, Elite
from evo.workers.pool import EngineError
from fitness.profiling.profiles import Profile
from mutators.base import Request
from operators.catalog import load
from operators.definition.spec import Operator, Task

PAGE_TELLS = 2_000
"""Tells that are read from the store, and sent to an actor, at a time."""
STEPS_AT_ONCE = 100
"""Steps of strategies that are sent to their actor in one call; fewer where it is asked something."""
CALLS_UNDER_WAY = 2
"""Calls that may be on their way to an actor before the driver waits for it."""
Step = tuple[Task, str, Any]
"""A strategy's task, the name of a method of `Strategy` by which its state goes on, and the arguments."""


class PopulationActor(Host):
    """It holds `Populations`."""


class Populations:
    """The strategies of one operator's tasks, each with its population."""

    def __init__(self, config_json: str, folder: str) -> None:
        """`config_json` is the whole run's, on which strategies depend, `folder` that of the operator."""
        config, operator = RunConfig.from_json(config_json), load(folder)
        self._strategies: dict[Task, Strategy] = {
            task: config.make_strategy(operator, task) for task in config.tasks_of(operator)
        }

    def ask(self, task: Task, count: int) -> list[Request]:
        """The next requests of a task, `count` at most; see `Strategy`."""
        return self._strategies[task].ask(count)

    def learn(self, steps: Sequence[Step]) -> None:
        """Strategies take in, in this order, what was asked, told, heard or profiled; see `Strategy`."""
        for task, method, arguments in steps:
            getattr(self._strategies[task], method)(*arguments)

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        """The kernel that a request's child is paired with; see `Strategy`."""
        return self._strategies[task].rival(request, cell)

    def best(self, task: Task) -> Elite | None:
        """The best kernel of a task so far, if there is one."""
        return self._strategies[task].best


@dataclass
class _Past:
    """The state that a strategy has come to."""

    steps: int = 0
    """Asks that were answered with something, tells and profiles: all that has a place in the store's history."""
    unstored: list[tuple[Sequence[Request], int]] = field(default_factory=list)
    """Answers to asks since it learnt something, and how many these wanted: the driver asks several times before it
    stores that."""
    heard: list[tuple[int, Leader]] = field(default_factory=list)
    """Leaders, each with the number of steps before it."""


class RemotePopulations:
    """One operator's populations in an actor on the driver's machine. If it dies, another one is rebuilt.

    Used by one thread, as strategies are.
    """

    def __init__(self, cluster: Cluster, config: RunConfig, operator: Operator, store: Journal) -> None:
        self._cluster = cluster
        self._name = operator.name
        self._arguments = (config.to_json(), str(operator.folder))
        self._store = store
        self._pasts: dict[Task, _Past] = {}
        self._unsent: list[Step] = []
        self._unheard: list[Any] = []
        self._start()

    def ask(self, task: Task, count: int) -> list[Request]:
        """The next requests of a task, `count` at most. It raises EngineError where the actor dies again and again."""
        requests: list[Request] = self._call("ask", task, count)
        if requests:
            past = self._of(task)
            past.steps += 1
            past.unstored.append((requests, count))
        return requests

    def learn(self, task: Task, method: str, *arguments: Any) -> None:
        """A strategy's state goes on by one step; calls arrive in order, and the driver does not wait for them."""
        past = self._of(task)
        past.unstored.clear()  # the driver has stored requests whose outcome it tells
        if method == "hear":
            past.heard.append((past.steps, *arguments))
        else:
            past.steps += 1
        self._unsent.append((task, method, arguments))
        if len(self._unsent) >= STEPS_AT_ONCE:
            try:
                self._flush()
                while len(self._unheard) > CALLS_UNDER_WAY:
                    self._hear()
            except ActorGone:
                self._rebuild()

    def _flush(self) -> None:
        if self._unsent:
            self._unheard.append(self._actor.call.remote("learn", self._unsent))
            self._unsent = []

    def rival(self, task: Task, request: Request, cell: Cell) -> Rival:
        """The kernel that a request's child is paired with; it raises what `ask` does."""
        rival: Rival = self._call("rival", task, request, cell)
        return rival

    def best(self, task: Task) -> Elite | None:
        """The best kernel of a task so far, if there is one; it raises what `ask` does."""
        elite: Elite | None = self._call("best", task)
        return elite

    def _of(self, task: Task) -> _Past:
        return self._pasts.setdefault(task, _Past())

    def _start(self) -> None:
        self._actor = self._cluster.start(PopulationActor, Populations, *self._arguments)

    def _call(self, method: str, *arguments: Any) -> Any:
        for _ in range(TRIES):
            try:
                self._flush()
                reference = self._actor.call.remote(method, *arguments)
                while self._unheard:
                    self._hear()
                return self._cluster.answer(reference)
            except ActorGone:
                self._rebuild()
        raise EngineError(f"the actor of {self._name}'s populations died {TRIES} times in a row")

    def _hear(self) -> None:
        self._cluster.answer(self._unheard[0])
        del self._unheard[0]

    def _rebuild(self) -> None:
        """Another actor, brought to where the last one was by what is stored, which is all but the last asks."""
        for _ in range(TRIES):
            self._cluster.stop(self._actor)
            self._unsent.clear()
            self._unheard.clear()
            self._start()
            with suppress(ActorGone):
                for task, past in self._pasts.items():
                    for steps in _steps(self._store, task, past):
                        self._unheard.append(self._actor.call.remote("learn", steps))
                        while len(self._unheard) > CALLS_UNDER_WAY:
                            self._hear()
                return
        raise EngineError(f"the actor of {self._name}'s populations died {TRIES} times in a row")


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

    def asked(self, requests: Sequence[Request], count: int) -> None:
        """See `Strategy`."""
        self._populations.learn(self._task, "asked", requests, count)

    def tell(self, individual: Individual) -> str:
        """See `Strategy`; what is done with it is known in the actor alone."""
        self._best_is_known = False
        self._populations.learn(self._task, "tell", individual)
        return "sent"

    def hear(self, leader: Leader) -> None:
        """See `Strategy`."""
        self._populations.learn(self._task, "hear", leader)

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """See `Strategy`."""
        self._populations.learn(self._task, "profiled", kernel_id, profile)

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


def _steps(store: Journal, task: Task, past: _Past) -> Iterator[list[Step]]:
    """The steps that a strategy has learnt so far, in order, for `Populations.learn`; see `_Past`."""
    heard, done = deque(past.heard), 0
    for page in rows.history_of(task, partial(rows_of, store), page=PAGE_TELLS):
        steps: list[Step] = []
        for step in filter(None, (_step(task, entry) for _, entry in page)):
            if done == past.steps:  # what is stored and did not count yet is learnt when it does
                break
            while heard and heard[0][0] == done:
                steps.append((task, "hear", (heard.popleft()[1],)))
            steps.append(step)
            done += 1
        yield steps
    missing = past.unstored[max(len(past.unstored) - (past.steps - done), 0) :]
    yield [*((task, "hear", (leader,)) for _, leader in heard), *((task, "asked", answer) for answer in missing)]


def _step(task: Task, entry: rows.Entry) -> Step | None:
    """An entry of the history as its strategy learnt it; None for requests of guests, which it did not ask for."""
    if isinstance(entry, rows.Asked):
        wanted = entry.rows[0]["wanted"]
        return (task, "asked", ([*map(rows.request_from, entry.rows)], wanted)) if wanted != NOT_WANTED else None
    if isinstance(entry, rows.TellRow):
        return task, "tell", (rows.individual_from(entry.row),)
    return task, "profiled", (entry.row["kernel_id"], rows.profile_from(entry.row))
