"""Every other room in which a candidate's code runs has the walls of the verdict: the emulation, and the simulator."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fitness.cpu import build
from fitness.cpu.build import BuiltKernel, CpuBuild
from fitness.cpu.profiler import Simulation, simulate
from fitness.emulator import target as emulation
from fitness.emulator.target import emulated
from fitness.evaluation import Rejection
from operators.definition.spec import Operator, Workload
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.redteam.arena import HERE
from tests.redteam.processes import adopt_orphans, descendants, left_over
from tests.redteam.test_escape import HOOKS, at_load, kernel

SYSTEM_CALL = (HERE / "parts" / "system_call.hpp").read_text()
SLED = (HERE / "parts" / "sled.hpp").read_text()
HEADER = """/*! evo
[[launch]]
kernel = "axpb"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "b", "y", "alpha", "n"]
*/
"""
IN_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is that of x86-64")
NEEDS_VALGRIND = pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")


@pytest.fixture
def sentinel() -> Iterator[int]:
    """A process of ours; a kernel that escapes kills it, or leaves another one behind. Neither must have happened."""
    adopt_orphans()
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    before = descendants()
    yield process.pid
    left = left_over(before)
    alive = process.poll() is None
    process.kill()
    process.wait()
    assert alive, "a process outside was killed"
    assert not left, "a process was left behind"


def cuda(before: str, body: str = "") -> str:
    """An emulated kernel, right but for what else it does."""
    return (
        f'{HEADER}{before}\nextern "C" __global__ void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{body}\n'
        "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = alpha * x[i] + b[i];\n}\n"
    )


# --- the emulation, before a call -------------------------------------------------------------------------------------


def machine_code(sentinel: int) -> str:
    """A sled to code that kills a process and comes back."""
    kill = b"\xbf" + sentinel.to_bytes(4, "little") + b"\xbe\x09\0\0\0\xb8\x3e\0\0\0\x0f\x05"
    numbers = ", ".join(map(str, kill + b"\xc3"))
    return f"{SLED}static constexpr unsigned char code[] = {{{numbers}}};\nEVO_SLED(code);\n"


DISGUISES = HOOKS | {
    ".rela.tbss": HOOKS[".rela.ifunc"].replace(".rela.ifunc", ".rela.tbss"),
    ".tdata": HOOKS[".init_array"].replace(".init_array", ".tdata"),
    ".init_array of shared memory": HOOKS[".init_array"] + "__shared__ int unused;\n",
    "a clone for each processor": "extern \"C\" __attribute__((target_clones(\"avx2\", \"default\"))) "
    "int cloned(int i) { return i + 1; }\n",
    "a loader's function of its own": 'extern "C" __attribute__((visibility("default"))) '
    "void* __tls_get_addr(void*) {\n"
    "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n    return nullptr;\n}\n",
    "a thread's variable that is computed": "static int first() {\n"
    "    reinterpret_cast<void (*)()>(reinterpret_cast<unsigned long>(sled.code))();\n    return 1;\n}\n"
    "__shared__ int computed = first();\n__device__ int use() { return computed; }\n",
}  # fmt: skip
"""Sections that may run when they are loaded, with those that only a kernel of CUDA has."""
REFUSED = {
    ".rela.ifunc": "only a compiler may make",
    ".init_array": "runs when it is loaded",
    "resolver": "chosen by code that runs when it is loaded",
    ".tdata": "keeps data",
}
BRIEF = {*REFUSED, "a loader's function of its own", "kills"}
"""These run without --slow."""


def brief(names: Iterable[str]) -> list[Any]:
    """Parameters, all but a few of them marked slow."""
    return [pytest.param(name, marks=[] if name in BRIEF else [pytest.mark.slow]) for name in names]


@at_load
@pytest.mark.parametrize("gated", [True, False], ids=["whole", "without the object's gate"])
@pytest.mark.parametrize("name", brief(DISGUISES))
def test_nothing_of_an_emulated_kernel_runs_when_it_is_loaded(
    name: str, gated: bool, axpb: Operator, sentinel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not gated:  # what the linker made must do no harm by itself
        monkeypatch.setattr(emulation, "forbidden", lambda *_: None)
        monkeypatch.setattr(emulation, "section_objection", lambda *_: None)
        monkeypatch.setattr(emulation, "objection", lambda *_: None)
    source = cuda(machine_code(sentinel) + DISGUISES[name])
    found = emulated(Kernel("axpb", "cuda", source), axpb, "fp32", shapes=({"n": 100},))
    if gated and name in REFUSED:
        assert isinstance(found, Rejection)
        assert REFUSED[name] in found.message


# --- system calls by hidden machine code ------------------------------------------------------------------------------

ESCAPES = {
    "kills": "system_call<62>({sentinel}, 9);",
    "kills a group": "system_call<62>(-{sentinel}, 9);",
    "kills a thread": "system_call<200>({sentinel}, 9);",
    "kills by a queue": "long info[16] = {{}}; info[1] = -1; system_call<129>({sentinel}, 9, (long)info);",
    "forks": "if (system_call<57>() == 0) {{ system_call<112>(); for (;;) system_call<34>(); }}",
    "forks like vfork": "if (system_call<58>() == 0) {{ system_call<112>(); for (;;) system_call<34>(); }}",
    "clones": "if (system_call<56>(17, 0, 0) == 0) {{ system_call<112>(); for (;;) system_call<34>(); }}",
    "leaves its session": "if (system_call<112>() > 0) for (;;) system_call<34>();",
}  # fmt: skip
"""By x86-64's numbers: kill, tkill, rt_sigqueueinfo, fork, vfork, clone, setsid, pause."""


