"""Notes on profiles for a prompt: those known when its request is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from evo.lineage import Latest, Lineage
from fitness.profiling.metric_sets import PROVIDER, changes, compared, shown
from fitness.profiling.profiles import Profile
from fitness.words import digits
from mutators.base import Request

KEPT = 256
"""Profiles of a task that are kept in memory."""
Notes = tuple[str, ...]
"""Lines for a prompt; none: there is nothing to say."""


class KnownProfiles:
    """The profiles of a task's kernels: the latest ones whole, of all others that there are some.

    Those are read again where they are asked for. A profile takes some 16 KB, and a long run has thousands.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._whole: Latest[str, Profile] = Latest(kept)
        self._ids: set[str] = set()
        self.read: Callable[[str], Profile | None] = lambda kernel_id: None
        """Reads the store's profile of a kernel."""

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._ids

    def learn(self, kernel_id: str, profile: Profile) -> None:
        """Let a profile count from now on."""
        self._ids.add(kernel_id)
        self._whole.put(kernel_id, profile)

    def get(self, kernel_id: str) -> Profile | None:
        """Return the profile of a kernel; None where there is none."""
        if kernel_id in self._ids and kernel_id not in self._whole and (found := self.read(kernel_id)):
            self.learn(kernel_id, found)
        return self._whole.get(kernel_id)


@dataclass
class Seen:
    """The known profiles of a task, in the order in which a run learnt of them."""

    lineage: Lineage
    """Where its kernels come from."""
    profiles: KnownProfiles = field(default_factory=KnownProfiles)

    def lines(self, request: Request) -> Notes:
        """Return what a question's prompt shows: of a crossover's kernels both, of others the first parent.

        Its param `profiler` names the way of choosing among metrics, and `profile_of` another kernel to show that of.
        """
        if not request.parents:
            return ()
        first, *others = request.parents
        first = request.params.get("profile_of", first)
        provider = request.params.get("profiler", PROVIDER)
        lines = [*self._of(first, provider)]
        if request.mutator == "crossover":
            for other in others[:1]:
                lines += [f"kernel B: {line}" for line in self._of(other, provider) if not line.startswith("roofline:")]
                lines += self._between(first, other, "kernel B against kernel A") if lines else ()
        elif lines:
            lines += self._since(first)
        return tuple(lines)

    def _of(self, kernel_id: str, provider: str) -> Notes:
        profile = self.profiles.get(kernel_id)
        if profile is None:
            return ()
        birth = self.lineage.birth(kernel_id)
        return shown(provider, profile, depth=birth.depth if birth else 0)

    def _since(self, kernel_id: str) -> Notes:
        """The notes on what the last edit changed, or the last few where no profile lies between them."""
        for steps, ancestor in enumerate(self.lineage.ancestors(kernel_id), 1):
            if ancestor in self.profiles:
                since = "since its parent" if steps == 1 else f"in its last {steps} steps"
                return self._between(ancestor, kernel_id, since)
        return ()

    def _between(self, before: str, after: str, words: str) -> Notes:
        """The change of the metrics between two kernels beside that of their speed."""
        old, new = self.profiles.get(before), self.profiles.get(after)
        if old is None or new is None:
            return ()
        found = changes(old, new)
        speed = self._ratio(before, after)
        return compared(words, [*([speed] if speed and found else []), *found])

    def _ratio(self, before: str, after: str) -> str:
        births = [self.lineage.birth(each) for each in (before, after)]
        old, new = (birth.log_speedup if birth else None for birth in births)
        return "" if old is None or new is None else f"{digits(math.exp(new - old))} times as fast"
