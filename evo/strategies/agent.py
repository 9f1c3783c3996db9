"""Sessions of agents: within a population, and as a strategy of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from evo.strategies.loop import LoopStrategy, Recipe, needs_models
from evo.strategies.population import Elite, elite_of
from mutators.base import Request, cannot_call_tools
from mutators.llm.settings import UserSettings, is_outside
from operators.errors import UserError

FRUITLESS = 2
"""Kernels in a row that gained nothing, after which a session ends."""


class AgentSettings(UserSettings):
    """Limits of one dialogue of the mutator `agent`, and of a session of several."""

    calls: int = Field(default=16, ge=1, le=200)
    """Answers of the model in one dialogue."""
    evaluations: int = Field(default=3, ge=0, le=100)
    """Drafts that are judged in it; each is charged as an evaluation."""
    tokens: int = Field(default=400_000, ge=1)
    """In and out, of all its answers."""
    usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Dollars for all answers of one dialogue; 0: no limit but the run's budget."""
    kernels: int = Field(default=4, ge=1, le=100)
    """Handed in one after the other in one conversation."""


@dataclass(frozen=True)
class AgentSession:
    """A conversation that can go on."""

    thread: str
    """The request that it goes on with."""
    parent: Elite
    handed_in: int = 0
    fruitless: int = 0
    """Kernels in a row that were no faster than what they came from."""


class AgentSessions:
    """One session of each model at a time; all of it follows from asks and tells."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._open: dict[str, AgentSession] = {}
        """By model, the session that may go on."""
        self._asked: dict[int, AgentSession] = {}
        """By number of the request, what it goes on with, or begins."""
        self._unable: set[str] = set()
        """Models that can call no tools."""

    def may_ask(self, model: str) -> bool:
        """Return whether the model can work with our tools, as far as is known; answers from outside cannot."""
        return model not in self._unable and not is_outside(model)

    def next(self, model: str, parent: Elite) -> AgentSession:
        """Return the session that a request goes on with; a new one begins with `parent`."""
        return self._open.get(model) or AgentSession("", parent)

    def take(self, request: Request, parent: Elite | None) -> Elite | None:
        """Take note of a request; return what it goes on from: `parent` where no session is open."""
        session = self._open.pop(request.model, None)
        if session is None and parent:
            session = AgentSession(request.thread, parent)
        if session:
            self._asked[request.number] = session
        return session.parent if session else None

    def params(self, session: AgentSession) -> Mapping[str, Any]:
        """Return what the mutator is to know."""
        limits = self._settings.model_dump(exclude={"kernels"})
        return limits | ({"stagnant": session.fruitless} if session.fruitless else {})

    def tell(self, individual: Individual) -> None:
        """Learn what became of a request; a session goes on as long as it brings something."""
        session = self._asked.pop(individual.request.number, None)
        model = individual.request.model
        if session is None:
            return
        if individual.unavailable:  # says nothing of the session
            self._open.setdefault(model, session)
            return
        if cannot_call_tools(individual.failure):
            self._unable.add(model)
        if individual.kernel is None:
            return
        elite = elite_of(individual)
        gained = elite is not None and elite.log_speedup > session.parent.log_speedup
        goes_on = replace(
            session, thread=individual.id, parent=elite if elite and gained else session.parent,
            handed_in=session.handed_in + 1, fruitless=0 if gained else session.fruitless + 1,
        )  # fmt: skip
        if goes_on.handed_in < self._settings.kernels and goes_on.fruitless < FRUITLESS:
            self._open.setdefault(model, goes_on)


class AgentAloneSettings(AgentSettings):
    """Settings of the strategy `agent`."""

    n: int = Field(16, ge=1)
    """Lines of versions, independent of each other; the search ends with the last one, if its budget does not end it
    before."""
    width: int = Field(1, ge=1, le=1024)
    """Number of them that go on side by side."""
    sessions: int = Field(16, ge=1, le=1000)
    """Conversations, one after the other, of one line."""


class AgentAlone(LoopStrategy[AgentAloneSettings]):
    """Lines of sessions, each from the best version of its line. The models take turns by line."""

    Settings = AgentAloneSettings

    def __init__(self, context: StrategyContext, settings: Mapping[str, Any]) -> None:
        """It raises UserError without a model that may call tools."""
        super().__init__(context, settings)
        self.width = self.settings.width
        needs_models(context, "agent")
        self._models = [model for model in context.models if not is_outside(model)]
        if not self._models:
            raise UserError(
                "the strategy agent needs a model that calls tools, which answers from outside cannot; see `evo mcp`"
            )

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return one line of versions."""
        model = self._models[number % len(self._models)]
        return self._line(start, model) if number < self.settings.n else None

    def _line(self, start: Individual, model: str) -> Recipe:
        best = start
        limits = self.settings.model_dump(include=set(AgentSettings.model_fields) - {"kernels"})
        for _ in range(self.settings.sessions):
            thread, fruitless = "", 0
            for _ in range(self.settings.kernels):
                assert best.kernel
                params = limits | ({"stagnant": fruitless} if fruitless else {})
                child = yield self.child("agent", best.kernel, models=[model], thread=thread, params=params)
                if cannot_call_tools(child.failure):
                    return
                if child.kernel is None:
                    break
                is_better = child.correct and child.log_speedup >= best.log_speedup
                best, fruitless, thread = child if is_better else best, 0 if is_better else fruitless + 1, child.id
                if fruitless >= FRUITLESS:
                    break