@IN_X86_64
@pytest.mark.parametrize("name", brief(ESCAPES))
def test_an_emulated_call_reaches_no_process(name: str, axpb: Operator, sentinel: int) -> None:
    body = f"    if (blockIdx.x == 0 && threadIdx.x == 0) {{ {ESCAPES[name].format(sentinel=sentinel)} }}"
    found = emulated(Kernel("axpb", "cuda", cuda(SYSTEM_CALL, body)), axpb, "fp32", shapes=({"n": 100},))
    assert isinstance(found, Rejection)
    assert "forbidden system call" in found.message


@IN_X86_64
@NEEDS_VALGRIND
@pytest.mark.parametrize("name", brief(ESCAPES))
def test_a_profiled_kernel_reaches_no_process(name: str, axpb: Operator, tmp_path: Path, sentinel: int) -> None:
    """The verdict calls it right: there it has more threads, and does nothing else."""
    body = (
        f"    if (omp_get_max_threads() == 1) {{ {ESCAPES[name].format(sentinel=sentinel)} }}\n"
        "    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];"
    )
    found = simulated(axpb, kernel("#include <omp.h>\n", body, parts=("system_call",)), tmp_path)
    assert isinstance(found, Simulation) or found.startswith("no simulation: ")


@IN_X86_64
@NEEDS_VALGRIND
def test_a_profiled_kernel_makes_no_file(axpb: Operator, tmp_path: Path) -> None:
    body = (
        '    const char* path = "made_by_a_kernel";\n'
        "    system_call<2>((long)path, 65, 0600);\n    system_call<85>((long)path, 0600);\n"
        '    system_call<83>((long)path, 0700);\n    system_call<82>((long)"task", (long)path);\n'
        "    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];"
    )
    found = simulated(axpb, kernel("", body, parts=("system_call",)), tmp_path)
    assert isinstance(found, Simulation), found
    assert not list(tmp_path.rglob("made_by_a_kernel"))


def simulated(operator: Operator, source: str, folder: Path) -> Simulation | str:
    """The result of a profile's run under the simulator."""
    made = Kernel(operator.name, "cpu", source)
    plan = parse_plan(made.source, operator, "cpu")
    built = build.build(made, plan, operator, dtype="fp32", folder=folder, resolved="")
    assert isinstance(built, CpuBuild), built
    scratch = folder / "scratch"
    scratch.mkdir()
    subject = BuiltKernel(made, plan, built, operator, "fp32")
    return simulate(subject, Workload("small", {"n": 1000}), {"cpu_count": 2, "l2_bytes": 1 << 20}, scratch)
