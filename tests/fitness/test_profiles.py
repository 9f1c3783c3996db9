"""Profiles in prompts: golden texts of three kernels, and what changed between two.

The figures are made by hand, of the kind that an H100 shows for a product, a chain of dependent loads, and a copy.
Write the texts again with `python -m tests.fitness.test_profiles`, and read what changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.cuda.profiling.ncu import CallCounters, classify_measured, figures, notes, parse
from fitness.profiling import counters
from fitness.profiling.counters import COUNTED
from fitness.profiling.metric_sets import (
    CUDAFORGE,
    CUDAMASTER,
    CUTEGEN,
    DELAYED_UNTIL,
    PROVIDERS,
    changes,
    cudamaster_class,
    shown,
)
from fitness.profiling.profiles import Bottleneck, Metric, Profile
from fitness.profiling.roofline import Roofline

GOLDEN = Path(__file__).parent.parent / "data" / "profiles"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio".format
COMMON: dict[str, float] = {
    counters.READ: 6.7e7, counters.WRITTEN: 3.3e7, counters.L1_HITS: 20.0, counters.L2_HITS: 45.0, counters.WAVES: 6.2,
    counters.GRID: 4096, "launch__block_size": 256, counters.REGISTERS: 40, counters.COALESCED: 100.0,
    counters.UNIFORM: 100.0, counters.CONFLICTS: 0.0, counters.LOCAL: 0.0, counters.INSTRUCTIONS: 4e6,
    counters.ACTIVE: 9.8e4, counters.ELAPSED: 1e5, **dict.fromkeys(counters.LIMITS, 8),
    "launch__occupancy_limit_registers": 6, "launch__shared_mem_per_block_static": 0,
    "launch__shared_mem_per_block_dynamic": 0,
}  # fmt: skip
KERNELS: dict[str, dict[str, float]] = {
    "compute": {
        counters.TIME: 5.2e5, counters.COMPUTE: 88.0, counters.MEMORY: 35.0, counters.DRAM: 9.0, counters.TENSOR: 81.0,
        counters.OCCUPANCY: 24.0, counters.ISSUE: 62.0, counters.REGISTERS: 168, STALL("gmma"): 2.1, STALL("wait"): 0.9,
        "sm__inst_executed.avg.per_cycle_active": 2.4, "launch__shared_mem_per_block_dynamic": 2.0e5,
    },
    "latency": {
        counters.TIME: 2.2e5, counters.COMPUTE: 14.0, counters.MEMORY: 22.0, counters.DRAM: 11.0,
        counters.OCCUPANCY: 48.0, counters.ISSUE: 9.0, counters.COALESCED: 12.5, counters.UNIFORM: 71.0,
        STALL("long_scoreboard"): 31.0, STALL("branch_resolving"): 3.0,
    },
    "bandwidth": {
        counters.TIME: 3.3e4, counters.COMPUTE: 18.0, counters.MEMORY: 92.0, counters.DRAM: 91.0,
        counters.OCCUPANCY: 83.0, counters.ISSUE: 15.0, STALL("long_scoreboard"): 44.0, STALL("lg_throttle"): 6.0,
    },
}  # fmt: skip


def counted(values: dict[str, float], kernel: str = "main_kernel") -> CallCounters:
    """Figures of one launch, read from what ncu would print of it."""
    own = COMMON | values
    header = ["ID", "Kernel Name", *own]
    units = ["", "", *(_unit(name) for name in own)]
    rows = [header, units, ["0", f"{kernel}(int)", *map(str, own.values())]]
    report = parse("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows))
    assert report
    return figures(report, [[0]])


def _unit(name: str) -> str:
    if name == counters.TIME:
        return "nsecond"
    return "%" if "pct" in name else "byte" if "bytes" in name else ""


def profile(name: str) -> Profile:
    found = counted(KERNELS[name])
    model = Roofline(10**8, 10**8, 25.0, 1.0)
    bottleneck = classify_measured(found, model, found.get(counters.TIME) / 1e3, empty_us=2.2, sm_count=132)
    return Profile(bottleneck, found.metrics, tuple(notes(found, bottleneck, model.bytes)))


def text_of(name: str) -> str:
    """The text that every way of choosing shows of a kernel."""
    made = profile(name)
    parts = [(provider, shown(provider, made, depth=DELAYED_UNTIL)) for provider in PROVIDERS]
    return "\n".join(f"## {provider}\n\n" + "".join(f"- {line}\n" for line in lines) for provider, lines in parts)


@pytest.mark.parametrize("name", KERNELS)
def test_golden_texts(name: str) -> None:
    assert text_of(name) == (GOLDEN / f"{name}.md").read_text()


def test_the_three_kernels_are_what_they_are_called() -> None:
    classes = (Bottleneck.COMPUTE, Bottleneck.LATENCY, Bottleneck.BANDWIDTH)
    assert [profile(name).bottleneck for name in KERNELS] == list(classes)
    cudamaster = ["compute-bound", "memory-latency-bound", "memory-bandwidth-bound"]
    assert [cudamaster_class(profile(name).values) for name in KERNELS] == cudamaster


def test_what_is_shown_is_counted() -> None:
    shown_names = {*CUDAFORGE, *CUTEGEN.values(), *(n for names in CUDAMASTER.values() for n in names.values())}
    assert shown_names <= {*COUNTED}
    assert len(CUDAFORGE) == 24


def test_early_kernels_have_no_delayed_profile_and_none_is_none() -> None:
    made = profile("latency")
    assert shown("delayed", made, depth=DELAYED_UNTIL - 1) == ()
    assert shown("delayed", made, depth=DELAYED_UNTIL) == shown("filtered", made, depth=0) == made.notes
    assert shown("none", made, depth=9) == ()


def test_without_counters_every_way_shows_what_there_is() -> None:
    made = Profile(None, (Metric("registers", 32.0, ""),), ("going by its time alone",))
    for provider in ("cudaforge", "cutegen"):
        assert shown(provider, made, depth=0) == made.notes


def test_changes_are_told_the_largest_first_and_small_ones_not_at_all() -> None:
    before, after = profile("latency"), profile("bandwidth")
    told = changes(before, after)
    assert told[0] == "bottleneck latency -> bandwidth"
    assert "use of loaded sectors 12 -> 100 %" in told and "DRAM busy 11 -> 91 %" in told
    assert not any("hits in L2" in text for text in told)
    assert changes(before, before) == []
    few = Profile(None, (Metric(counters.REGISTERS, 40.0, ""), Metric(counters.LOCAL, 0.0, "")), ())
    more = Profile(None, (Metric(counters.REGISTERS, 42.0, ""), Metric(counters.LOCAL, 5.0, "")), ())
    assert changes(few, more) == ["accesses to local memory 0 -> 5"]


if __name__ == "__main__":
    for each in KERNELS:
        (GOLDEN / f"{each}.md").write_text(text_of(each))
