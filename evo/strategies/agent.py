"""Dialogues of the mutator `agent` that go on: the model hears what became of its kernel, and hands in the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evo.individual import Individual
from evo.strategies.archive import Elite
from evo.strategies.population import elite_of
from mutators.asking.agent import cannot_call_tools
from mutators.base import Request
from mutators.llm.settings import is_outside

FRUITLESS = 2
"""Kernels in a row that gained nothing, after which a session ends."""


class AgentSettings(BaseModel):
    """Limits of one dialogue of the mutator `agent`, and of a session of several."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    calls: int = Field(default=16, ge=1, le=200)
    """Answers of the model in one dialogue."""
    evaluations: int = Field(default=3, ge=0, le=100)
    """Drafts that are judged in it; each is charged as an evaluation."""
    tokens: int = Field(default=400_000, ge=1)
    """In and out, of all its answers."""
    usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Of all its answers; 0: as far as the run's budget goes."""
    kernels: int = Field(default=4, ge=1, le=100)
    """Handed in one after the other in one conversation."""


@dataclass(frozen=True)
class Session:
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
        self._open: dict[str, Session] = {}
        """By model, the session that may go on."""
        self._asked: dict[int, Session] = {}
        """By number of the request, what it goes on with, or begins."""
        self._unable: set[str] = set()
        """Models that can call no tools."""

    def may_ask(self, model: str) -> bool:
        """Return whether the model can work with our tools, as far as is known; nobody outside can."""
        return model not in self._unable and not is_outside(model)

    def next(self, model: str, parent: Elite) -> Session:
        """Return the session that a request goes on with; a new one begins with `parent`."""
        return self._open.get(model) or Session("", parent)

    def take(self, request: Request, parent: Elite | None) -> Elite | None:
        """Take note of a request; return what it goes on from: `parent` where no session is open."""
        session = self._open.pop(request.model, None)
        if session is None and parent:
            session = Session(request.thread, parent)
        if session:
            self._asked[request.number] = session
        return session.parent if session else None

    def params(self, session: Session) -> Mapping[str, Any]:
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
