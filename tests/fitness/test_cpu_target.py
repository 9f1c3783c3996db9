"""The cpu target, for real: kernels of every kind and the verdict that each deserves."""

from __future__ import annotations

import math
import os
import re
import resource
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fitness.cpu import target
from fitness.cpu.runner import CpuRunner
from fitness.cpu.target import CpuDevice, CpuFitness, CpuSession, PreparedCpuKernel
from fitness.evaluation import Evaluation, Level, Rejection, Status
from fitness.judging import checks
from fitness.judging.base import CALL_LIMIT_S, Anchor, Built
from fitness.judging.device import KernelFault, KilledFromOutside, Sample
from fitness.judging.levels import judge
from fitness.judging.paired import LIBRARY_PAIRS, Measurement, Pairing
from fitness.judging.pipeline import CONFIRM_RERUNS, LEAST_RERUNS
from fitness.judging.timing import FULL, SCREEN, LogRatio, Schedule
from fitness.sandbox.memory import Region
from fitness.sandbox.processes import kill_group
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.bench.kills import descendants
from tests.choosing import some_slow
from tests.fitness.kernels import LOOP, RIGHT, axpb_kernel


@pytest.fixture(scope="module")
def stage(axpb: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuFitness]:
    folder = tmp_path_factory.mktemp("build")
    made = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=folder)
    yield made
    made.close()


def verdict(stage: CpuFitness, kernel: Kernel, *, until: Level = Level.FULL, race: bool = False) -> Evaluation:
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    assert isinstance(built, Built)
    return judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=race, until=until)[-1]


def test_a_runner_that_is_killed_is_no_kernels_fault(stage: CpuFitness) -> None:
    prepared = stage.device.prepare(axpb_kernel(RIGHT))
    assert not isinstance(prepared, Rejection)
    with pytest.raises(KilledFromOutside, match="ended by signal 9"), stage.bench.session(prepared) as session:
        assert isinstance(session, CpuSession)
        kill_group(session._runner._process)
        stage.bench.seated(session)


def test_a_runner_that_gets_no_descriptor_is_no_kernels_fault(stage: CpuFitness) -> None:
    prepared = stage.device.prepare(axpb_kernel(RIGHT))
    assert isinstance(prepared, PreparedCpuKernel)
    some = Region({"some": 64}, at_end=False)
    with CpuRunner(threads=1) as runner:
        runner.bind(0, some, some)  # it has begun
        for pid in (runner.pid, *descendants(runner.pid)):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises(KilledFromOutside):
            runner.map(prepared.build.image, prepared.build.library)


