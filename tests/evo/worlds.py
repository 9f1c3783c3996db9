"""A world for strategies: what becomes of every request, without mutators, compilers or clocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from evo.individual import Individual
from evo.strategies.base import ANCESTOR, Rival, Strategy
from fitness.evaluation import Evaluation, Level, Status, Timing
from mutators.base import Kind, Request
from operators.definition.spec import Operator, Task
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

TUNABLE = """/*! evo
[tune]
A = [1, 2, 4]
B = [1, 2]

[[launch]]
kernel = "axpb"
args = ["alpha", "x", "b", "y", "n"]
*/
"""
FAILING = (Status.COMPILE_ERROR, Status.WRONG, Status.TIMEOUT, Status.INVALID)
Fate = Callable[[Request, Kernel], Status | float]


def by_chance(request: Request, kernel: Kernel) -> Status | float:
    """Three children in four are correct, a log speedup between -1 and 2."""
    draw = Random(digest("fate", kernel.id))
    return draw.choice(FAILING) if draw.random() < 0.25 else draw.uniform(-1.0, 2.0)


@dataclass
class World:
    """Answers requests; the same request always gets the same answer."""

    operator: Operator
    task: Task
    fate: Fate = by_chance
    barren: tuple[str, ...] = ()
    """Mutators that never have a child."""
    gone: tuple[str, ...] = ()
    """Models that cannot be asked."""
    ancestor: str = TUNABLE
    """The source of the naive kernel; of another the same and its name."""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    verdicts: dict[str, Evaluation] = field(default_factory=dict)
    rivals: Callable[[Request, tuple[str, ...]], Rival] = lambda *_: Rival()

    def __post_init__(self) -> None:
        source = self.operator.ancestor("naive", self.task.target).read_text(encoding="utf-8")
        self.unjudged = Kernel(self.operator.name, self.task.target, source)
        """The naive kernel as its file has it: models may be asked to better it before anything is told."""
        self.kernels[self.unjudged.id] = self.unjudged
        self.verdicts[self.unjudged.id] = self._evaluation(
            Request(self.task, 0, ANCESTOR, (), 0, {"name": "naive"}), self.unjudged
        )

    def answer(self, request: Request) -> Individual:
        """The individual that the driver would tell."""
        if request.model in self.gone:
            return Individual(request, None, None, description=request.mutator, unavailable=True)
        if request.kind is Kind.SAY:
            return Individual(request, cost_usd=0.01, text=f"words {request.number}")
        if request.kind is Kind.PROFILE:
            return Individual(request, metrics={"occupancy": 50.0})
        kernel = self._kernel(request)
        cost_usd = 0.01 if request.model else 0.0
        if kernel is None:
            return Individual(request, None, None, 0.0, cost_usd, "nothing")
        if earlier := self.verdicts.get(kernel.id):
            return Individual(request, kernel, _inherited(kernel, earlier), 0.0, cost_usd, "again")
        evaluation = self._evaluation(request, kernel)
        self.kernels[kernel.id], self.verdicts[kernel.id] = kernel, evaluation
        return Individual(request, kernel, evaluation, 1.0, cost_usd, f"child {request.number}")

    def _kernel(self, request: Request) -> Kernel | None:
        if request.mutator == ANCESTOR:
            name = request.params["name"]
            source = self.ancestor if name == "naive" else f"{self.ancestor}// {name}\n"
            return Kernel(self.operator.name, self.task.target, source)
        if request.mutator in self.barren:
            return None
        parent = self.kernels[request.parents[0]]
        if request.mutator == "tune":
            return self._tuned(request, parent)
        # One child in eight is one that was seen before.
        mark = request.seed % 8 if request.seed % 64 < 8 else request.seed
        return Kernel(parent.operator, parent.target, f"{parent.source}// {request.mutator} {mark}\n", parent.values)

    def _tuned(self, request: Request, parent: Kernel) -> Kernel | None:
        tune = parse_plan(parent.source, self.operator, parent.target).tune
        settings: list[dict[str, int]] = [{}]
        for name, values in tune.items():
            settings = [s | ({name: v} if v != values[0] else {}) for s in settings for v in values]
        tried = [dict(trial.values) for trial in request.trials]
        left = [s for s in settings if s not in tried]
        return parent.with_values(Random(request.seed).choice(left)) if left else None

    def _evaluation(self, request: Request, kernel: Kernel) -> Evaluation:
        outcome = 0.0 if request.mutator == ANCESTOR else self.fate(request, kernel)
        cell = (f"cell{int(kernel.id[:4], 16) % 6}",)
        options: dict[str, Any] = {"cell": cell, "code_digest": kernel.id}
        if isinstance(outcome, Status):
            return Evaluation(kernel.id, str(self.task), Level.SCREEN, outcome, f"scripted {outcome}", **options)
        rival = Rival() if request.mutator == ANCESTOR else self.rivals(request, cell)
        anchor = rival.anchor if rival.race else None
        if anchor and outcome < anchor.log_speedup - 0.05:
            ratio = {"anchor_log_speedup": anchor.log_speedup, "log_ratio": outcome - anchor.log_speedup}
            return Evaluation(kernel.id, str(self.task), Level.SCREEN, Status.SLOWER, **options, **ratio)
        naive = Kernel(self.operator.name, self.task.target, self.ancestor)
        known = {"log_speedup": outcome, "log_speedup_se": 0.005, "timings": timings(kernel, outcome)}
        known |= {"anchor_log_speedup": 0.0, "anchor_id": naive.id}
        return Evaluation(kernel.id, str(self.task), Level.SCREEN, Status.CORRECT, **options, **known)


def timings(kernel: Kernel, log_speedup: float) -> tuple[Timing, ...]:
    """Times on two workloads, one of which suits a kernel better than the other, by chance."""
    bias = Random(digest("bias", kernel.source)).uniform(-0.5, 0.5)
    logs = {"small": log_speedup + bias, "large": log_speedup - bias}
    return tuple(Timing(name, 100.0 * math.exp(-log), 100.0, log, 0.005, 20) for name, log in logs.items())


def _inherited(kernel: Kernel, verdict: Evaluation) -> Evaluation:
    known: Mapping[str, Any] = {
        name: getattr(verdict, name)
        for name in ("log_speedup", "log_speedup_se", "anchor_log_speedup", "log_ratio", "cell")
    }
    return Evaluation(
        kernel.id, verdict.task, verdict.level, Status.DUPLICATE, duplicate_of=verdict.kernel_id,
        inherited=verdict.verdict, **known,
    )  # fmt: skip


Event = tuple[int, list[Request]] | Individual
"""An ask (how many were wanted, the requests) or a tell."""


def play(strategy: Strategy, world: World, *, requests: int, order: Random, most_in_flight: int = 8) -> list[Event]:
    """Ask and tell in an arbitrary order until so many requests are told, or none is asked and none under way."""
    world.rivals = strategy.rival
    events: list[Event] = []
    flying: list[Request] = []
    told = 0
    while told < requests:
        if len(flying) < most_in_flight and order.random() < 0.6:
            wanted = order.randint(1, most_in_flight - len(flying))
            asked = strategy.ask(wanted)
            if asked:
                events.append((wanted, asked))
            flying += asked
            if not flying:
                break
        elif flying:
            individual = world.answer(flying.pop(order.randrange(len(flying))))
            strategy.tell(individual)
            events.append(individual)
            told += 1
    return events


def repeat(strategy: Strategy, events: Sequence[Event]) -> None:
    """Apply a history to a fresh strategy, checking that it asks the same."""
    for event in events:
        if isinstance(event, Individual):
            strategy.tell(event)
        else:
            wanted, requests = event
            assert [request.to_json() for request in strategy.ask(wanted)] == [each.to_json() for each in requests]


def restore(strategy: Strategy, events: Sequence[Event]) -> None:
    """Tell a fresh strategy of a history as a resume does, from what a store keeps of it."""
    for event in events:
        if isinstance(event, Individual):
            strategy.tell(event)
        else:
            wanted, requests = event
            strategy.asked([Request.from_json(request.to_json()) for request in requests], wanted)
