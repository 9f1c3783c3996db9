"""Floors and rooflines from given peaks, and the measured peaks of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fitness.cpu import peaks as measuring
from fitness.cuda.peaks import FLOPS_PER_CLOCK
from fitness.profiling.roofline import MARGIN, Peaks, floor_us, products, roofline, traffic, ways
from fitness.sandbox.native import ToolchainError, checks
from operators.catalog import load
from operators.definition.spec import Operator

THREADS = len(os.sched_getaffinity(0))
ROUND = Peaks("round numbers", read_gb_s=10.0, copy_gb_s=8.0, gflop_s={"fp32": 100.0}, empty_us=1.0)
sizes = st.integers(1, 10**7)


# --- the models -----------------------------------------------------------------------------------------------------


def test_traffic_divides_what_is_read_from_what_is_written(axpb: Operator) -> None:
    moved = traffic(axpb, {"n": 1000}, "fp32")
    assert (moved.read, moved.written, moved.total) == (8000, 4000, 12000)


def test_what_only_the_data_tells_is_not_counted_as_read() -> None:
    matrix, dims = load("spmv_csr"), {"rows": 10, "cols": 5, "nnz": 100}
    moved = traffic(matrix, dims, "fp32", least=True)
    assert moved.read == 8 * 100 + 4 * 11  # not x: how much of it is needed, only the data tells
    assert moved.written == 40
    assert traffic(matrix, dims, "fp32").read - moved.read == 4 * 5  # a plain algorithm reads all of it


def test_a_table_that_may_be_empty_is_no_reason_to_call_its_kernels_slow() -> None:
    table = load("spmv_ell")
    dims = {"rows": 1000, "cols": 1000, "slots": 27}
    assert roofline(table, dims, "fp32", ROUND).bytes == (4 + 4) * 27_000 + 4 * 2000
    assert floor_us(table, dims, "fp32", ROUND) == pytest.approx(4000 / 10e9 * 1e6 / MARGIN)  # the first column ids


def test_the_floor_of_a_stream_is_reading_its_inputs(axpb: Operator) -> None:
    assert floor_us(axpb, {"n": 10**6}, "fp32", ROUND) == pytest.approx(8e6 / 10e9 * 1e6 / MARGIN)


def test_the_floor_of_a_product_is_its_arithmetic_less_what_algorithms_save() -> None:
    product = load("matrix_mul")
    dims = {"m": 300, "n": 300, "k": 300}
    least = product.min_flops.evaluate(dims)
    assert least < product.flops.evaluate(dims)
    assert floor_us(product, dims, "fp32", ROUND) == pytest.approx(least / 100e9 * 1e6 / MARGIN)
    model = roofline(product, dims, "fp32", ROUND)
    assert (model.bound, model.attainable_us) == ("compute", pytest.approx(2 * 300**3 / 100e9 * 1e6))


def test_writes_count_in_a_floor_only_beyond_what_caches_hold(axpb: Operator) -> None:
    dims = {"n": 10**6}
    all_cached = floor_us(axpb, dims, "fp32", ROUND)
    half_cached = floor_us(axpb, dims, "fp32", dataclasses.replace(ROUND, written_cache_bytes=2e6))
    none_cached = floor_us(axpb, dims, "fp32", dataclasses.replace(ROUND, written_cache_bytes=0))
    assert (half_cached / all_cached, none_cached / all_cached) == (pytest.approx(10 / 8), pytest.approx(12 / 8))


def test_floors_go_by_what_is_possible_and_rooflines_by_what_was_seen(axpb: Operator) -> None:
    dims = {"n": 10**6}
    possible = dataclasses.replace(ROUND, ceiling_gb_s=20.0)
    assert floor_us(axpb, dims, "fp32", possible) == pytest.approx(floor_us(axpb, dims, "fp32", ROUND) / 2)
    assert roofline(axpb, dims, "fp32", possible) == roofline(axpb, dims, "fp32", ROUND)


def test_the_floor_of_arithmetic_goes_by_the_fastest_way_to_the_precision() -> None:
    product, dims = load("matrix_power"), {"n": 4096, "power": 5}
    rates = {unit: 132 * 1.98 * rate for unit, rate in FLOPS_PER_CLOCK[9, 0].items()}
    fp32 = {"fp32": rates["fp32"]}
    plain = Peaks("H100 without tensor cores", read_gb_s=3000.0, copy_gb_s=3000.0, gflop_s=fp32, empty_us=1.0)
    real = dataclasses.replace(plain, ways_gflop_s=ways(rates))
    of_three_tf32_us = 3 * product.min_flops.evaluate(dims) / rates["tf32"] / 1e3
    assert floor_us(product, dims, "fp32", real) < of_three_tf32_us < floor_us(product, dims, "fp32", plain)
    assert roofline(product, dims, "fp32", real) == roofline(product, dims, "fp32", plain)


@pytest.mark.parametrize(
    ("wanted", "part", "count"),
    [("fp32", "tf32", 3), ("fp32", "fp16", 3), ("fp32", "bf16", 6), ("fp32", "int8", 6), ("fp64", "int8", 28)],
)
def test_products_of_parts_are_as_many_as_the_precision_needs(wanted: str, part: str, count: int) -> None:
    assert products(wanted, part) == count


def test_a_way_is_never_slower_than_the_type_itself_and_16_bits_have_no_other() -> None:
    assert ways({"fp32": 100.0, "fp64": 50.0, "bf16": 200.0, "int8": 400.0}) == {"fp32": 100.0, "fp64": 50.0}
    assert ways({"fp32": 1.0, "fp64": 1.0, "int8": 56.0}) == {"fp32": 56 / 6, "fp64": 2.0}
    for rates in FLOPS_PER_CLOCK.values():
        assert all(rate >= rates[dtype] for dtype, rate in ways(rates).items())


def test_a_dtype_without_a_peak_has_no_floor_of_arithmetic() -> None:
    product = load("matrix_mul")
    dims = {"m": 512, "n": 512, "k": 512}
    memory_us = traffic(product, dims, "fp64").read / 10e9 * 1e6
    assert floor_us(product, dims, "fp64", ROUND) == pytest.approx(memory_us / MARGIN)


def test_faster_copies_than_reads_lower_the_attainable_time_but_not_below_the_reads(axpb: Operator) -> None:
    dims = {"n": 10**6}
    assert roofline(axpb, dims, "fp32", ROUND).attainable_us == pytest.approx(12e6 / 10e9 * 1e6)
    duplex = dataclasses.replace(ROUND, copy_gb_s=100.0)
    assert roofline(axpb, dims, "fp32", duplex).attainable_us == pytest.approx(8e6 / 10e9 * 1e6)


def test_intensity_and_efficiency(axpb: Operator) -> None:
    model = roofline(axpb, {"n": 1200}, "fp32", ROUND)
    assert model.bound == "memory"
    assert model.intensity == pytest.approx(2 / 12)
    assert model.efficiency(model.attainable_us) == 1.0
    assert model.efficiency(4 * model.attainable_us) == 0.25


@given(sizes, st.floats(1, 1e4), st.floats(1, 1e4), st.floats(1, 1e6))
def test_a_floor_never_exceeds_the_roofline_and_falls_when_peaks_rise(
    n: int, read: float, copy: float, flops: float
) -> None:
    operator = load("softmax")
    dims = {"rows": 1 + n % 97, "cols": n}
    peaks = Peaks("drawn", read_gb_s=read, copy_gb_s=copy, gflop_s={"fp32": flops}, empty_us=0.1)
    floor = floor_us(operator, dims, "fp32", peaks)
    assert 0 < floor < roofline(operator, dims, "fp32", peaks).attainable_us
    faster = Peaks("raised", read_gb_s=2 * read, copy_gb_s=2 * copy, gflop_s={"fp32": 2 * flops}, empty_us=0.1)
    assert floor_us(operator, dims, "fp32", faster) == pytest.approx(floor / 2)


def test_the_smallest_shape_still_has_a_floor() -> None:
    empty = {"rows": 0, "cols": 1, "nnz": 0}  # one row offset
    assert floor_us(load("spmv_csr"), empty, "fp32", ROUND) == pytest.approx(4 / 10e9 * 1e6 / MARGIN)


# --- the measured peaks ---------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the peaks of this test are kept, and short measurements."""
    path = tmp_path / "peaks.json"
    monkeypatch.setattr(measuring, "_path", lambda threads: path)
    monkeypatch.setattr(measuring, "MEASURE_MS", 100)
    return path


