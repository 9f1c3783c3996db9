"""The compiler's process: what it can reach, and what becomes of it when a source breaks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitness.cuda.compile import nvrtc
from fitness.cuda.compile.compiler import Compiler, CompilerFault
from fitness.cuda.compile.nvrtc import CompileJob
from operators.errors import UserError

GOOD = 'extern "C" __global__ void f(float* x) { x[0] = 1; }'


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
    with Compiler() as one:
        yield one


def job(unit: str) -> CompileJob:
    return CompileJob(unit, ("f",), "sm_90a", tuple(map(str, nvrtc.include_folders())))


@pytest.mark.slow
def test_it_starts_where_a_folder_of_pythons_has_a_name_beyond_ascii(compiler: Compiler, accented_python: str) -> None:
    with Compiler() as another:
        assert another.compile(job(GOOD)).lowered == {"f": "f"}


def test_code_ptx_and_names_come_back(compiler: Compiler) -> None:
    made = compiler.compile(job(GOOD))
    assert made.cubin[:4] == b"\x7fELF"
    assert ".entry f(" in made.ptx
    assert made.lowered == {"f": "f"}


@pytest.mark.parametrize("header", ["/etc/passwd", "/proc/self/environ"])
def test_files_beside_the_headers_cannot_be_opened(compiler: Compiler, header: str) -> None:
    if not _has_landlock():
        pytest.skip("this machine has no Landlock")
    made = compiler.compile(job(f'#include "{header}"\n{GOOD}'))
    assert not made.cubin
    assert "could not open" in made.log or "cannot open" in made.log
    assert "root:" not in made.log


def test_a_source_that_takes_too_long_costs_only_itself(compiler: Compiler) -> None:
    bomb = "template <int N> struct F { static constexpr long v = F<N - 1>::v + F<N - 2>::v; };\n"
    loop = "constexpr long spin() { long n = 0; for (long i = 0; i < 1000000000000; i++) n += i; return n; }\n"
    slow = f"#include <cub/cub.cuh>\n{bomb}{loop}__constant__ long kept = spin();\n{GOOD}"
    with pytest.raises(CompilerFault, match="did not finish within 0 s"):
        compiler.compile(job(slow), timeout_s=0.05)
    assert compiler.compile(job(GOOD)).cubin


def test_a_compiler_that_gets_no_turn_is_waited_for(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for until it has used its own time: here a limit that has passed by the clock on the wall."""
    assert compiler.compile(job(GOOD)).cubin
    monkeypatch.setattr("fitness.cuda.compile.compiler._processor_s", lambda pid: 0.0)
    monkeypatch.setattr("fitness.cuda.compile.compiler.PATIENCE", 1e6)
    assert compiler.compile(job(f"{GOOD}\n// again"), timeout_s=1e-3).cubin


SHARED_BYTES = """
from fitness.cuda.compile import nvrtc
nvrtc.OPTIONS = ()  # without ptxas -v the compiler has nothing to say
made = nvrtc.compile_here(nvrtc.CompileJob("", (), "sm_90a", ()))
assert made.cubin and not made.log, made  # a log of one byte: its end
print([n for n in range(256) if bytes((0, n))[1:].hex() != f"{n:02x}"])
"""


def test_a_log_of_one_byte_is_not_written_over_the_byte_that_all_share(compiler: Compiler) -> None:
    """In a process of its own, because one that fails here is of no use any more."""
    done = subprocess.run([sys.executable, "-c", SHARED_BYTES], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_unknown_architecture_is_the_users_affair(compiler: Compiler) -> None:
    with pytest.raises(UserError, match="cannot compile for 'sm_1'"):
        compiler.compile(CompileJob(GOOD, ("f",), "sm_1", ()))


def test_without_a_gpu_one_line_says_so() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is one")
    from fitness.targets import check_target

    with pytest.raises(UserError, match="no CUDA device can be used here"):
        check_target("cuda")


def _has_landlock() -> bool:
    import ctypes

    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1
