"""The jobs of a worker: what it is asked for of a task and its fitness stage, as data that any pool can carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from fitness.evaluation import Evaluation, Timing
from fitness.judging.base import COMPILE_LIMIT_S, JUDGE_LIMIT_S, PATIENCE, Anchor, Builder, Built, Checked, Fitness
from fitness.profiling.profiles import Profile
from mutators.base import Parent, Proposal, Request
from mutators.registry import worked_out
from operators.definition.spec import Task
from operators.kernel import Kernel

Found = TypeVar("Found")


@dataclass(frozen=True)
class Job(Generic[Found]):
    """One question about a kernel; its class says which, and what those who hand out jobs must know of it."""

    name: ClassVar[str]
    """The question as messages name it."""
    builds: ClassVar[bool] = False
    """Whether it takes a compiler alone, and nothing that a worker holds of its task."""
    continues: ClassVar[bool] = False
    """Whether it goes on with a kernel that has cost an evaluator's time already, and so comes first."""
    yields: ClassVar[int] = 0
    """The number of jobs that came later and go before it."""
    has_files: ClassVar[bool] = True
    """Whether it needs, or leaves, files of its kernel on the machine that does it."""

    task: Task
    kernel: Kernel

    def limit_s(self, target: str) -> float:
        """The seconds by the wall's clock after which its pool ends it."""
        return PATIENCE * COMPILE_LIMIT_S[target] if self.builds else JUDGE_LIMIT_S

    def asked_of(self, stage: Fitness) -> Found:
        """The answer of the task's fitness stage, of which a job that `builds` needs no more than a `Builder`."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name} of {self.task}"


class Build(Job[Built | Evaluation]):
    """See `fitness.judging.base.Builder.build`."""

    name = "build"
    builds = True

    def asked_of(self, stage: Builder) -> Built | Evaluation:
        return stage.build(self.kernel)


class Emulate(Job[Checked]):
    """See `fitness.judging.base.Builder.emulate`."""

    name = "emulate"
    builds = True

    def asked_of(self, stage: Builder) -> Checked:
        return stage.emulate(self.kernel)


class SpotCheck(Job[Checked]):
    """See `fitness.judging.base.Fitness.spot_check`."""

    name = "spot_check"

    def asked_of(self, stage: Fitness) -> Checked:
        return stage.spot_check(self.kernel)


@dataclass(frozen=True)
class Propose(Job[Proposal]):
    """The answer of a mutator that asks no model; its kernel is the principal parent."""

    name = "propose"
    builds = True
    has_files = False
    request: Request
    parents: tuple[Parent, ...]

    def asked_of(self, stage: Builder) -> Proposal:
        return worked_out(self.request, self.parents, stage.operator)


@dataclass(frozen=True)
class Screen(Job[Evaluation]):
    """See `fitness.judging.base.Fitness.screen`."""

    name = "screen"
    anchor: Anchor
    race: bool

    def asked_of(self, stage: Fitness) -> Evaluation:
        return stage.screen(self.kernel, self.anchor, race=self.race)


@dataclass(frozen=True)
class Full(Job[Evaluation]):
    """See `fitness.judging.base.Fitness.full`."""

    name = "full"
    continues = True
    anchor: Anchor

    def asked_of(self, stage: Fitness) -> Evaluation:
        return stage.full(self.kernel, self.anchor)


class Confirm(Job[Evaluation]):
    """See `fitness.judging.base.Fitness.confirm`."""

    name = "confirm"
    continues = True

    def asked_of(self, stage: Fitness) -> Evaluation:
        return stage.confirm(self.kernel)


class ChooseRivals(Job[None]):
    """See `fitness.judging.base.Fitness.choose_rivals`. A confirmation that comes later is as much stronger."""

    name = "choose_rivals"
    yields = 16
    has_files = False

    def asked_of(self, stage: Fitness) -> None:
        stage.choose_rivals()


@dataclass(frozen=True)
class TakeProfile(Job[Profile]):
    """See `fitness.judging.base.Fitness.profile`. No request waits for a profile, but it must come."""

    name = "profile"
    yields = 16
    timings: Sequence[Timing]

    def asked_of(self, stage: Fitness) -> Profile:
        return stage.profile(self.kernel, self.timings)


class Runs(Protocol):
    """Something that does jobs."""

    async def run(self, job: Job[Found]) -> Found:
        """The answer. It raises WorkerLost, EngineError where no worker is left, and UserError."""
        ...
