"""Profiles of a kernel on a GPU: the roofline with measured times, ptxas, and Nsight Compute where it works."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.cuda.profiling.ncu import CallCounters, classify_measured, notes
from fitness.evaluation import Timing
from fitness.profiling.profiles import Metric, Profile, classify
from fitness.profiling.roofline import Peaks, Roofline, roofline
from operators.definition.spec import Operator, Workload

FACTS: Mapping[str, str] = {
    "registers": "",
    "spill_bytes": "bytes",
    "static_shared_bytes": "bytes",
    "access_bytes": "bytes",
    "code_bytes": "bytes",
}
"""Facts of the build, with their units."""
COUNTABLE_US = 50_000.0
"""Counters take some forty runs, several of them a hundred times slower."""


@dataclass(frozen=True)
class RooflinePosition:
    """Position of the timings of one kernel under the roofline."""

    timings: tuple[tuple[Roofline, Timing], ...]
    dtype: str
    peaks: Peaks

    @property
    def worst(self) -> tuple[Roofline, Timing]:
        """Furthest below the roofline, where most is to be gained, of those that a profiler can run often enough."""
        countable = [pair for pair in self.timings if pair[1].latency_us <= COUNTABLE_US]
        return min(countable or self.timings, key=lambda pair: pair[0].efficiency(pair[1].latency_us))

    @property
    def countable(self) -> bool:
        """Whether the kernel is quick enough for counters, whose tool calls it many times."""
        return self.worst[1].latency_us <= COUNTABLE_US

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics from the model and the times, without any counter."""
        model, timing = self.worst
        logs = [math.log(max(m.efficiency(t.latency_us), 1e-12)) for m, t in self.timings]
        return (
            Metric("roofline_efficiency", math.exp(sum(logs) / len(logs)), ""),
            Metric("worst_roofline_efficiency", model.efficiency(timing.latency_us), ""),
            Metric("worst_memory_gb_s", model.bytes / timing.latency_us / 1e3, "GB/s"),
            Metric("worst_compute_gflop_s", model.flops / timing.latency_us / 1e3, "GFLOP/s"),
        )

    @property
    def notes(self) -> list[str]:
        return [f"roofline: {t.workload}: {m.placed(t.latency_us, self.dtype, self.peaks)}" for m, t in self.timings]


def placed(
    operator: Operator,
    dtype: str,
    shapes: Mapping[Workload, Mapping[str, int]],
    timings: Sequence[Timing],
    peaks: Peaks,
) -> RooflinePosition | None:
    """The roofline of every timing whose workload is among `shapes`; None where there is none."""
    dims = {w.name: values for w, values in shapes.items()}
    found = tuple((roofline(operator, dims[t.workload], dtype, peaks), t) for t in timings if t.workload in dims)
    return RooflinePosition(found, dtype, peaks) if found else None


def assembled(
    place: RooflinePosition,
    facts: Mapping[str, Any],
    figures: CallCounters | None,
    *,
    sm_count: int,
    lack: str = "",
    stalled: Sequence[str] = (),
) -> Profile:
    """Everything there is to say; `lack` says why there are no `figures` of the worst workload.

    `stalled` are sentences on the lines of the kernel file at which warps wait.
    """
    model, timing = place.worst
    known = [Metric(name, float(facts[name]), unit) for name, unit in FACTS.items()]
    if figures is None:
        found = classify(model, timing.latency_us, empty_us=place.peaks.empty_us)
        said = [f"bottleneck: {found} on {timing.workload}, going by its time alone; {lack}"]
        return Profile(found, (*place.metrics, *known), (*said, *place.notes, *_of_build(facts)))
    found = classify_measured(figures, model, timing.latency_us, empty_us=place.peaks.empty_us, sm_count=sm_count)
    first, *rest = notes(figures, found, model.bytes)
    said = [f"{first}; on {timing.workload}", *stalled, *place.notes, *rest, *_of_build(facts)]
    return Profile(found, (*place.metrics, *known, *figures.metrics), tuple(said))


def _of_build(facts: Mapping[str, Any]) -> list[str]:
    said = [f"threads cooperate within: {facts['cooperation']}"]
    if facts.get("lower_precision", "none") != "none":
        said.append(f"it computes in a lower precision than the task's: {facts['lower_precision']}")
    return said
