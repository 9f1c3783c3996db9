"""Memory that a plan asks for is limited by what a machine has, before any of it is allocated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitness.cpu import target
from fitness.cpu.target import CpuFitness
from fitness.evaluation import Evaluation, Status
from fitness.judging.base import Anchor
from fitness.judging.timed_inputs import COMPANY, LEAST_SETS, NOMINAL_SETS, TimedInputs, most_sets
from fitness.oracle.verify import Oracle
from fitness.sandbox import room
from fitness.sandbox.room import footprint
from operators.catalog import functions, load
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.expression import parse
from operators.plan.reading import parse_plan
from tests.fitness.kernels import RIGHT, axpb_kernel

GIB = 1 << 30


@pytest.fixture(scope="module")
def stage(axpb: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuFitness]:
    made = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path_factory.mktemp("build"))
    yield made
    made.close()


def buffers(*shapes: str) -> str:
    return "".join(f'[[buffer]]\nname = "b{n}"\ndtype = "T"\nshape = [{shape}]\n' for n, shape in enumerate(shapes))


@pytest.mark.parametrize(
    "shapes",
    [
        ('"2 ** 33"',),
        ('"2 ** 30"',) * 8,
        ('"2 ** 33 if n == 1023 else 1"',),  # on one hidden shape alone
        ('"64 * n"', '"n"', '"2 ** 10 * n"'),
        ("4096, 4096, 512",),
    ],
    ids=["one", "many", "hidden shape", "grows", "several axes"],
)
def test_scratch_beyond_the_machine_is_invalid_and_never_allocated(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch, shapes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(target, "machine_scratch_bytes", lambda: 3 * GIB if len(shapes) != 3 else 4 << 20)
    monkeypatch.setattr(target, "Region", None)
    verdict = stage.build(axpb_kernel(RIGHT, header=buffers(*shapes)))
    assert isinstance(verdict, Evaluation)
    assert verdict.status is Status.INVALID
    assert "its buffers take" in verdict.message
    assert "at most 3.00 GiB" in verdict.message or "at most 4.00 MiB" in verdict.message


def test_what_timed_calls_hold_together_counts_together(axpb: Operator) -> None:
    plan = parse_plan(axpb_kernel(RIGHT, header=buffers('"n"')).source, axpb, "cpu")
    shapes = [Workload("", {"n": n}) for n in (100, 200, 300)]
    resolved = [(w, plan.resolve(axpb, dtype="fp32", dims=w.dims, values={}, facts={})) for w in shapes]
    timed = shapes[:2]
    assert room.scratch_problem(resolved, timed, 4 * (300 + 100 + 200)) is None
    assert "`" not in str(room.scratch_problem(resolved, timed, 4 * (300 + 100 + 200) - 1))
    assert room.scratch_problem([], timed, 0) is None


def test_a_container_has_what_its_group_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {48 << 20} kB\n")
    limit, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(room, "MEMORY", meminfo)
    monkeypatch.setattr(room, "GROUPS", ((tmp_path / "none", tmp_path / "none"), (limit, used)))
    assert room.machine_scratch_bytes() == 8 * GIB
    limit.write_text("max\n")
    used.write_text("5\n")
    assert room.machine_scratch_bytes() == 8 * GIB
    limit.write_text(f"{16 * GIB}\n")
    assert room.machine_scratch_bytes() == 2 * GIB
    used.write_text(f"{15 * GIB}\n")
    assert room.machine_scratch_bytes() == GIB // 2


@pytest.mark.slow
def test_a_task_holds_what_its_operators_sizes_tell() -> None:
    operator = load("fused_add_rms_norm")
    oracle = Oracle(operator, functions(operator.folder), "fp32")
    workloads, rng = operator.workload_set("cpu"), np.random.default_rng(6)
    held = TimedInputs(
        workloads, oracle.deals, lambda w, f: oracle.case(w, f, rng, at_end=False), np.random.default_rng(7),
        sets=[most_sets(oracle.deals, len(workloads))] * len(workloads),
    )  # fmt: skip
    cases = [timed.case for sets in held.nominal for timed in sets]
    cases += [case for sets in held.company for case in sets]
    found = sum(
        sum(t.nbytes for t in case.inputs.tensors.values())
        + sum(extent.bytes for extent in case.region.extents.values())
        + sum(case.expected[t.name].nbytes + case.allowed[t.name].nbytes for t in operator.outputs)
        for case in cases
    )
    told = footprint(operator, workloads, "fp32", [NOMINAL_SETS + COMPANY] * len(workloads))
    outputs = sum(sum(oracle.work_sizes(case.dims).values()) for case in (sets[0].case for sets in held.nominal))
    inout = sum(case.inputs.tensors[t.name].nbytes for case in cases for t in operator.inputs if t.role == "inout")
    assert told.held_bytes == found + outputs + inout  # of which there is no second copy for runners


def test_a_size_that_only_the_data_tell_counts_as_one() -> None:
    operator = load("spmv_csr")
    workloads = operator.workload_set("cpu")
    plain = footprint(operator, workloads, "fp32", [2] * len(workloads))
    longest = parse("max_row_nnz", ("max_row_nnz",))
    padded = replace(operator.inputs[0], name="padded", dtype="int32", shape=(longest,))
    wider = footprint(replace(operator, tensors=(*operator.tensors, padded)), workloads, "fp32", [2] * len(workloads))
    assert wider.held_bytes == plain.held_bytes + len(workloads) * 2 * 2 * 4


def test_where_memory_is_short_the_largest_workloads_keep_fewer_sets() -> None:
    operator, dtype, most = load("matrix_transpose"), "fp32", 4
    workloads = operator.workload_set("published+realistic")

    def told(sets: Sequence[int]) -> int:
        found = footprint(operator, workloads, dtype, sets)
        return found.held_bytes + found.working_bytes

    whole, least = told([most] * len(workloads)), told([1] * len(workloads))
    assert room.sets_within(whole, operator, workloads, dtype, most) == (most,) * len(workloads)
    for limit in (whole - 1, (whole + least) // 2, least):
        sets = room.sets_within(limit, operator, workloads, dtype, most)
        assert least <= told(sets) <= limit and min(sets) >= 1
        kept = [many for _, many in sorted(zip(map(sized, workloads), sets, strict=True))]
        assert kept[0] >= kept[-1]
        roomy = room.sets_within(limit, operator, workloads, dtype, most, beside=1)
        assert told([many + 1 for many in roomy]) <= limit or set(roomy) == {1}
    with pytest.raises(OperatorError, match=r"matrix_transpose: one set .* GiB .* choose a workload_set"):
        room.sets_within(least - 1, operator, workloads, dtype, most)


def test_a_bench_that_runs_out_of_memory_keeps_fewer_sets_and_judges_on(axpb: Operator, tmp_path: Path) -> None:
    stage = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        kept = []
        while not kept or stage.bench.thin():
            inputs = stage.bench.inputs
            kept.append([len(a) + len(b) for a, b in zip(inputs.nominal, inputs.company, strict=True)])
            assert all(inputs.nominal) and all(inputs.company)
        assert kept == sorted(kept, reverse=True) and {*kept[-1]} == {LEAST_SETS} and len(kept) > 1
        kernel = axpb_kernel(RIGHT)
        stage.build(kernel)
        assert stage.screen(kernel, Anchor(stage.baseline, 0.0, 0.0), race=False).correct
    finally:
        stage.close()


def sized(workload: Workload) -> int:
    return workload.dims["rows"] * workload.dims["cols"]
