"""Profiles of kernels whose faults are known."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from fitness.cpu import profiler
from fitness.cpu.build import BuiltKernel, CpuBuild, build
from fitness.cpu.profiler import parse_callgrind, parse_remarks, profile, simulated_shape
from fitness.evaluation import Timing
from fitness.profiling.profiles import Bottleneck, Profile, classify
from fitness.profiling.roofline import Peaks, Roofline, roofline
from operators.catalog import load
from operators.definition.spec import Operator, Workload
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.fitness.kernels import LOOP, axpb_kernel

PEAKS = Peaks("round numbers", read_gb_s=10.0, copy_gb_s=10.0, gflop_s={"fp32": 100.0}, empty_us=1.0, threads=2)
FACTS = {"cpu_count": 2, "l2_bytes": 1 << 20}
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
STRIDED = "for (int phase = 0; phase < 64; phase++) for (int i = phase; i < n; i += 64) y[i] = alpha * x[i] + b[i];"


def subject(operator: Operator, kernel: Kernel, folder: Path, dtype: str = "fp32") -> BuiltKernel:
    plan = parse_plan(kernel.source, operator, "cpu")
    made = build(kernel, plan, operator, dtype=dtype, folder=folder, resolved="")
    assert isinstance(made, CpuBuild), made
    return BuiltKernel(kernel, plan, made, operator, dtype)


def timed(workload: Workload, latency_us: float) -> Timing:
    return Timing(workload.name, latency_us, latency_us, 0.0, 0.01, 10)


def profile_of(operator: Operator, kernel: Kernel, folder: Path, *, latency_us: float = 1e4) -> Profile:
    workloads = operator.workload_set("cpu")
    return profile(
        subject(operator, kernel, folder),
        shapes={w: operator.environment(w.dims) for w in workloads},
        timings=[timed(w, latency_us) for w in workloads],
        peaks=PEAKS,
        facts=FACTS,
        folder=folder,
    )


def metrics(result: Profile) -> dict[str, float]:
    return {metric.name: metric.value for metric in result.metrics}


def text(result: Profile) -> str:
    return "\n".join(result.notes)


# --- the class ------------------------------------------------------------------------------------------------------

STREAM = Roofline(bytes=10**6, flops=10**5, memory_us=100.0, compute_us=1.0)
PRODUCT = Roofline(bytes=10**5, flops=10**7, memory_us=10.0, compute_us=100.0)


@pytest.mark.parametrize(
    ("model", "latency_us", "empty_us", "waste", "expected"),
    [
        (STREAM, 105.0, 1.0, 1.0, Bottleneck.ROOFLINE),
        (STREAM, 90.0, 1.0, 1.0, Bottleneck.ROOFLINE),
        (STREAM, 150.0, 1.0, 1.0, Bottleneck.BANDWIDTH),
        (STREAM, 1000.0, 1.0, 1.0, Bottleneck.LATENCY),
        (STREAM, 1000.0, 1.0, 8.0, Bottleneck.BANDWIDTH),
        (STREAM, 150.0, 60.0, 1.0, Bottleneck.LAUNCH),
        (PRODUCT, 105.0, 60.0, 1.0, Bottleneck.ROOFLINE),
        (PRODUCT, 150.0, 1.0, 1.0, Bottleneck.COMPUTE),
        (PRODUCT, 1000.0, 1.0, 1.0, Bottleneck.LATENCY),
    ],
)
def test_the_class_follows_from_the_model_and_the_time(
    model: Roofline, latency_us: float, empty_us: float, waste: float, expected: Bottleneck
) -> None:
    assert classify(model, latency_us, empty_us=empty_us, waste=waste) is expected


def test_the_workload_with_most_to_gain_names_the_class(axpb: Operator, tmp_path: Path) -> None:
    small, large = axpb.workload_set("cpu")
    shapes = {w: axpb.environment(w.dims) for w in (small, large)}
    attainable_us = {w: roofline(axpb, dims, "fp32", PEAKS).attainable_us for w, dims in shapes.items()}
    timings = [timed(small, attainable_us[small]), timed(large, 50 * attainable_us[large])]
    kernel = subject(axpb, axpb_kernel(f"{LOOP}y[i] = alpha * x[i] + b[i];"), tmp_path)
    result = profile(kernel, shapes=shapes, timings=timings, peaks=PEAKS, facts=FACTS, folder=tmp_path)
    assert result.bottleneck is Bottleneck.LATENCY
    assert result.notes[0].startswith(f"bottleneck: latency on {large.name}.")
    assert metrics(result)["worst_roofline_efficiency"] == pytest.approx(1 / 50)
    assert metrics(result)["roofline_efficiency"] == pytest.approx(50**-0.5)
    assert f"roofline: {small.name}:" in text(result)
    assert "(100 %)" in text(result)


def test_without_a_measurement_there_is_no_class(axpb: Operator, tmp_path: Path) -> None:
    kernel = subject(axpb, axpb_kernel(f"{LOOP}y[i] = 0;"), tmp_path)
    result = profile(kernel, shapes={}, timings=(), peaks=PEAKS, facts=FACTS, folder=tmp_path)
    assert result.bottleneck is None
    assert "nothing was timed" in text(result)
    assert "no simulation" in text(result)
    assert list(tmp_path.glob("tmp*")) == []


# --- the compiler's words -------------------------------------------------------------------------------------------


def test_remarks_are_about_the_kernels_own_lines(axpb: Operator, tmp_path: Path) -> None:
    body = """    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    for (int i = 1; i < n; i++) y[i] += 0 * y[i - 1];"""
    kernel = axpb_kernel(body)
    remarks = profiler.vectorizer_remarks(subject(axpb, kernel, tmp_path), tmp_path)
    lines = {r.line: r for r in remarks}
    source = kernel.source.splitlines()
    first, second = (next(n for n, row in enumerate(source, 1) if start in row) for start in ("i = 0", "i = 1"))
    assert set(lines) == {first, second}
    assert lines[first].vector_bytes >= 16
    assert lines[first].text.endswith(", behind a check that its pointers do not overlap")
    assert lines[second].vector_bytes == 0
    assert "not vectorized: " in lines[second].text


LOG = """kernel:3:23: missed: couldn't vectorize loop
kernel:3:23: missed: not vectorized: multiple nested loops.
prelude:40:3: missed: couldn't vectorize loop
kernel:9:27: optimized: loop vectorized using 32 byte vectors
kernel:9:27: optimized:  loop versioned for vectorization because of possible aliasing
kernel:9:27: optimized: loop vectorized using 16 byte vectors
kernel:7:27: missed: couldn't vectorize loop
kernel:2:6: missed: not vectorized: unsupported use in stmt.
kernel:9:27: missed: couldn't vectorize loop
kernel:9:27: missed: not vectorized: complicated access pattern.
kernel:12:5: optimized: basic block part vectorized using 32 byte vectors
"""


def test_remarks_keep_the_best_outcome_per_line_and_the_reason() -> None:
    assert [r.text for r in parse_remarks(LOG)] == [
        "line 3: loop not vectorized: multiple nested loops",
        "line 7: loop not vectorized: unsupported use in stmt",
        "line 9: loop vectorized, 32 bytes, behind a check that its pointers do not overlap",
        "line 12: straight code vectorized, 32 bytes",
    ]
    counts = {m.name: m.value for m in profiler._loop_metrics(parse_remarks(LOG))}
    assert counts == {"loops_vectorized": 1, "loops_not_vectorized": 2}


# --- simulation -----------------------------------------------------------------------------------------------------

CALLGRIND = """events: Ir Dr Dw I1mr D1mr D1mw
ob=/x/driver
fl=driver.c
fn=main
cob=/x/kernel.so
cfi=shim
cfn=evo_launch_0
calls=1 0
7 500 9 9 9 9 9
9 11

