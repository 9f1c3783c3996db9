"""Output of NVIDIA's tools, as on an H100 (columns that are not read are left out), and what is made of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cuda.compile.program import KernelCall, Program
from fitness.cuda.profiling import ncu, tools
from fitness.cuda.profiling.ncu import (
    CallCounters,
    NcuFailure,
    assembled,
    classify_measured,
    measure,
    notes,
    parse,
    placed,
)
from fitness.cuda.profiling.sanitizer import TOOLS, SanitizerFinding, audited, read
from fitness.cuda.profiling.solo import Solo, SoloRun
from fitness.evaluation import Rejection, Status, Timing
from fitness.judging.device import KernelFault
from fitness.profiling import counters
from fitness.profiling.counters import COUNTED, STALLS
from fitness.profiling.profiles import Bottleneck
from fitness.profiling.roofline import Peaks, Roofline
from fitness.sandbox.processes import ProcessOutcome
from operators.catalog import load
from operators.definition.spec import Workload

DATA = Path(__file__).parent.parent / "data" / "cuda"
CSV = (DATA / "ncu_two_launches.csv").read_text()
PEAKS = Peaks("H100", 3060.0, 3000.0, {"fp32": 66_900.0}, 2.2)


def figures(**changes: float) -> CallCounters:
    report = parse(CSV)
    assert report
    found = ncu.figures(report, [[0], [1]])
    return replace(found, values={**found.values, **changes})


def calls(*kernels: str) -> Solo:
    """A program of these kernels' launches, one after the other."""
    made = tuple(KernelCall(name, (), (1, 1, 1), (32, 1, 1), (), 0, False) for name in kernels)
    return Solo(0, b"", {}, (), (SoloRun(Program((), made, ()), {}, {}),))


@dataclass
class Tool:
    """It stands in for Nsight Compute: what it says while it watches, and the pages of its report."""

    raw: list[str]
    """By run; the last one stands for all further ones. Empty: it leaves no report."""
    source: str = ""
    said: list[str] = field(default_factory=lambda: [""])
    asked: list[tuple[list[str], Solo]] = field(default_factory=list)

    def watch(self, tool: list[str], solo: Path, *, scratch: Path, **_: object) -> ProcessOutcome:
        self.asked.append((list(tool), pickle.loads(solo.read_bytes())))
        run = len(self.asked) - 1
        if self.raw[min(run, len(self.raw) - 1)]:
            (scratch / ncu.REPORT).write_bytes(b"report")
        return ProcessOutcome(0, self.said[min(run, len(self.said) - 1)], False, 1.0)

    def tell(self, tool: list[str], *, scratch: Path, **_: object) -> ProcessOutcome:
        assert tool[1:3] == ["--import", str(scratch / ncu.REPORT)]
        page = tool[tool.index("--page") + 1]
        raw = self.raw[min(len(self.asked), len(self.raw)) - 1]
        return ProcessOutcome(0, {"raw": raw, "source": self.source}[page], False, 1.0)

    def metrics(self, run: int) -> list[str]:
        """The metrics that it was asked to count."""
        tool, _ = self.asked[run]
        return tool[tool.index("--metrics") + 1].split(",")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tool], Tool]:
    monkeypatch.setattr(ncu, "_absent", set())
    monkeypatch.setattr(ncu, "find_tool", lambda name: name)

    def put(tool: Tool) -> Tool:
        monkeypatch.setattr(ncu, "watch", tool.watch)
        monkeypatch.setattr(ncu, "tell", tool.tell)
        return tool

    return put


# --- Nsight Compute -------------------------------------------------------------------------------------------------


def test_metrics_have_values_and_units_and_launches_are_taken_together() -> None:
    found = figures()
    assert (found.launches, found.longest) == (2, "void stats_of_rows<256>")
    rows = [line.split('","') for line in CSV.splitlines() if line.startswith('"')]
    column = rows[0].index("gpu__time_duration.sum")
    first, second = (float(row[column]) for row in rows[2:])
    assert found.get("gpu__time_duration.sum") == first + second
    assert found.units["gpu__time_duration.sum"] == "ns"
    column = rows[0].index(counters.COMPUTE)
    weighted = (first * float(rows[2][column]) + second * float(rows[3][column])) / (first + second)
    assert found.get(counters.COMPUTE) == pytest.approx(weighted)
    assert {m.name for m in found.metrics} <= set(COUNTED)


