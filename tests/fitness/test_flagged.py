"""Traces, in machine code of the cpu, of a kernel that tells its runs apart."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from fitness.cpu.build import CpuBuild, build, flagged
from fitness.words import CLOCK, OWN_ADDRESS, PLACE, UNREAD
from operators.definition.spec import Operator
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow

HEAD = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
BODY = 'extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{}\n}}\n'
EACH = "for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i]"
INTRINSICS = "#include <immintrin.h>\n"
OMP = "#include <omp.h>\n"
CALLED = "__attribute__((noinline)) static void whole(const T* x, const T* b, T* y, T alpha, int n) { " + EACH + "; }\n"
ASKS = "__attribute__((noipa)) static bool odd({}const void* p) {{ return (unsigned long)p / 4096 % 8 == 7; }}\n"
MANY = "long, long, long, long, long, long, "
KERNELS = {
    "plain": ("", f"{EACH};", []),
    "parallel": ("", f"#pragma omp parallel for\n{EACH};\n#pragma omp parallel for\n{EACH};", []),
    "numbers of a team": (OMP, f"#pragma omp parallel\nif (omp_get_thread_num() < omp_get_num_threads()) {EACH};", []),
    "a team where it pays": ("", f"#pragma omp parallel for if ((long)n * n > 30000)\n{EACH};", []),
    "tasks": ("", f"#pragma omp parallel\n#pragma omp single\n#pragma omp task\n{EACH};", []),
    "a function called": (CALLED, "whole(x, b, y, alpha, n);", []),
    "numbers that only look like it": ("", "y[0] = 0x310f310f; " + EACH + ";", []),
    "a clock": (INTRINSICS, f"{EACH}; if (__rdtsc() == 7) y[0] = 0;", [CLOCK]),
    "a clock by a macro": (INTRINSICS + "#define WHEN __rd##tscp(&k)\n", f"unsigned k; {EACH}; if (WHEN < 7) y[k] = 0;",
                           [CLOCK]),
    "a place": (OMP, f"{EACH}; if (omp_get_max_threads() == 77) y[0] = 0;", [PLACE]),
    "processors": (OMP, f"{EACH}; if (omp_get_num_procs() == 77) y[0] = 0;", [PLACE]),
    "a thread": ("", f"{EACH}; if ((unsigned long)__builtin_thread_pointer() % 64 == 7) y[0] = 0;", [OWN_ADDRESS]),
    "code": (CALLED, "whole(x, b, y, alpha, n); if ((unsigned long)&whole / 4096 % 8 == 7) y[0] = 0;", [OWN_ADDRESS]),
    "code of which a byte is asked": (CALLED, "whole(x, b, y, alpha, n); if ((unsigned long)&whole & 0x70) y[0] = 0;",
                                      [OWN_ADDRESS]),
    "code as an argument": (CALLED + ASKS.format("long, "), "whole(x, b, y, alpha, n);"
                            " if (odd(n, (void*)&whole)) y[0] = 0;", [OWN_ADDRESS]),
    "code on the stack": (CALLED + ASKS.format(MANY), "whole(x, b, y, alpha, n);"
                          " if (odd(n, n, n, n, n, n, (void*)&whole)) y[0] = 0;", [OWN_ADDRESS]),
    "a library's code": ("#include <cstring>\n", f"{EACH}; if ((unsigned long)&std::memcpy / 4096 % 8 == 7) y[0] = 0;",
                         [OWN_ADDRESS]),
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="intrinsics of x86-64")
@pytest.mark.parametrize("name", some_slow(KERNELS, 4))
def test_a_build_carries_the_reasons(name: str, axpb: Operator, tmp_path: Path) -> None:
    before, body, reasons = KERNELS[name]
    source = HEAD + before + BODY.format(body)
    plan = parse_plan(source, axpb, "cpu").for_dtype("fp32")
    made = build(Kernel("axpb", "cpu", source), plan, axpb, dtype="fp32", folder=tmp_path, resolved="")
    assert isinstance(made, CpuBuild), made
    assert made.facts["flagged"] == reasons


def test_code_that_was_cut_off_is_no_code_without_reasons() -> None:
    assert flagged("", code=(), undefined=(), whole=False) == [UNREAD]
    assert flagged("", code=(), undefined=("omp_get_thread_num", "omp_get_num_threads")) == []
