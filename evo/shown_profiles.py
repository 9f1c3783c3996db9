"""What a prompt says of the profiles that are known when its request is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fitness.metric_sets import PROVIDER, changes, compared, shown
from fitness.profiling import Profile
from mutators.base import INFORMED, Request

STEPS_BACK = 4
"""Of the lineage that are looked at for a profile to compare with."""
Notes = tuple[str, ...]
"""Lines for a prompt; none: there is nothing to say."""


@dataclass(frozen=True)
class Origin:
    """Where a kernel comes from."""

    parent: str
    """The principal parent's id; empty where it has none."""
    depth: int
    """Steps from the first kernel of its lineage."""
    log_speedup: float | None


@dataclass
class Seen:
    """What is known of the profiles of a task, in the order in which a run learnt of it."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    """By kernel id."""
    origins: dict[str, Origin] = field(default_factory=dict)
    """By kernel id, of every kernel that was told."""

    def born(self, kernel_id: str, parents: tuple[str, ...], log_speedup: float | None) -> None:
        """Take note of a kernel; what is known of it already stays."""
        parent = next((each for each in parents if each != kernel_id), "")
        depth = self.origins[parent].depth + 1 if parent in self.origins else 0
        self.origins.setdefault(kernel_id, Origin(parent, depth, log_speedup))

    def lines(self, request: Request) -> Notes:
        """Return what a question's prompt shows: of a crossover's kernels both, of others the first parent.

        Its param `profiler` names the way of choosing among metrics.
        """
        if not request.parents:
            return ()
        first, *others = request.parents
        if request.protocol < INFORMED:
            return self.profiles[first].notes if first in self.profiles else ()
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
        depth = self.origins[kernel_id].depth if kernel_id in self.origins else 0
        return shown(provider, profile, depth=depth)

    def _since(self, kernel_id: str) -> Notes:
        """What the last edit changed, or the last few where no profile lies between them."""
        for steps, ancestor in enumerate(self._ancestors(kernel_id), 1):
            if ancestor in self.profiles:
                since = "since its parent" if steps == 1 else f"in its last {steps} steps"
                return self._between(ancestor, kernel_id, since)
        return ()

    def _between(self, before: str, after: str, words: str) -> Notes:
        """The change of the metrics between two kernels beside that of their speed."""
        if before not in self.profiles or after not in self.profiles:
            return ()
        found = changes(self.profiles[before], self.profiles[after])
        speed = _ratio(self.origins, before, after)
        return compared(words, [*([speed] if speed and found else []), *found])

    def _ancestors(self, kernel_id: str) -> Iterator[str]:
        for _ in range(STEPS_BACK):
            origin = self.origins.get(kernel_id)
            if origin is None or not origin.parent:
                return
            kernel_id = origin.parent
            yield kernel_id


def _ratio(origins: Mapping[str, Origin], before: str, after: str) -> str:
    logs = [origins[each].log_speedup if each in origins else None for each in (before, after)]
    if logs[0] is None or logs[1] is None:
        return ""
    return f"{math.exp(logs[1] - logs[0]):.3g} times as fast"