def test_what_is_no_report_is_none() -> None:
    header = "\n".join(CSV.splitlines()[:5])
    for text in ("", "==ERROR== no kernels were profiled", header):
        assert parse(text) is None


@pytest.mark.parametrize(
    ("said", "words", "lasting"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "run as root", True),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded", True),
        ("==ERROR== The application returned an error code (1).", "error code", False),
        ("", "nothing", False),
    ],
)
def test_why_there_are_no_figures(
    install: Callable[[Tool], Tool], tmp_path: Path, said: str, words: str, lasting: bool
) -> None:
    install(Tool([""], said=[said]))
    with pytest.raises(NcuFailure, match=words) as failure:
        measure(calls("f", "g"), tmp_path)
    assert failure.value.lasting is lasting


def test_metrics_that_the_device_lacks_are_left_out(install: Callable[[Tool], Tool], tmp_path: Path) -> None:
    tool = install(Tool(["", CSV], said=[f"==ERROR== Failed to find metric {counters.TENSOR}", ""]))
    assert measure(calls("f", "g"), tmp_path).launches == 2
    assert counters.TENSOR in tool.metrics(0)
    assert counters.TENSOR not in tool.metrics(1)
    measure(calls("f", "g"), tmp_path)
    assert len(tool.asked) == 3  # once is enough to know it


def test_a_machine_that_does_not_sample_counts_all_the_same(install: Callable[[Tool], Tool], tmp_path: Path) -> None:
    tool = install(Tool(["", CSV], said=["==ERROR== Failed to start the sampling of warps", ""]))
    found = measure(calls("f", "g"), tmp_path)
    assert (found.launches, "no samples" in found.unsampled) == (2, True)
    assert set(counters.SAMPLES) < set(tool.metrics(0)) and not set(counters.SAMPLES) & set(tool.metrics(1))


def test_the_machine_is_alone_only_while_the_kernel_runs(install: Callable[[Tool], Tool], tmp_path: Path) -> None:
    within: list[bool] = []
    seen: list[bool] = []

    @contextmanager
    def alone() -> Iterator[None]:
        within.append(True)
        yield
        within.pop()

    class Looking(Tool):
        def watch(self, *arguments: Any, **options: Any) -> ProcessOutcome:
            seen.append(bool(within))
            return super().watch(*arguments, **options)

        def tell(self, *arguments: Any, **options: Any) -> ProcessOutcome:
            seen.append(bool(within))
            return super().tell(*arguments, **options)

    install(Looking([CSV]))
    measure(calls("f", "g"), tmp_path, alone)
    assert seen == [True, False, False]


def report_of(names: list[str], times_ns: list[float], **metrics: float) -> str:
    """The output of ncu for launches of these kernels."""
    columns = {counters.TIME: "ns", **dict.fromkeys(metrics, "%")}
    lines = [["ID", "Kernel Name", *columns], ["", "", *columns.values()]]
    for number, (name, time_ns) in enumerate(zip(names, times_ns, strict=True)):
        lines.append([str(number), f"{name}(float *)", str(time_ns), *map(str, metrics.values())])
    return "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)


