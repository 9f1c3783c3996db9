"""The strategy `cudamaster`: profile filter, planner, coder and debugger, three rounds (CUDAMaster, arXiv:2603.07169).

Faithful: in each of three rounds the kernel is profiled and classified by three shares of peak (compute, DRAM, memory,
cut at 30 %), and the planner is shown only the four metrics of its class (`fitness.profiling.metric_sets.CUDAMASTER`)
with the history of plans and outcomes; it answers with one incremental strategy in words. The coder carries that out,
and the debugger gets three attempts at errors of compiling, running or numbers.

Different, and why:

* Its compiler agent, which writes build commands and toolchains, is our build: kernels have no host code and no
  commands.
* The benchmark's tests are our verdict; each attempt of the debugger is a candidate like any other, judged and charged.
* What is kept after a slower round is not reported. The next round starts from the last correct version (`parent =
  last`), as in the other loops of one line: what their sources tell must not count against them. `parent = best` goes
  on from the fastest one.
* The planner is told how far the kernel is from what the machine allows, as all roles that choose a change are.
* On devices without these counters, such as the cpu target, the planner is shown what there is.

No release is known, hence no variants.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal

from pydantic import Field

from evo.individual import Individual
from evo.strategies.loop import Recipe, Step
from evo.strategies.published import Cast, CastSettings, PublishedLoop, fastest


class CudaMasterSettings(CastSettings):
    """Settings of the strategy `cudamaster`."""

    rounds: int = Field(3, ge=1, le=1000)
    """Rounds of profile, plan and code."""
    debugs: int = Field(3, ge=0, le=100)
    """Attempts of the debugger in one round."""
    parent: Literal["last", "best"] = "last"
    """Which correct version the next round starts from, the last or the fastest."""


class CudaMaster(PublishedLoop[CudaMasterSettings]):
    """Rounds of filter, plan, code and debugging."""

    Settings = CudaMasterSettings
    name = "cudamaster"
    roles = ("planner", "coder", "debugger")

    def loop(self, start: Individual, model: str) -> Recipe:
        """See `ModelLoops.loop`."""
        cast = Cast(self, model)
        base, seen = start, set[str]()
        history: list[Individual] = []
        for _ in range(self.settings.rounds):
            yield from self.profiling(base, seen)
            plan = yield cast.words("planner", base, about=history, shows="cudamaster")
            if not plan.text:
                continue
            child = yield from self._debugged(base, plan, cast)
            history += [plan, child]
            if child.correct:
                base = child if self.settings.parent == "last" else fastest([base, child])

    def _debugged(self, base: Individual, plan: Individual, cast: Cast) -> Generator[Step, Individual, Individual]:
        """The coder's kernel, as far as the debugger gets with it."""
        child = yield cast.code("coder", base, about=[plan])
        for _ in range(self.settings.debugs):
            if child.correct or child.kernel is None:
                break
            mended = yield cast.code("debugger", child, before=base)
            child = mended if mended.kernel else child
        return child