ob=/x/kernel.so
fl=shim
fn=evo_launch_0
fi=kernel
4 100 10 5 0 3 2
fe=shim
2 1
cob=/lib/libgomp.so
cfi=team.c
cfn=GOMP_parallel
calls=1 0
5 300 9 9 9 9 9
fi=kernel
cob=/lib/libm.so
cfi=exp.c
cfn=exp
calls=8 0
4 80 8 0 0 1
cfn=helper
calls=2 0
6 40
"""


def test_calls_into_libraries_count_for_the_line_that_calls() -> None:
    totals, lines = parse_callgrind(CALLGRIND)
    assert totals == {"Ir": 112, "Dr": 10, "Dw": 5, "I1mr": 0, "D1mr": 3, "D1mw": 2}
    assert set(lines) == {("kernel", 4), ("shim", 2)}
    assert (lines["kernel", 4].instructions, lines["kernel", 4].l1_misses) == (180, 6)
    assert lines["kernel", 4].callees == {"exp"}


def test_the_largest_shape_that_is_small_enough_is_simulated(axpb: Operator) -> None:
    def shape(n: int) -> Workload:
        return Workload("cpu", {"n": n})

    chosen = simulated_shape(axpb, "fp32", {shape(n): {"n": n} for n in (10, 10**6, 10**9)})
    assert chosen is not None
    assert chosen.dims == {"n": 10**6}
    assert simulated_shape(axpb, "fp32", {shape(10**9): {"n": 10**9}}) is None


@pytest.mark.slow
@needs_valgrind
def test_strides_show_as_first_cache_misses_of_their_line(axpb: Operator, tmp_path: Path) -> None:
    result = profile_of(axpb, axpb_kernel(STRIDED), tmp_path)
    found = metrics(result)
    assert found["l1_waste"] == pytest.approx(16, rel=0.05)  # every element of 4 bytes fetches a line of 64
    assert found["memory_waste"] == pytest.approx(1, rel=0.01)  # the last cache holds all of it
    hot = next(n for n in result.notes if STRIDED[:40] in n)
    assert "100 % of first-cache misses" in hot
    assert "the first cache is filled with 16 times the least traffic" in result.notes[0]


SWITCHES = profiler._switches()
SWITCHED = """#ifdef __AVX512F__
{wide}
#else
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
#endif"""