def test_no_library_beats_the_measured_peaks(cache: Path) -> None:
    found = measuring.peaks(THREADS)
    assert found.threads == THREADS
    assert found.copy_gb_s > 0
    assert found.ceiling_gb_s >= found.read_gb_s
    assert found.empty_us > 0 or not found.quiet
    a = torch.ones(512, 512)
    assert 2 * 512**3 / _best_s(lambda: torch.mm(a, a)) / 1e9 < MARGIN * found.gflop_s["fp32"]
    b = a.double()
    assert 2 * 512**3 / _best_s(lambda: torch.mm(b, b)) / 1e9 < MARGIN * found.gflop_s["fp64"]
    data = np.ones(1 << 22)
    cold_s = _best_s(data.sum, before=lambda: checks().evo_flush(data.ctypes.data, data.nbytes))
    assert data.nbytes / cold_s / 1e9 < MARGIN * found.ceiling_gb_s


def _best_s(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    times = []
    for _ in range(5):
        before()
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def test_peaks_are_measured_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_measure", lambda threads: dataclasses.replace(ROUND, threads=threads))
    first = measuring.peaks(3)
    monkeypatch.delattr(measuring, "_measure")
    assert measuring.peaks(3) == first


@pytest.mark.parametrize("left", ["", "{", "[1]", '{"device": "half"}'])
def test_a_cache_that_is_cut_off_or_of_another_version_is_measured_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    cache.write_text(left, encoding="utf-8")
    monkeypatch.setattr(measuring, "_measure", lambda threads: dataclasses.replace(ROUND, threads=threads))
    assert measuring.peaks(1) == ROUND
    assert json.loads(cache.read_text(encoding="utf-8"))["read_gb_s"] == ROUND.read_gb_s


def test_measuring_again_only_raises_peaks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = dataclasses.replace(ROUND, read_gb_s=12.0, copy_gb_s=7.0, gflop_s={"fp32": 90.0}, empty_us=2.0)
    monkeypatch.setattr(measuring, "_measure", lambda threads: ROUND)
    known = measuring.peaks(1)
    monkeypatch.setattr(measuring, "_measure", lambda threads: fresh)
    raised = measuring.remeasure(known)
    assert raised == dataclasses.replace(ROUND, read_gb_s=12.0, ceiling_gb_s=12.0)
    assert measuring.peaks(1) == raised
    # Another process may have kept better ones meanwhile.
    assert measuring.remeasure(known) == raised


FIGURES = {
    "read_gb_s": 100.0, "alone_gb_s": 20.0, "copy_gb_s": 90.0, "fp32_gflop_s": 64.0, "fp64_gflop_s": 32.0,
    "empty_us": 3.0, "waiting": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("threads", "read_gb_s", "waiting", "ceiling_gb_s"),
    [
        (1, 20.0, 0.0, 20.0),
        (2, 30.0, 0.0, 40.0),
        (64, 100.0, 0.0, 100.0),
        (64, 100.0, 0.5, 1280.0),
        (2, 5.0, 0.9, 40.0),
    ],
)
def test_threads_read_no_faster_together_than_each_alone(
    threads: int, read_gb_s: float, waiting: float, ceiling_gb_s: float
) -> None:
    found = measuring._from_figures(FIGURES | {"read_gb_s": read_gb_s, "waiting": waiting}, threads)
    assert found.ceiling_gb_s == ceiling_gb_s
    assert found.read_gb_s == max(read_gb_s, 20.0)
    assert (found.quiet, found.empty_us) == ((True, 3.0) if waiting == 0 else (False, 0.0))


def test_a_quiet_measurement_replaces_the_bound_of_a_busy_one_but_not_what_was_seen() -> None:
    busy = measuring._from_figures(FIGURES | {"read_gb_s": 110.0, "waiting": 0.5}, 64)
    quiet = measuring._from_figures(FIGURES, 64)
    for known, fresh in ((busy, quiet), (quiet, busy)):
        both = measuring._better(known, fresh)
        assert (both.ceiling_gb_s, both.read_gb_s, both.empty_us, both.quiet) == (110.0, 110.0, 3.0, True)
    assert measuring._better(busy, busy).ceiling_gb_s == 1280.0


def test_what_a_busy_machine_showed_is_measured_again_after_a_while(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = dataclasses.replace(ROUND, quiet=False)
    monkeypatch.setattr(measuring, "_measure", lambda threads: busy)
    assert measuring.peaks(1) == busy
    monkeypatch.setattr(measuring, "_measure", lambda threads: ROUND)
    assert measuring.peaks(1) == busy
    monkeypatch.setattr(measuring, "RETRY_S", 0.0)
    assert measuring.peaks(1).quiet


def test_a_program_that_fails_is_the_machines_fault(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(measuring, "_program", lambda: Path("/bin/false"))
    with pytest.raises(ToolchainError, match="/bin/false does not run"):
        measuring.peaks(1)
