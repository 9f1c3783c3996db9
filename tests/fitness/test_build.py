"""Facts from the object file of a CPU kernel, without running it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fitness.cpu.build import CpuBuild, build
from fitness.cpu.build import compiled as run_compiler
from fitness.evaluation import Rejection, Status
from fitness.sandbox import disk
from fitness.sandbox.native import built, compiler_version, precompiled
from fitness.sandbox.processes import ProcessOutcome
from operators.definition.spec import Operator
from operators.errors import DiskError, MachineError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.fitness.kernels import LOOP, RIGHT, axpb_kernel


def compiled(kernel: Kernel, operator: Operator, folder: Path) -> CpuBuild:
    result = attempt(kernel, operator, folder)
    assert isinstance(result, CpuBuild), result
    return result


def attempt(kernel: Kernel, operator: Operator, folder: Path) -> CpuBuild | Rejection:
    plan = parse_plan(kernel.source, operator, "cpu")
    return build(kernel, plan, operator, dtype="fp32", folder=folder, resolved="same")


def test_parameters_are_read_from_the_object(axpb: Operator, tmp_path: Path) -> None:
    params = compiled(axpb_kernel(RIGHT), axpb, tmp_path).params["axpb"]
    assert [(p.kind, p.size) for p in params] == [("pointer", 8)] * 3 + [("float", 4), ("integer", 4)]
    assert [p.pointee_const for p in params[:3]] == [True, True, False]
    assert {(p.pointee_kind, p.pointee_size) for p in params[:3]} == {("float", 4)}


def test_comments_names_and_layout_do_not_change_the_code_digest(axpb: Operator, tmp_path: Path) -> None:
    one = axpb_kernel(RIGHT)
    other = axpb_kernel(
        "// the same again\n  for (int other = 0; other < n; ++other) {\n y[other] = alpha * x[other] + b[other]; }"
    )
    assert one.id != other.id
    assert compiled(one, axpb, tmp_path).code_digest == compiled(other, axpb, tmp_path).code_digest


@pytest.mark.parametrize(
    "body",
    some_slow(
        [
            f"{LOOP}y[i] = alpha * x[i] - b[i];",
            f"{LOOP}y[i] = 1.25f * x[i] + b[i];",
            f"{LOOP}y[i] = 1.75f * x[i] + b[i];",
            f"static const float c[4] = {{1, 2, 3, 4}}; {LOOP}y[i] = c[i & 3] * x[i] + b[i];",
            f"static const float c[4] = {{1, 2, 3, 5}}; {LOOP}y[i] = c[i & 3] * x[i] + b[i];",
        ],
        1,
    ),
)
def test_any_change_of_code_or_constants_changes_it(axpb: Operator, tmp_path: Path, body: str) -> None:
    digests = {compiled(axpb_kernel(b), axpb, tmp_path).code_digest for b in (RIGHT, body)}
    assert len(digests) == 2


def test_two_programs_that_differ_only_in_a_constant_table_differ(axpb: Operator, tmp_path: Path) -> None:
    table = "static const float c[4] = {{1, 2, 3, {}}}; " + LOOP + "y[i] = c[i & 3] * x[i] + b[i];"
    digests = {compiled(axpb_kernel(table.format(v)), axpb, tmp_path).code_digest for v in (4, 5)}
    assert len(digests) == 2


def test_two_programs_that_differ_only_in_whose_lock_they_take_differ(axpb: Operator, tmp_path: Path) -> None:
    taking = "__attribute__((noinline)) static void {}(T* y) {{\n#pragma omp critical({})\n{{ y[0] += {}; }}\n}}\n"
    kernels = [
        axpb_kernel("first(y); second(y);", before=taking.format("first", "one", 1) + taking.format("second", name, 2))
        for name in ("one", "two")
    ]
    digests = {compiled(kernel, axpb, tmp_path).code_digest for kernel in kernels}
    assert len(digests) == 2


def test_threads_and_vectors_are_seen(axpb: Operator, tmp_path: Path) -> None:
    plain = compiled(
        axpb_kernel("for (volatile int i = 0; i < n; i = i + 1) y[i] = alpha * x[i] + b[i];"), axpb, tmp_path
    )
    parallel = compiled(axpb_kernel(f"#pragma omp parallel for simd\n{RIGHT}"), axpb, tmp_path)
    assert plain.cell[:2] == ("scalar", "serial")
    assert parallel.facts["threads"]
    assert parallel.facts["vector_bits"] >= 128


RESTRICT = "void axpb(const T* __restrict x, const T* __restrict b, T* __restrict y, T alpha, int n)"
LANES = "#pragma omp simd\nfor (int j = i; j < i + 512; j++) y[j] = x[j] * b[j];\n"
REST = "".join(f"if (i + {k} < n) y[i + {k}] += x[i * {k}];\n" for k in range(60))
CHAIN = "for (int j = 0; j < n; j++) s = s * x[j] + b[j];\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of other processors is not read")
@pytest.mark.parametrize(
    ("body", "vectors"),
    some_slow([
        (f"for (int i = 0; i < n; i += 512) {{\n{LANES}{REST}}}", True),
        (f"{LOOP}y[i] = 2 * x[i] + b[i];\nfloat s = 0;\n"
         f"{LOOP}{{\nfor (int k = 0; k < n; k++) {{\n{CHAIN}}}\ny[i] += s;\n}}", False),
        ("#pragma omp parallel for simd\n" + LOOP + "y[i] = expf(x[i]);", True),
        (f"{LOOP}y[i] = x[n - 1 - i];", True),
        (f"{LOOP}y[i] = x[i];", True),
        (f"{LOOP}y[i] = x[(i * 7919LL) % n];", False),
        ("y[0] = alpha * x[0] + b[0];", False),
    ], 2, ids=["unrolled rest", "vectors before a deep chain", "library", "reversed", "memcpy", "gather", "no loop"]),
)  # fmt: skip
def test_the_cell_tells_what_the_innermost_loops_do(axpb: Operator, tmp_path: Path, body: str, vectors: bool) -> None:
    made = compiled(axpb_kernel(body, signature=RESTRICT), axpb, tmp_path)
    assert made.cell[0].startswith("simd" if vectors else "scalar"), made.facts


PASTES = "#define PASTED(a, b) a##b\n#define JOINED(a, b) PASTED(a, b)\n"
"""Macros that put names together."""
ASKED = (
    "JOINED(__LI, NE__) > 20", "__LINE__ > 20", "__builtin_LINE() > 20", "JOINED(__TI, ME__)[0] > '1'",
    "JOINED(__COU, NTER__) > 0", "sizeof(__FILE__) > 20",
)  # fmt: skip
"""Questions of a kernel for its place, the time, or how often it asked."""


@pytest.mark.parametrize("asked", some_slow(ASKED, 2))
def test_a_kernel_that_would_be_another_one_in_a_package_is_refused(axpb: Operator, tmp_path: Path, asked: str) -> None:
    found = attempt(axpb_kernel(f"if ({asked}) return;\n{RIGHT}", before=PASTES), axpb, tmp_path)
    assert isinstance(found, Rejection) and "another kernel in a package" in found.message, found


def test_macros_that_put_names_together_are_no_offence(axpb: Operator, tmp_path: Path) -> None:
    body = f"const float JOINED(sc, ale) = alpha; {LOOP}y[i] = scale * x[i] + b[i];"
    compiled(axpb_kernel(body, before=PASTES), axpb, tmp_path)


@pytest.mark.parametrize("broken", ["int broken = ;", "#error is meant"])
def test_a_compile_error_names_and_quotes_the_line_of_the_kernel_file(
    axpb: Operator, tmp_path: Path, broken: str
) -> None:
    kernel = axpb_kernel(f"\n{broken}\n")
    result = attempt(kernel, axpb, tmp_path)
    line = kernel.source.splitlines().index(broken) + 1
    assert isinstance(result, Rejection)
    assert result.status is Status.COMPILE_ERROR
    assert f"kernel:{line}:" in result.message
    assert f"{line} | {broken}" in result.message
    assert str(tmp_path) not in result.message


def test_a_launch_of_a_function_that_does_not_exist_is_a_compile_error(axpb: Operator, tmp_path: Path) -> None:
    result = attempt(
        axpb_kernel(RIGHT, signature="void other(const T* x, const T* b, T* y, T alpha, int n)"), axpb, tmp_path
    )
    assert isinstance(result, Rejection)
    assert "axpb" in result.message
    assert "launch 1 of the plan" in result.message


def test_an_undefined_function_is_found_by_the_linker(axpb: Operator, tmp_path: Path) -> None:
    result = attempt(axpb_kernel("extern void nowhere(); nowhere();"), axpb, tmp_path)
    assert isinstance(result, Rejection)
    assert "nowhere" in result.message


@pytest.mark.parametrize("name", ['"/etc/passwd"', '"../secret.h"', "</proc/self/environ>"])
def test_a_file_outside_the_headers_is_never_opened(axpb: Operator, tmp_path: Path, name: str) -> None:
    result = attempt(axpb_kernel(RIGHT, before=f"#include {name}"), axpb, tmp_path)
    assert isinstance(result, Rejection)
    assert result.status is Status.INVALID
    assert "write the name of a header" in result.message


@pytest.mark.parametrize("signal_", ["KILL", "TERM"])
def test_a_compiler_that_is_killed_is_not_the_kernels_fault(tmp_path: Path, signal_: str) -> None:
    with pytest.raises(MachineError, match="was ended, or not begun"):
        run_compiler(["sh", "-c", f"kill -{signal_} $$"], str(tmp_path))


@pytest.mark.parametrize(
    "words",
    [
        "g++: fatal error: Killed signal terminated program cc1plus",
        "g++: fatal error: cannot execute 'cc1plus': vfork: Resource temporarily unavailable",
        "jail: setrlimit: Cannot allocate memory",
    ],
)
def test_what_a_compiler_says_of_the_machine_is_not_the_kernels_fault(tmp_path: Path, words: str) -> None:
    with pytest.raises(MachineError, match="was ended, or not begun"):
        run_compiler(["sh", "-c", f'echo "{words}"; exit 1'], str(tmp_path))
    said = run_compiler(["sh", "-c", f'echo "kernel.cpp:3:2: error: #error {words}"; exit 1'], str(tmp_path))
    assert said and said.status is Status.COMPILE_ERROR


def test_a_folder_that_is_removed_under_a_compiler_is_not_the_kernels_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confined(*arguments: Any, **options: Any) -> ProcessOutcome:
        tmp_path.rmdir()
        return ProcessOutcome(
            1, "Fatal error: can't create kernel.o: No such file or directory", timed_out=False, seconds=0.1
        )

    monkeypatch.setattr("fitness.cpu.build.run_confined", confined)
    with pytest.raises(MachineError, match="was removed while a compiler worked with it"):
        run_compiler(["g++"], str(tmp_path))


@pytest.mark.slow
def test_programs_that_are_gone_from_the_cache_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jail, header = built("native/jail.cpp"), precompiled("#include <cstddef>\n", "-std=c++17")
    shutil.rmtree(tmp_path / "kernel-evo")
    left, under_way = (tmp_path / "kernel-evo" / name for name in ("tmp1", "tmp2"))
    for folder in (left, under_way):
        folder.mkdir(parents=True)
    os.utime(left, (0, 0))
    assert built("native/jail.cpp") == jail and jail.exists()
    assert precompiled("#include <cstddef>\n", "-std=c++17") == header and header.exists()
    assert under_way.exists() and not left.exists()


def test_headers_that_two_processes_compile_at_once_stay_where_a_jail_may_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ours, places = subprocess.run, []

    def slow(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(subprocess, "run", ours)
        places.append(precompiled("#include <cstddef>\n", "-std=c++17").parent.stat().st_ino)  # the other is quicker
        return ours(*arguments, **options)

    compiler_version()
    monkeypatch.setattr(subprocess, "run", slow)
    header = precompiled("#include <cstddef>\n", "-std=c++17")
    assert places == [header.parent.stat().st_ino]
    assert {path.name for path in header.parent.iterdir()} == {"headers.hpp", "headers.hpp.gch"}


def test_a_full_disk_is_not_the_kernels_fault(axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar = axpb_kernel(RIGHT, before="#error No space left on device")
    result = attempt(liar, axpb, tmp_path)
    assert isinstance(result, Rejection) and result.status is Status.COMPILE_ERROR
    monkeypatch.setattr(disk, "FILE_BYTES", os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize)
    with pytest.raises(DiskError, match="the compiler cannot write there: No space left on device"):
        attempt(liar, axpb, tmp_path)
    wrong = attempt(axpb_kernel("no C++ at all"), axpb, tmp_path)
    assert isinstance(wrong, Rejection) and wrong.status is Status.COMPILE_ERROR