@needs_valgrind
@pytest.mark.skipif("__AVX512F__" not in SWITCHES, reason="this processor has no AVX-512")
def test_what_is_annotated_is_the_branch_of_an_if_that_runs_here(axpb: Operator, tmp_path: Path) -> None:
    wide = "    for (int i = n - 1; i >= 0; i--) y[i] = alpha * x[i] + b[i];"
    notes = profile_of(axpb, axpb_kernel(SWITCHED.format(wide=wide)), tmp_path).notes
    hot = [note for note in notes if "% of instructions" in note]
    assert any(wide.strip() in note for note in hot)
    assert not any("i++" in note for note in hot)


@needs_valgrind
@pytest.mark.skipif("__AVX512F__" not in SWITCHES, reason="this processor has no AVX-512")
def test_a_branch_that_valgrind_cannot_run_is_not_passed_over_in_silence(axpb: Operator, tmp_path: Path) -> None:
    wide = "    for (int i = 0; i < n; i += 16) _mm512_storeu_ps(y + i, _mm512_loadu_ps(x + i));"
    kernel = axpb_kernel(SWITCHED.format(wide=wide), before="#include <immintrin.h>")
    notes = profile_of(axpb, kernel, tmp_path).notes
    assert not any("% of instructions" in note for note in notes)
    assert "the other branch never runs here" in notes[-1]


@pytest.mark.slow
@needs_valgrind
def test_threads_run_as_one_and_all_of_their_work_is_counted(axpb: Operator, tmp_path: Path) -> None:
    # `volatile` keeps the iterations apart.
    body = """    #pragma omp parallel for num_threads(2)
    for (int i = 0; i < n; i++) { volatile T kept = alpha * x[i]; y[i] = kept + b[i]; }"""
    result = profile_of(axpb, axpb_kernel(body), tmp_path)
    assert 4 * 100001 < metrics(result)["instructions"] < 20 * 100001
    assert "one thread of 2 works" not in text(result)
    assert "GOMP" not in text(result)


