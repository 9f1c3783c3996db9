"""The strategy `astra`: a planner and a coder in turn, on one line of versions (Astra, arXiv:2509.07506).

Faithful: the planner reads the latest version with its times beside those of the version before and with what was
wrong, and advises in words; the coder gets that version with the advice and mends what does not compile before it hands
the file in; five rounds, no profiler but the clock, no rollback, and the best version of all counts. Calls know nothing
of each other but what their prompts say.

Different, and why:

* Astra's tester writes its own tests and its profiler times the kernel: both are our verdict here, the same as for all
  strategies. A loop that grades itself by tests that it wrote could not be compared, and its tests were what failed it
  in the paper's own baseline.
* The coder's tools (save, compile) are our build of each draft in its dialogue, `builds` drafts at most; a model
  outside, which is asked one question at a time, hears of the error by its verdict, in the same conversation.
* Its orchestrator decides nothing, and is left out.

* The planner is told how far the version is from what the machine allows, as all roles that choose a change are.

`faithful` keeps what the release does: a version is the next one's base also where it is slower or wrong, and a round
that leads to nothing that compiles is followed by the next one. That one looks for the version that is missing; what it
finds depends on files that are left behind, and is not known. Here it is the last draft, or, where there is none, the
version before. `repaired` goes on from the fastest correct version, and tells the planner what became of the last
attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pydantic import Field

from evo.individual import Individual
from evo.strategies.loop import Recipe, Step
from evo.strategies.published import Cast, CastSettings, PublishedLoop, Variant, fastest
from mutators.llm.settings import is_outside


class AstraSettings(CastSettings):
    """Settings of the strategy `astra`; `drafts` are looked at by its recipe, at least compiled."""

    rounds: int = Field(5, ge=1, le=1000)
    """Rounds of plan and code."""
    builds: int = Field(4, ge=1, le=32)
    """Drafts that the coder writes in one round, until one compiles."""
    variant: Variant = "faithful"
    """`faithful`: from the latest version, whatever became of it; `repaired`: from the fastest correct one."""


class Astra(PublishedLoop[AstraSettings]):
    """Rounds of plan and code, each from one version to the next."""

    Settings = AstraSettings
    name = "astra"
    roles = ("planner", "coder")

    def loop(self, start: Individual, model: str) -> Recipe:
        """See `ModelLoops.loop`."""
        cast = Cast(self, model)
        repaired = self.settings.variant == "repaired"
        versions = [start]
        tried: Sequence[Individual] = ()
        for _ in range(self.settings.rounds):
            base = fastest(versions) if repaired else versions[-1]
            before = versions[-2:-1] if base is versions[-1] else []
            plan = yield cast.words("planner", base, *before, about=tried)
            child = (yield from self._built(base, plan, cast)) if plan.text else plan
            if child.built if repaired else child.kernel:
                versions.append(child)
            is_news = child is not plan and child is not fastest(versions)
            tried = [child] if repaired and is_news else ()

    def _built(self, base: Individual, plan: Individual, cast: Cast) -> Generator[Step, Individual, Individual]:
        """A version that compiles, or the last draft of as many as there may be."""
        builds = self.settings.builds
        drafts = "build" if self.settings.drafts == "none" else self.settings.drafts
        child = yield cast.code("coder", base, about=[plan], drafts=drafts, tries=builds)
        for _ in range(builds - 1 if is_outside(cast.model_of("coder")) else 0):
            if child.built or child.kernel is None:
                break
            child = yield cast.code("coder", child, thread=child.id)
        return child
