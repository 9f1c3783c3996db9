"""The interface of everything that decides what to try next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from evo.individual import Individual
from evo.strategies.population import Cell, Elite, elite_of
from fitness.judging.base import Anchor, DeviceInfo
from fitness.profiling.metric_sets import PROVIDER, PROVIDERS
from fitness.profiling.profiles import Profile
from mutators.base import Kind, Request, Trial
from operators.definition.spec import Operator, Task
from operators.errors import UserError, unknown
from operators.identity import digest
from operators.kernel import Kernel

ANCESTOR = Kind.ANCESTOR.value
"""The mutator name of requests for a kernel file of the operator's own folder; `params["name"]` says which."""


@dataclass(frozen=True)
class StrategyContext:
    """Facts that a run gives to the strategy of one of its tasks."""

    operator: Operator
    task: Task
    seed: int
    """The run's seed."""
    workload_set: str = ""
    """The workloads that kernels are timed on; empty: all that the operator has."""
    models: tuple[str, ...] = ()
    """The run's language models, often none."""
    ancestors: tuple[str, ...] = ("naive",)
    """Names of the kernel files that the search starts from: `naive`, and often no other."""
    device: DeviceInfo | None = None
    """The device that kernels run on; None: not known."""
    questions: int = 4
    """Number of its requests to models that should be open at a time."""
    trials: int | None = None
    """Settings of tunables that it may ask for, at most; None: no limit of its own."""
    greedy: bool = False
    """Whether models answer the same question always alike: at temperature 0, without seeds."""
    profiler: str = PROVIDER
    """Part of profiles that models are shown: a name of `fitness.profiling.metric_sets.PROVIDERS`."""

    def rng(self, number: int) -> Random:
        """Return the only randomness that a strategy may use for one request."""
        return Random(digest("request", self.seed, str(self.task), number))

    @property
    def naive(self) -> Kernel:
        """The operator's naive kernel, judged or not."""
        return Kernel(self.operator.name, self.task.target, self.operator.naive(self.task.target))

    def request(
        self,
        number: int,
        mutator: str,
        parents: Sequence[str],
        rng: Random,
        params: Mapping[str, Any],
        *,
        kind: Kind = Kind.CHILD,
        trials: tuple[Trial, ...] = (),
        model: str = "",
        **named: Any,
    ) -> Request:
        """Return a request with a seed of `rng`, and with what its mutator needs to know of the run among its params.

        `named` are further fields of `Request`. A param `profiler` shows a model other metrics than the run's; it
        raises UserError for a name that nothing has.
        """
        own = {**params, "workload_set": self.workload_set}
        if model and self.profiler != PROVIDER:
            own.setdefault("profiler", self.profiler)
        if own.get("profiler", PROVIDER) not in PROVIDERS:
            raise UserError(unknown("profiler", str(own["profiler"]), PROVIDERS))
        if self.device:
            own |= {"device": self.device.name} if model else {"facts": dict(self.device.facts)}
        seed = rng.getrandbits(63)
        return Request(self.task, number, mutator, tuple(parents), seed, own, trials, kind, model=model, **named)


@dataclass(frozen=True)
class Rival:
    """The kernel that a child is paired with when it is timed, and whether it is given up as soon as it is clearly
    slower."""

    anchor: Anchor | None = None
    """A correct kernel; None: the fastest one known, so that a slow baseline is not timed for every child."""
    race: bool = False
    """A strategy that keeps kernels although they are slower does not race them: only so it hears all their times."""


@dataclass(frozen=True)
class Leader:
    """The fastest kernel of a task, as strategies hear of it that could use those of other tasks."""

    task: Task
    kernel: Kernel
    log_speedup: float
    log_share: float | None = None
    """The logarithm of the share of what the machine allows; None where that is not known."""

    def ahead(self, other: Leader) -> float:
        """Return by how much it is further than another task's leader, as a log ratio.

        Speedups are over naive kernels that may differ in how naive they are: where it is known how much of what the
        machine allows either of the two reaches, that counts.
        """
        if self.log_share is not None and other.log_share is not None:
            return self.log_share - other.log_share
        return self.log_speedup - other.log_speedup