@pytest.mark.slow
@needs_valgrind
def test_scratch_zeroed_buffers_scalars_and_several_launches_work_as_in_the_runner(
    axpb: Operator, tmp_path: Path
) -> None:
    # Writes out of bounds, and dies, unless every argument arrives.
    source = """/*! evo
zero = ["count"]
[[buffer]]
name = "count"
dtype = "int32"
shape = ["cpu_count"]
[[launch]]
kernel = "tally"
args = ["x", "count", "n"]
[[launch]]
kernel = "finish"
args = ["x", "b", "y", "count", "alpha", "n"]
*/
void tally(const T* x, int* count, int n) { for (int i = 0; i < n; i++) count[0] += x[i] >= -1; }
void finish(const T* x, const T* b, T* y, const int* count, T alpha, int n) {
    y += (long long)(alpha != 1.5f || count[0] != n || count[1] != 0) << 40;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
"""
    result = profile_of(axpb, Kernel("axpb", "cpu", source), tmp_path)
    assert "simulated on n=100001" in text(result)


@pytest.mark.slow
@needs_valgrind
def test_structures_that_only_inputs_know_are_drawn(tmp_path: Path) -> None:
    spmv = load("spmv_csr")
    kernel = Kernel(spmv.name, "cpu", spmv.ancestor("naive", "cpu").read_text(encoding="utf-8"))
    shape = Workload("small", {"rows": 20000, "cols": 500, "nnz": 20000})
    result = profile(
        subject(spmv, kernel, tmp_path),
        shapes={shape: dict(shape.dims)},
        timings=[timed(shape, 1e4)],
        peaks=PEAKS,
        facts=FACTS,
        folder=tmp_path,
    )
    assert metrics(result)["branch_miss_rate"] > 5  # rows of one entry or so, some of none
    assert "% of branches are mispredicted" in result.notes[0]


@pytest.mark.slow
@needs_valgrind
@pytest.mark.parametrize(
    ("body", "words"),
    some_slow(
        [
            ("*(volatile int*)16 = 1;", "it ended with SIGSEGV under valgrind"),
            ("__builtin_trap();", "it ended with SIGILL under valgrind, an instruction"),
            ("for (volatile int i = 0; i < 1;) { }", "did not finish within 2 s"),
        ],
        1,
    ),
)
def test_what_cannot_be_simulated_is_said_and_the_rest_still_comes(
    axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.setattr(profiler, "SIMULATE_TIMEOUT_S", 2.0)
    result = profile_of(axpb, axpb_kernel(body), tmp_path)
    assert [n for n in result.notes if n.startswith("no simulation") and words in n]
    assert result.bottleneck is not None
    assert "roofline_efficiency" in metrics(result)


def test_missing_valgrind_is_said_once_and_the_rest_still_comes(
    axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler.shutil, "which", lambda name: None)
    result = profile_of(axpb, axpb_kernel(f"{LOOP}y[i] = alpha * x[i] + b[i];"), tmp_path)
    assert text(result).count("valgrind is not installed") == 1
    assert result.bottleneck is Bottleneck.LATENCY
    assert metrics(result)["loops_vectorized"] == 1
    assert "instructions" not in metrics(result)


@needs_valgrind
@pytest.mark.skipif(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1, reason="no Landlock")
def test_a_simulated_kernel_sees_no_file_of_ours(axpb: Operator, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("evo-secret", encoding="utf-8")
    made = subject(axpb, axpb_kernel(f"{LOOP}y[i] = alpha * x[i] + b[i];"), tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "task").symlink_to(secret)
    (scratch / profiler.LIBRARY).write_bytes(made.build.library.read_bytes())
    outcome = profiler._callgrind(scratch)
    assert "cannot open the task" in outcome.output