def test_of_many_launches_those_are_counted_that_stand_for_most_of_the_time(
    install: Callable[[Tool], Tool], tmp_path: Path
) -> None:
    """Nine of `first` at the beginning take less than three of `main` after them."""
    names, times_ns = ["first"] * 9 + ["main", "main", "main", "last"], [10.0] * 9 + [100.0, 300.0, 200.0, 1.0]
    chosen = {counters.COMPUTE: 20.0, counters.MEMORY: 90.0, counters.DRAM: 85.0, counters.READ: 1000.0}
    counted = report_of(["first", "main", "last"], [50.0] * 3, **chosen)
    tool = install(Tool([report_of(names, times_ns), counted]))
    found = measure(calls(*names), tmp_path)
    (first, _), (second, solo) = tool.asked
    assert counters.COMPUTE not in " ".join(first) and "--profile-from-start" not in first
    assert second[second.index("--profile-from-start") + 1] == "off"
    assert solo.counted == {4, 11, 12}  # of each kernel the launch whose time is in the middle
    assert [(p.kernel, p.launches, p.time_ns) for p in found.parts] == [
        ("main", 3, 600.0), ("first", 9, 90.0), ("last", 1, 1.0)
    ]  # fmt: skip
    assert found.get(counters.READ) == 13_000.0
    text = "\n".join(notes(found, Bottleneck.BANDWIDTH, 1000))
    assert "main, 3 launches: 87 % of the time, limited by DRAM (85 % busy)" in text
    assert "first, 9 launches: 13 % of the time" in text
    moved = replace(found, values={**found.values, counters.READ: 13e6}, uncounted_ns=500.0)
    (traffic,) = (line for line in notes(moved, Bottleneck.BANDWIDTH, 10**6) if line.startswith("DRAM:"))
    assert "13 MB read, 0 MB written, by the launches that were counted;" in traffic and "the least" not in traffic
    whole = replace(moved, uncounted_ns=5.0)
    assert any("13 times the least" in line for line in notes(whole, Bottleneck.BANDWIDTH, 10**6))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({counters.COMPUTE: 80.0, counters.MEMORY: 20.0}, "arithmetic (80 % busy)"),
        ({counters.COMPUTE: 80.0, counters.MEMORY: 20.0, counters.TENSOR: 75.0}, "tensor cores (75 % busy)"),
        ({counters.COMPUTE: 20.0, counters.MEMORY: 80.0, counters.DRAM: 30.0}, "caches (80 % busy)"),
        ({counters.COMPUTE: 2.0, counters.MEMORY: 3.0, counters.WAVES: 0.06}, "too few blocks (0.06 waves)"),
        ({next(iter(STALLS)): 9.0}, "waiting for loads from global or local memory"),
    ],
)
def test_every_launch_has_its_limiter(values: dict[str, float], said: str) -> None:
    assert ncu.limiter(ncu.Part("f", values, 1, 1.0)) == said


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**6).map(float)), min_size=1, max_size=30))
def test_launches_that_are_alike_are_each_in_one_group(launches: list[tuple[str, float]]) -> None:
    program = calls(*(name for name, _ in launches)).runs[0].program.calls
    times_ns = [time_ns for _, time_ns in launches]
    groups = ncu.alike(program, times_ns)
    assert sorted(number for group in groups for number in group) == list(range(len(launches)))
    totals = [sum(times_ns[number] for number in group) for group in groups]
    assert totals == sorted(totals, reverse=True)
    for group in groups:
        assert len({launches[number][0] for number in group}) == 1
        between = sorted(times_ns[number] for number in group)
        assert times_ns[group[0]] == between[len(between) // 2]


def test_without_the_tool_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ncu, "find_tool", lambda name: None)
    with pytest.raises(NcuFailure, match="not installed"):
        measure(calls("f", "g"), tmp_path)


@pytest.mark.parametrize(
    ("compute", "memory", "waves", "latency_us", "expected"),
    [
        (30.0, 91.0, 8.0, 100.0, Bottleneck.BANDWIDTH),
        (91.0, 30.0, 8.0, 100.0, Bottleneck.COMPUTE),
        (30.0, 30.0, 8.0, 100.0, Bottleneck.LATENCY),
        (30.0, 91.0, 8.0, 10.5, Bottleneck.ROOFLINE),
        (30.0, 30.0, 8.0, 15.0, Bottleneck.LATENCY),
        (1.0, 2.0, 0.01, 100.0, Bottleneck.LAUNCH),
        (1.0, 2.0, 8.0, 6.0, Bottleneck.LAUNCH),
    ],
)
def test_the_classes(compute: float, memory: float, waves: float, latency_us: float, expected: Bottleneck) -> None:
    found = figures(
        **{counters.COMPUTE: compute, counters.MEMORY: memory, counters.WAVES: waves, counters.GRID: 2 * 1000 * waves}
    )
    attainable_us = 10.0 if latency_us > 6 else 1.0
    model = Roofline(1000, 1000, attainable_us, 1.0)
    assert classify_measured(found, model, latency_us, empty_us=2.2, sm_count=132) is expected


def test_what_stands_out_is_said() -> None:
    stall = next(iter(STALLS))
    found = figures(
        **{
            counters.ISSUE: 20.0,
            stall: 40.0,
            counters.COALESCED: 12.5,
            counters.CONFLICTS: 1e9,
            counters.LOCAL: 7.0,
            counters.UNIFORM: 50.0,
        }
    )
    text = "\n".join(notes(found, Bottleneck.LATENCY, 1000))
    for words in (
        "loads from global or local memory",
        "not coalesced",
        "conflicts",
        "local memory",
        "50 % of branches",
    ):
        assert words in text