class Strategy(Protocol):
    """Asks for children and learns from what became of them.

    It reads no clock and draws its randomness from (run seed, request number). Its state follows from what was asked,
    told, heard and profiled, in that order, and from nothing else: a record of that suffices to bring a new one to
    the same state, whether or not it would ask the same today. An `ask` that answers with nothing changes nothing.
    Single-threaded.
    """

    def ask(self, count: int) -> list[Request]:
        """At most `count` requests, numbered consecutively; fewer or none while it waits for tells."""
        ...

    def asked(self, requests: Sequence[Request], count: int) -> None:
        """Come to where an `ask` for `count` that answered with these requests left it, whatever it would ask now."""
        ...

    def tell(self, individual: Individual) -> str:
        """Learn the fate of one request, in any order; one word for what was done with it.

        Guests, requests of that kind, are told of too, though no strategy asked for them: kernels to learn from.
        """
        ...

    def hear(self, leader: Leader) -> None:
        """Learn of the new leader of its own task, or of one whose operator is alike."""
        ...

    def profiled(self, kernel_id: str, profile: Profile) -> None:
        """Learn what was found out about a kernel, also of profiles that it did not ask for."""
        ...

    def rival(self, request: Request, cell: Cell) -> Rival:
        """The kernel that a child of this request which came out in this cell is compared with."""
        ...

    @property
    def best(self) -> Elite | None:
        """The fastest kernel it knows."""
        ...


class Chooser(ABC):
    """The part of a `Strategy` that asks, for those that choose one request at a time.

    To choose changes nothing, and to take what was chosen goes by the request alone: so a strategy that is rebuilt
    from stored requests comes to the same state as one that chose them.
    """

    _number = 0
    """The number of the next request."""

    @abstractmethod
    def choose(self, number: int) -> Request | None:
        """Return the next request; None while there is none."""

    @abstractmethod
    def take(self, request: Request) -> None:
        """Take note of a request that is asked for; it may be one that this strategy would never choose."""

    def ask(self, count: int) -> list[Request]:
        """See `Strategy.ask`."""
        requests: list[Request] = []
        while len(requests) < count and (request := self.choose(self._number)):
            self.asked([request], count)
            requests.append(request)
        return requests

    def asked(self, requests: Sequence[Request], count: int) -> None:
        """See `Strategy.asked`."""
        for request in requests:
            self.take(request)
            self._number = request.number + 1

    def hear(self, leader: Leader) -> None:  # noqa: B027
        """See `Strategy.hear`; most have no use for it."""

    def profiled(self, kernel_id: str, profile: Profile) -> None:  # noqa: B027
        """See `Strategy.profiled`; most have no use for it."""


class Ancestors:
    """The kernel files that a search starts from: requests for them, and what became of those.

    The naive kernel is asked for first and alone: without it nothing has a speedup.
    """

    def __init__(self, context: StrategyContext) -> None:
        self.context = context
        self.names = context.ancestors
        self._asked = 0
        self._told = 0
        self.correct: dict[str, Elite] = {}
        """By name, in the order of the tells."""
        self.individuals: dict[str, Individual] = {}
        """The same with their whole evaluations."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def naive(self) -> Elite | None:
        """None until it is told of, and for good if it fails."""
        return self.correct.get("naive")

    @property
    def settled(self) -> bool:
        """Whether it is known what became of all of them."""
        return self._told == len(self.names)

    def request(self, number: int) -> Request | None:
        """Return that for the next one; None while it has to wait for the naive one, or if none is left."""
        if self._asked >= len(self.names) or (self._asked and self.naive is None):
            return None
        params = {"name": self.names[self._asked]}
        return Request(self.context.task, number, ANCESTOR, (), 0, params, kind=Kind.ANCESTOR)

    def take(self) -> None:
        """Take note that the next one is asked for."""
        self._asked += 1

    def tell(self, individual: Individual) -> None:
        """Learn the fate of one of these requests."""
        self._told += 1
        if elite := elite_of(individual):
            name = individual.request.params["name"]
            self.correct[name], self.individuals[name] = elite, individual


class Outages:
    """Models that were told to be unavailable, each until a request that was made after that comes to anything else.

    Of such a model one request at a time is worth making: its client keeps it until the model is to be tried again.
    """

    def __init__(self) -> None:
        self._out: dict[str, int] = {}
        """By model, the last request that was made before that was known."""
        self._open: Counter[str] = Counter()
        self._last = -1

    def asked(self, request: Request) -> None:
        """Take note of a request that is made."""
        self._last = request.number
        if model := request.model:
            self._open[model] += 1

    def told(self, individual: Individual) -> None:
        """Learn what became of a request."""
        request = individual.request
        if not (model := request.model):
            return
        self._open[model] -= 1
        if individual.unavailable and individual.kernel is None and not individual.withdrawn:
            self._out[model] = self._last
        elif request.number > self._out.get(model, self._last):
            del self._out[model]

    def out(self, model: str) -> bool:
        """Whether a model is one of them."""
        return model in self._out

    def askable(self, model: str) -> bool:
        """Whether a request for this model is worth making."""
        return model not in self._out or not self._open[model]
