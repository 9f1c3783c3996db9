"""Notes on profiles for a prompt: those known when its request is asked for."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fitness.profiling.metric_sets import PROVIDER, changes, compared, shown
from fitness.profiling.profiles import Profile
from mutators.base import Request

KEPT = 256
"""Profiles of a task that are kept in memory."""
STEPS_BACK = 4
"""Number of ancestors searched for an earlier profile."""
Notes = tuple[str, ...]
"""Lines for a prompt; none: there is nothing to say."""


@dataclass(frozen=True)
class ProfiledOrigin:
    """Where a kernel comes from."""

    parent: str
    """The principal parent's id; empty where it has none."""
    depth: int
    """Steps from the first kernel of its lineage."""
    log_speedup: float | None


class KnownProfiles:
    """The profiles of a task's kernels: the latest ones whole, of all others that there are some.

    Those are read again where they are asked for. A profile takes some 16 KB, and a long run has thousands.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._whole: OrderedDict[str, Profile] = OrderedDict()
        self._ids: set[str] = set()
        self.read: Callable[[str], Profile | None] = lambda kernel_id: None
        """Reads the store's profile of a kernel."""

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._ids

    def learn(self, kernel_id: str, profile: Profile) -> None:
        """Let a profile count from now on."""
        self._ids.add(kernel_id)
        self._whole[kernel_id] = profile
        self._whole.move_to_end(kernel_id)
        if len(self._whole) > self._kept:
            self._whole.popitem(last=False)

    def get(self, kernel_id: str) -> Profile | None:
        """Return the profile of a kernel; None where there is none."""
        if kernel_id in self._ids and kernel_id not in self._whole and (found := self.read(kernel_id)):
            self.learn(kernel_id, found)
        return self._whole.get(kernel_id)


@dataclass
class Seen:
    """The known profiles of a task, in the order in which a run learnt of them."""

    profiles: KnownProfiles = field(default_factory=KnownProfiles)
    origins: dict[str, ProfiledOrigin] = field(default_factory=dict)
    """By kernel id, of every kernel that was told."""

    def born(self, kernel_id: str, parents: tuple[str, ...], log_speedup: float | None) -> None:
        """Take note of a kernel; what is known of it already stays."""
        parent = next((each for each in parents if each != kernel_id), "")
        depth = self.origins[parent].depth + 1 if parent in self.origins else 0
        self.origins.setdefault(kernel_id, ProfiledOrigin(parent, depth, log_speedup))

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
        depth = self.origins[kernel_id].depth if kernel_id in self.origins else 0
        return shown(provider, profile, depth=depth)

    def _since(self, kernel_id: str) -> Notes:
        """The notes on what the last edit changed, or the last few where no profile lies between them."""
        for steps, ancestor in enumerate(self._ancestors(kernel_id), 1):
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
        speed = _ratio(self.origins, before, after)
        return compared(words, [*([speed] if speed and found else []), *found])

    def _ancestors(self, kernel_id: str) -> Iterator[str]:
        for _ in range(STEPS_BACK):
            origin = self.origins.get(kernel_id)
            if origin is None or not origin.parent:
                return
            kernel_id = origin.parent
            yield kernel_id


def _ratio(origins: Mapping[str, ProfiledOrigin], before: str, after: str) -> str:
    logs = [origins[each].log_speedup if each in origins else None for each in (before, after)]
    if logs[0] is None or logs[1] is None:
        return ""
    return f"{math.exp(logs[1] - logs[0]):.3g} times as fast"