def test_a_profile_says_what_could_not_be_had() -> None:
    shape = Workload("cpu", {"rows": 768, "cols": 1024})
    place = placed(load("softmax"), "fp32", {shape: shape.dims}, [Timing(shape.name, 20.0, 40.0, 0.7, 0.01, 10)], PEAKS)
    assert place
    facts = {"registers": 32, "spill_bytes": 0, "static_shared_bytes": 0, "access_bytes": 4, "code_bytes": 4352}
    facts |= {"cooperation": "block", "lower_precision": "tf32 tensor cores"}  # type: ignore[dict-item]
    alone = assembled(place, facts, None, sm_count=132, lack="no ncu")
    assert "no ncu" in alone.notes[0]
    assert place.countable
    slow = placed(load("softmax"), "fp32", {shape: shape.dims}, [Timing(shape.name, 1e6, 1e6, 0.0, 0.01, 5)], PEAKS)
    assert slow
    assert not slow.countable
    counted = assembled(place, facts, figures(), sm_count=132)
    assert {m.name for m in counted.metrics} > {m.name for m in alone.metrics}
    assert any("tf32" in note for note in counted.notes)


# --- compute-sanitizer ----------------------------------------------------------------------------------------------


def outcome(name: str, code: int) -> ProcessOutcome:
    return ProcessOutcome(code, (DATA / f"{name}.txt").read_text(), False, 1.0)


def test_findings_are_refusals_in_words() -> None:
    memory = read("memcheck", outcome("memcheck", 86)).rejection
    assert memory
    assert (memory.status, "Invalid __shared__ read of size 4" in memory.message) == (Status.RUNTIME_ERROR, True)
    assert "python" not in memory.message
    unwritten = read("initcheck", outcome("initcheck", 86)).rejection
    assert unwritten
    assert (unwritten.status, "nobody has written" in unwritten.message) == (Status.WRONG, True)
    race = read("racecheck", outcome("racecheck_warnings", 86)).rejection
    assert race
    assert (race.status, "race for shared memory" in race.message) == (Status.WRONG, True)
    assert "Race reported between Read access" in race.message


@pytest.mark.parametrize(
    ("tool", "name"), [("racecheck", "racecheck_warnings"), ("memcheck", "memcheck"), ("initcheck", "initcheck")]
)
def test_what_was_found_before_the_time_was_up_counts(tool: str, name: str) -> None:
    said = (DATA / f"{name}.txt").read_text().partition("SUMMARY")[0]
    found = read(tool, ProcessOutcome(-9, said, True, 30.0)).rejection
    assert found
    assert f"compute-sanitizer's {tool}" in found.message
    assert read(tool, ProcessOutcome(-9, said.splitlines()[0], True, 30.0)).lack


def test_nothing_found_needs_evidence() -> None:
    assert read("racecheck", outcome("racecheck_clean", 0)) == SanitizerFinding("racecheck")
    assert read("synccheck", outcome("synccheck_clean", 0)) == SanitizerFinding("synccheck")
    for text in (
        "",
        "========= Error: Device not supported. Please refer to the documentation",
        "========= ERROR SUMMARY: 0 errors",
    ):
        found = read("memcheck", ProcessOutcome(0, text, False, 1.0))
        assert found.lack
        assert found.rejection is None
    assert read("memcheck", ProcessOutcome(-9, "", True, 60.0)).lack


def test_the_verdict_holds_what_was_run_and_what_was_not() -> None:
    findings = [
        SanitizerFinding("memcheck"),
        SanitizerFinding("racecheck"),
        SanitizerFinding("initcheck", lack="it is slow"),
    ]
    assert audited(findings, "n=7") == {"sanitizer": "memcheck, racecheck find nothing on n=7; not run: it is slow"}
    with pytest.raises(KernelFault, match="bad"):
        audited([*findings, SanitizerFinding("synccheck", Rejection(Status.WRONG, "bad"))], "n=7")
    assert set(TOOLS) == {"memcheck", "racecheck", "synccheck", "initcheck"}


def test_tools_are_found_where_cuda_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tools.find_tool.cache_clear()
    tool = tmp_path / "bin" / "some-tool-of-cuda"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert tools.find_tool(tool.name) is None
    tool.chmod(0o755)
    tools.find_tool.cache_clear()
    assert tools.find_tool(tool.name) == str(tool)
    tools.find_tool.cache_clear()