def test_the_baseline_is_as_fast_as_itself_and_only_confirmations_call_the_library(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(CpuDevice, "open_library")
    result = verdict(stage, stage.baseline)
    assert (result.status, result.level, result.library_timings) == (Status.CORRECT, Level.FULL, ())
    assert result.log_speedup == 0.0
    assert abs(result.log_ratio or 0.0) < 0.5  # it is timed against a second copy of itself


@pytest.mark.slow
def test_a_faster_kernel_is_confirmed_with_an_interval_beside_baseline_and_library(stage: CpuFitness) -> None:
    result = verdict(stage, axpb_kernel(RIGHT), until=Level.CONFIRMED)
    assert (result.status, result.level, result.library_lack) == (Status.CORRECT, Level.CONFIRMED, "")
    assert result.log_speedup is not None
    assert result.log_speedup_se is not None
    assert result.log_speedup - 1.96 * result.log_speedup_se > 0
    assert {t.workload for t in result.timings} == {w.name for w in stage.workloads}
    assert all(t.pairs >= 10 for t in result.timings)
    assert [t.workload for t in result.library_timings] == [w.name for w in stage.workloads]
    for mine, beside in zip(result.timings, result.library_timings, strict=True):
        assert beside.latency_us == mine.latency_us
        assert LIBRARY_PAIRS.start <= beside.pairs <= min(mine.pairs, LIBRARY_PAIRS.stop - 1)
    for timing in (*result.timings, *result.library_timings):
        assert timing.anchor_latency_us / timing.latency_us == pytest.approx(math.exp(timing.log_ratio))


def test_a_spot_check_finds_what_is_wrong_and_times_nothing(stage: CpuFitness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pairing, "measure", lambda *_, **__: pytest.fail("it was timed"))
    right = stage.spot_check(axpb_kernel(RIGHT))
    assert right.rejection is None and right.errors and right.seconds > 0
    wrong = stage.spot_check(axpb_kernel(f"{LOOP}y[i] = alpha * x[i];")).rejection
    assert wrong and wrong.status is Status.WRONG and "y" in wrong.message
    broken = stage.spot_check(axpb_kernel("nonsense")).rejection
    assert broken and broken.status is Status.COMPILE_ERROR
    assert stage.emulate(axpb_kernel(RIGHT)).lack


@pytest.mark.slow
def test_a_lucky_first_measurement_does_not_get_a_kernel_into_an_archive(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, schedules = Pairing.measure, []

    def lucky_once(pairing: Pairing, schedule: Schedule, *, race: bool) -> Measurement:
        measured = measure(pairing, schedule, race=race)
        schedules.append(schedule)
        return replace(measured, ratio=LogRatio(9.0, 0.01)) if schedule is SCREEN else measured

    monkeypatch.setattr(Pairing, "measure", lucky_once)
    result = verdict(stage, axpb_kernel(f"{LOOP}y[i] = alpha * x[i] + b[i];"), race=True)
    once = [schedule for schedule, _ in groupby(schedules)]  # a busy machine may end a process that was compared with
    assert once == [SCREEN, FULL]
    assert (result.status, result.level) == (Status.CORRECT, Level.FULL)
    assert result.log_speedup is not None and result.log_speedup < 5


@pytest.mark.slow
def test_builds_on_disk_are_bounded_and_made_again_when_they_are_needed(
    axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fitness.cpu.build.KEPT", 2)
    stage = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    first = stage.device.prepare(axpb_kernel(RIGHT))
    assert not isinstance(first, Rejection)
    for number in range(3):
        assert isinstance(stage.build(axpb_kernel(f"{RIGHT} // {number}")), Built)
        assert stage.device.prepare(stage.baseline)  # in use all the time
    bad = axpb_kernel(RIGHT, signature="void axpb(const T* x, const T* b, T* y, T alpha, const T* n)")
    assert isinstance(stage.build(bad), Evaluation)
    kept = {path.name for path in tmp_path.iterdir() if path.suffix in (".so", ".build")}
    newest = axpb_kernel(f"{RIGHT} // 2").id
    assert kept == {f"{i}-fp32{end}" for i in (stage.baseline.id, newest) for end in (".so", ".build")}
    stage.device.open(first).close()  # evicted since
    assert verdict(stage, axpb_kernel(RIGHT)).correct
    stage.close()
    assert len(list(tmp_path.glob("*.so"))) == 2
    assert not list(tmp_path.glob("open-*"))


@pytest.mark.slow
def test_kernels_that_others_are_compared_with_may_lose_their_processes(stage: CpuFitness) -> None:
    assert verdict(stage, stage.baseline).correct
    here, parent = Path("/proc"), f"PPid:\t{os.getpid()}\n"
    children = [p for p in here.glob("[0-9]*") if parent in _text(p / "status") and "runner" in _text(p / "cmdline")]
    assert len(children) >= 2  # the anchor's and the trusted kernel's
    for child in children:
        os.kill(int(child.name), signal.SIGKILL)
    assert verdict(stage, axpb_kernel(RIGHT)).correct


@pytest.mark.slow
def test_a_call_that_gets_no_processor_for_longer_than_its_limit_is_waited_for(stage: CpuFitness) -> None:
    held = stage.device.prepare(axpb_kernel(f"for (volatile long i = 0; i < 1000000000; i++) {{}} {RIGHT}"))
    assert not isinstance(held, Rejection)
    case, stopped = stage.bench.checks.case(stage.workloads[0], "nominal", at_end=False), []
    with closing(stage.device.open(held)) as session:
        session.bind(0, case, at_end=False)
        before = {*descendants(os.getpid())}

        def stop() -> None:
            while not (children := {*descendants(os.getpid())} - before):
                time.sleep(0.001)
            stopped.extend(children)
            for child in children:
                os.kill(child, signal.SIGSTOP)
            time.sleep(1.5 * CALL_LIMIT_S)
            for child in children:
                os.kill(child, signal.SIGCONT)

        watcher = threading.Thread(target=stop)
        watcher.start()
        begin = time.monotonic()
        session.run(0, poison=0)
        assert time.monotonic() - begin > CALL_LIMIT_S
        watcher.join()
    assert stopped


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process is gone
        return ""


@pytest.mark.parametrize(
    ("body", "status", "words"),
    some_slow([
        (f"{LOOP}y[i] = 0;", Status.WRONG, "out of bounds"),
        ("", Status.WRONG, "elements of `y`"),
        (f"{LOOP}y[i] = x[i];", Status.WRONG, "out of bounds"),
        ("for (int i = 0; i < n - 1; i++) y[i] = alpha * x[i] + b[i];", Status.WRONG, "elements of `y`"),
        (f"{LOOP}y[i] = 1.500001f * x[i] + b[i];", Status.WRONG, "out of bounds"),
        (f"{LOOP}y[i] = i % 1000 == 999 ? 1e30f : alpha * x[i] + b[i];", Status.WRONG, "first at [999]"),
        (f"{RIGHT} const_cast<T*>(x)[0] = 0;", Status.RUNTIME_ERROR, "`x`, which is an input"),
        (f"{RIGHT} y[n + 4] = 1;", Status.RUNTIME_ERROR, "past the end of `y`"),
        (f"{LOOP}y[i] = alpha * x[i] + b[i] + 0 * x[n + 4];", Status.RUNTIME_ERROR, "past the end of `x`"),
        ("*reinterpret_cast<volatile T*>(8) = 1;", Status.RUNTIME_ERROR, "segmentation fault"),
        ("volatile int zero = 0; y[0] = n / zero;", Status.RUNTIME_ERROR, "division by zero"),
        ("__builtin_trap();", Status.RUNTIME_ERROR, "illegal instruction"),
        ("for (volatile int i = 0;; ) i = 1;", Status.TIMEOUT, "did not finish"),
        (f"static int calls = 0; if (calls++ == 0) {{ {RIGHT} }}", Status.INVALID, "keeps data between calls in `axpb"),
        (f"static T kept = x[0]; {RIGHT} y[0] = alpha * kept + b[0];", Status.INVALID, "keeps data between calls"),
        (f"thread_local int calls = 0; if (calls++ == 0) {{ {RIGHT} }}", Status.INVALID, "keeps data between calls"),
        (f"T* volatile kept = new T[9]; kept[1] = 1; {RIGHT} y[0] *= kept[1];", Status.INVALID, "memory is a [["),
        (f"{RIGHT} volatile int deep[4 << 20]; deep[0] = 1;", Status.RUNTIME_ERROR, "a stack has 8 MiB"),
    ], 9),
)  # fmt: skip
def test_a_bad_kernel_gets_the_status_it_deserves(stage: CpuFitness, body: str, status: Status, words: str) -> None:
    result = verdict(stage, axpb_kernel(body))
    assert result.status is status, result.message
    assert words in result.message
    assert result.log_speedup is None


@pytest.mark.slow
def test_a_gain_that_only_nominal_values_have_stands_beside_the_verdict(stage: CpuFitness) -> None:
    """It is right everywhere, and takes long where a number is larger than any nominal one."""
    large = "int large = 0; for (int i = 0; i < n; i++) large |= x[i] > 64 || x[i] < -64;"
    late = "for (volatile int k = 0; large && k < 200 * n; k = k + 1) {}"
    found = verdict(stage, axpb_kernel(f"{large} {late} {RIGHT}"), until=Level.CONFIRMED)
    assert (found.status, found.level) == (Status.CORRECT, Level.CONFIRMED)
    (said,) = found.facts["flagged"]
    assert re.fullmatch(r"gains \S+ times less on `\w+` inputs of .+ than on the timed ones", said)
    assert verdict(stage, axpb_kernel(RIGHT)).facts["flagged"] == []


def test_one_element_too_far_is_found_wherever_the_buffer_ends(stage: CpuFitness) -> None:
    result = verdict(stage, axpb_kernel(f"{RIGHT} y[n] = 1;"))
    assert result.status in (Status.WRONG, Status.RUNTIME_ERROR)  # within the alignment's slack, or on the guard page
    assert "past the end of `y`" in result.message


@pytest.mark.parametrize(
    ("before", "body", "words"),
    some_slow([
        ("#include <cstdlib>", "std::exit(0);", "it calls `exit`"),
        ('extern "C" int fork();', "fork();", "it calls `fork`"),
        ('extern "C" int open(const char*, int);', 'open("/etc/passwd", 0);', "it calls `open`"),
        ('extern "C" char* getenv(const char*);', 'getenv("HOME");', "it calls `getenv`"),
        ("__attribute__((constructor)) void early() { __builtin_trap(); }", "", "runs when it is loaded"),
        ("double size(); double table = __builtin_sin(size());", "", "keeps data between calls"),
        ('extern "C" void chosen() __attribute__((ifunc("pick"))); static void one() {}'
         'extern "C" void (*pick())() { return one; }', "chosen();", "runs when it is loaded"),
        ("#define GLUE(a, b) a##b", 'GLUE(a, sm)("nop");', "after its macros it has inline assembly"),
        ("#include <stdlib.h>", '__REDIRECT(, , x);', "after its macros it has inline assembly"),
        ("", '__asm__("syscall");', "no inline assembly"),
    ], 4),
)  # fmt: skip
def test_what_is_not_computing_never_runs(stage: CpuFitness, before: str, body: str, words: str) -> None:
    result = verdict(stage, axpb_kernel(f"{RIGHT} {body}", before=before))
    assert result.status is Status.INVALID, result.message
    assert words in result.message


def test_machine_code_in_a_table_gets_no_system_call(stage: CpuFitness) -> None:
    # xor edi, edi; mov eax, 57 (fork); syscall; ret
    bytes_ = "0x31, 0xff, 0xb8, 0x39, 0, 0, 0, 0x0f, 0x05, 0xc3"
    table = f'__attribute__((section(".text"))) const unsigned char code[] = {{{bytes_}}};'
    result = verdict(stage, axpb_kernel(f"{RIGHT} reinterpret_cast<void (*)()>((void*)code)();", before=table))
    assert result.status is Status.RUNTIME_ERROR
    assert "forbidden system call 57" in result.message


def test_scratch_that_is_read_before_it_is_written_is_found(stage: CpuFitness) -> None:
    header = '[[buffer]]\nname = "scratch"\ndtype = "T"\nshape = ["n"]'
    signature = "void axpb(const T* x, const T* b, T* y, T* scratch, T alpha, int n)"
    args = '["x", "b", "y", "scratch", "alpha", "n"]'
    # A maximum swallows NaN, so that only the second poison shows.
    body = f"{LOOP}y[i] = alpha * x[i] + b[i] + (scratch[i] > 1 ? 1 : 0);"
    result = verdict(stage, axpb_kernel(body, header=header, signature=signature, args=args))
    assert result.status is Status.WRONG
    cured = axpb_kernel(body, header=f'zero = ["scratch"]\n{header}', signature=signature, args=args)
    assert verdict(stage, cured).correct


def test_results_that_change_between_runs_must_be_declared(stage: CpuFitness) -> None:
    last_bit = "__builtin_bit_cast(T, __builtin_bit_cast(int, alpha * x[i] + b[i]) ^ (chance & i % 64 == 1))"
    # Whatever the stack holds stands for whichever thread comes first.
    body = f"volatile unsigned char stack[4096]; const int chance = stack[2000] >> 2; {LOOP}y[i] = {last_bit};"
    assert "differs between two runs" in verdict(stage, axpb_kernel(body)).message
    assert verdict(stage, axpb_kernel(body, header="deterministic = false")).correct


@pytest.mark.slow
def test_a_confirmation_looks_for_results_that_change_at_every_size(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads may race at one size alone, and seldom."""
    runs: Counter[str] = Counter()
    real = stage.bench.checks.check

    def check(session: Any, prepared: Any, case: Any, *, reruns: int = 0) -> Any:
        runs[case.workload.name] += reruns
        return real(session, prepared, case, reruns=reruns)

    monkeypatch.setattr(stage.bench.checks, "check", check)
    kernel = axpb_kernel(RIGHT)
    stage.build(kernel)
    assert stage.confirm(kernel).correct
    assert len(stage.workloads) > 1 and all(runs[w.name] >= LEAST_RERUNS for w in stage.workloads)
    assert runs.total() >= CONFIRM_RERUNS


@pytest.mark.parametrize(
    ("kernel", "words"),
    some_slow(
        [
            (axpb_kernel(RIGHT, args='["x", "b", "y", "alpha"]'), "takes 5 parameters, the plan passes 4"),
            (
                axpb_kernel(RIGHT, args='["x", "b", "y", "n", "alpha"]'),
                "argument 5 (`alpha`) is a floating-point scalar",
            ),
            (axpb_kernel(RIGHT, args='["x", "b", "alpha", "y", "n"]'), "argument 3 (`alpha`) is a number"),
            (axpb_kernel(RIGHT, args='["x", "b", "y", "alpha", "n * 100000"]'), "does not fit into 32 bits"),
            (
                axpb_kernel(RIGHT, signature="void axpb(const double* x, const T* b, T* y, T alpha, int n)"),
                "argument 1 (`x`) has dtype fp32, the parameter points to a 64-bit float",
            ),
            (axpb_kernel(RIGHT, signature="void axpb(T* x, const T* b, T* y, T alpha, int n)"), "must point to const"),
            (axpb_kernel(RIGHT, header="nonsense = 1"), "nonsense"),
            (Kernel("axpb", "cpu", "void axpb() {}"), "evo"),
        ],
        5,
    ),
)
def test_plan_and_code_must_agree_before_anything_runs(stage: CpuFitness, kernel: Kernel, words: str) -> None:
    result = verdict(stage, kernel)
    assert result.status is Status.INVALID
    assert words in result.message


def test_a_kernel_for_too_few_shapes_is_unsupported(stage: CpuFitness) -> None:
    assert "workload n=100001" in verdict(stage, axpb_kernel(RIGHT, header='requires = "n % 2 == 0"')).message
    result = verdict(stage, axpb_kernel(RIGHT, header='requires = "n > 2000"'))
    assert result.status is Status.UNSUPPORTED
    assert "hidden shapes" in result.message


def test_a_clearly_slower_kernel_is_raced_out_but_its_estimate_is_kept(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes as long as it makes passes: on a busy machine any call of either side may take a hundred times as
    long."""
    passes, run = 40, CpuSession.run
    slow = axpb_kernel(f"for (volatile int k = 0; k < {passes}; k = k + 1) {RIGHT}")

    def counted(session: CpuSession, slot: int, **how: Any) -> Sample:
        is_slow = session._prepared is not None and session._prepared.kernel == slow
        return replace(run(session, slot, **how), elapsed_ns=(passes if is_slow else 1) * 1_000_000)

    monkeypatch.setattr(CpuSession, "run", counted)
    result = verdict(stage, slow, race=True)
    assert result.status is Status.SLOWER
    assert result.log_speedup is None
    assert result.estimate == pytest.approx(-math.log(passes))
    assert verdict(stage, slow, until=Level.SCREEN).correct


def test_wrong_only_on_odd_sizes_is_found_before_a_kernel_enters_an_archive(stage: CpuFitness) -> None:
    body = f"{RIGHT} if (n % 16 == 15) y[n - 1] = 0;"  # hidden shapes 31 and 1023
    assert verdict(stage, axpb_kernel(body)).status is Status.WRONG


def test_the_next_verdict_is_right_after_a_hang(stage: CpuFitness) -> None:
    verdict(stage, axpb_kernel("for (volatile int i = 0;; ) i = 2;"))
    assert verdict(stage, axpb_kernel(f"{RIGHT} // after a hang"), until=Level.SCREEN).correct


def test_the_checked_calls_of_a_level_have_a_limit_together(stage: CpuFitness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take nearly its two seconds, and there are more than a hundred."""
    kernel = axpb_kernel(f"{RIGHT} // with a limit to its checks")
    with monkeypatch.context() as patch:
        patch.setattr(checks, "CALLS_S", 0.0)
        patch.setattr(checks, "CALLS_TO_NAIVE", 0.0)
        found = verdict(stage, kernel)
    assert (found.status, "its checked calls take" in found.message) == (Status.TIMEOUT, True)
    assert verdict(stage, kernel, until=Level.SCREEN).correct


@pytest.mark.slow
def test_a_library_that_is_wrong_is_no_fault_of_the_kernel(axpb: Operator, tmp_path: Path) -> None:
    folder = shutil.copytree(axpb.folder, tmp_path / "axpb")
    text = (folder / "reference.py").read_text()
    (folder / "reference.py").write_text(text.replace("b.add(x, alpha=alpha)", "b.add(x, alpha=alpha + 1)"))
    made = CpuFitness(load(str(folder)), Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        result = verdict(made, axpb_kernel(RIGHT), until=Level.CONFIRMED)
    finally:
        made.close()
    assert (result.status, result.level) == (Status.CORRECT, Level.CONFIRMED)
    assert result.library_timings == ()
    assert "elements of `y` are out of bounds" in result.library_lack


@pytest.mark.slow
def test_a_library_that_does_not_start_is_no_fault_of_the_kernel(
    stage: CpuFitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KernelFault(Status.RUNTIME_ERROR, "no memory for torch")

    monkeypatch.setattr(CpuDevice, "open_library", refuse)
    result = verdict(stage, axpb_kernel(f"{RIGHT} // no library either"), until=Level.CONFIRMED)
    assert (result.status, result.level) == (Status.CORRECT, Level.CONFIRMED)
    assert (result.library_timings, result.library_lack) == ((), "no memory for torch")


def test_what_was_compiled_is_found_again(stage: CpuFitness, axpb: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = axpb_kernel(f"{RIGHT} // compiled once")
    first = stage.build(kernel)
    assert isinstance(first, Built)
    monkeypatch.setattr(target, "build", lambda *_, **__: pytest.fail("it is compiled again"))
    other = CpuFitness(axpb, stage.task, workload_set="cpu", folder=stage.device.folder)
    again = other.build(kernel)
    other.close()
    assert isinstance(again, Built)
    assert again.code_digest == first.code_digest


@pytest.mark.slow
def test_a_whole_file_with_windows_line_ends_and_unicode_is_read(stage: CpuFitness, tmp_path: Path) -> None:
    source = axpb_kernel(f"{RIGHT} // über").source.replace("\n", "\r\n")
    assert verdict(stage, Kernel("axpb", "cpu", source)).correct
