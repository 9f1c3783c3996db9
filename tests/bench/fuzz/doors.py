"""The engine's own doors for what candidates bring, with a stand-in that hands out changed files for a compiler's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from fitness.cpu import build as cpu_build
from fitness.cpu import profiler
from fitness.cuda.compile.build import CudaBuild, code_digest, compile_cuda
from fitness.cuda.compile.compiler import Compiler
from fitness.cuda.compile.nvrtc import Compiled, CompileJob
from fitness.emulator import target as emulation_target
from fitness.emulator.target import Emulation
from fitness.evaluation import Rejection
from fitness.judging.device import KernelFault
from fitness.sandbox.processes import ProcessOutcome
from operators.catalog import load
from operators.definition.spec import Workload
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.redteam.arena import AXPB, Arena, Secret

FACTS = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 << 20}


@dataclass(frozen=True)
class Met:
    """The last stage that a case came to."""

    built: bool
    ran: bool
    said: str
    """The verdict's message, where it was refused."""


@dataclass
class StandIn:
    """A stand-in that answers commands in the compiler's place: the files that it made of a seed, some of them
    changed."""

    files: Mapping[str, bytes]
    changed: Mapping[str, bytes] = field(default_factory=dict)

    def __call__(self, command: Sequence[str], *, cwd: str, **options: Any) -> ProcessOutcome:
        if "objdump" in command[0]:
            return ProcessOutcome(0, "", False, 0.0)
        made = Path(command[command.index("-o") + 1]).name
        if made == "kernel.so" and "kernel.so" not in self.changed:
            return real_run(command, cwd=cwd, **options)  # of a changed object
        for name in ("opened", made) if made == "kernel.ii" else (made,):
            Path(cwd, name).write_bytes(self.changed.get(name, self.files[name]))
        return ProcessOutcome(0, "", False, 0.0)


real_run = cpu_build.run_confined


class CpuDoor:
    """Builds and runs kernels of axpb."""

    def __init__(self, folder: Path) -> None:
        self._arena = Arena(folder, Secret.planted(folder, "-"))
        self._stage = self._arena.stage("axpb")
        workload = next(w for w in self._stage.operator.hidden if w.dims["n"] == 1000)
        self._question = self._stage.oracle.case(workload, "nominal", np.random.default_rng(0), at_end=False)
        self._numbers = count()
        self._params: Mapping[str, Any] = {}
        """Parameters of the first kernel, and of all that are like it."""

    def close(self) -> None:
        """It ends what it started."""
        self._arena.__exit__()

    def captured(self, source: str) -> dict[str, bytes]:
        """The files that the compiler and the linker make of a kernel."""
        files: dict[str, bytes] = {}

        def run(command: Sequence[str], *, cwd: str, **options: Any) -> ProcessOutcome:
            outcome = real_run(command, cwd=cwd, **options)
            for name in ("opened", "kernel.ii", "kernel.o", "kernel.so"):
                if Path(cwd, name).exists():
                    files[name] = Path(cwd, name).read_bytes()
            return outcome

        with patch.object(cpu_build, "run_confined", run):
            met = self.judge(source)
        assert met.ran, met.said
        return files

    def judge(self, source: str) -> Met:
        """Judges a kernel file as the engine does."""
        kernel = Kernel("axpb", "cpu", f"{source}// {next(self._numbers)}\n")
        device = self._stage.device
        prepared = device.prepare(kernel)
        if isinstance(prepared, Rejection):
            return Met(False, False, prepared.message)
        self._params = self._params or prepared.build.params
        try:
            session = device.open(prepared)
            try:
                session.bind(0, self._question, at_end=False)
                session.run(0, poison=255)
            finally:
                session.close()
        except KernelFault as fault:
            return Met(True, True, str(fault))
        finally:
            for path in device.folder.glob(f"{kernel.id}*"):
                path.unlink(missing_ok=True)
        return Met(True, True, "")

    @contextmanager
    def handed(self, files: Mapping[str, bytes], changed: Mapping[str, bytes], *, gated: bool = True) -> Iterator[None]:
        """Whatever is compiled within becomes these files; not `gated`: without a look at the object file."""
        with ExitStack() as patches:
            patches.enter_context(patch.object(cpu_build, "run_confined", StandIn(files, changed)))
            if not gated and hasattr(cpu_build, "_told"):
                told = cpu_build._Told(self._params, {"code_bytes": 1, "vector_bits": 0, "threads": False})
                patches.enter_context(patch.object(cpu_build, "_told", lambda *_: told))
            yield


class EmulationDoor:
    """Builds and runs kernels of axpb in the emulation of CUDA."""

    def __init__(self, folder: Path) -> None:
        self._emulation = Emulation(load(str(AXPB)), "fp32", folder=folder, run_timeout_s=2.0)
        self._params: Mapping[str, Any] = {}
        """Parameters of the first kernel, and of all that are like it."""

    def captured(self, source: str) -> dict[str, bytes]:
        """The object and the linked object that are made of a kernel."""
        files: dict[str, bytes] = {}

        def run(command: Sequence[str], *, cwd: str, **options: Any) -> ProcessOutcome:
            outcome = real_run(command, cwd=cwd, **options)
            made = command[command.index("-o") + 1]
            for name in (made, "shared.s"):
                if Path(cwd, name).exists():
                    files[name] = Path(cwd, name).read_bytes()
            return outcome

        with patch.object(emulation_target, "run_confined", run):
            met = self.judge(source)
        assert met.ran and not met.said, met.said
        return files

    def judge(self, source: str) -> Met:
        """Judges a kernel file as the engine does."""
        prepared = self._emulation.prepare(Kernel("axpb", "cuda", source))
        if isinstance(prepared, Rejection):
            return Met(False, False, prepared.message)
        self._params = self._params or prepared.build.params
        found = self._emulation.examine(prepared, shapes=({"n": 100},))
        return Met(True, True, found.message if isinstance(found, Rejection) else "")

    @contextmanager
    def handed(self, files: Mapping[str, bytes], changed: Mapping[str, bytes], *, gated: bool) -> Iterator[None]:
        """Whatever is compiled within becomes these files; not `gated`: without a look at the object file."""
        with ExitStack() as patches:
            patches.enter_context(patch.object(emulation_target, "run_confined", StandIn(files, changed)))
            if not gated:
                patches.enter_context(patch.object(emulation_target, "_examined", self._unexamined(files)))
            yield

    def _unexamined(self, files: Mapping[str, bytes]) -> Callable[..., Mapping[str, Any]]:
        def examined(scratch: Path, launches: tuple[str, ...]) -> Mapping[str, Any]:
            (scratch / "shared.s").write_bytes(files["shared.s"])
            return self._params

        return examined


class ProfileDoor:
    """Has a kernel of axpb simulated, of which something else than the compiler's is mapped."""

    def __init__(self, folder: Path, source: str) -> None:
        operator, kernel = load(str(AXPB)), Kernel("axpb", "cpu", source)
        plan = parse_plan(source, operator, "cpu")
        made = cpu_build.build(kernel, plan, operator, dtype="fp32", folder=folder, resolved="")
        assert isinstance(made, cpu_build.CpuBuild), made
        self._folder = folder
        self._subject = cpu_build.BuiltKernel(kernel, plan, made, operator, "fp32")

    def judge(self, linked: bytes) -> Met:
        """Judges a linked object as a profile does."""

        def compiled(command: Sequence[str], scratch: Path) -> ProcessOutcome:
            Path(scratch, command[command.index("-o") + 1]).write_bytes(linked)
            return ProcessOutcome(0, "", False, 0.0)

        with tempfile.TemporaryDirectory(dir=self._folder) as scratch, ExitStack() as patches:
            patches.enter_context(patch.object(profiler, "compiled", compiled))
            patches.enter_context(patch.object(profiler, "SIMULATE_TIMEOUT_S", 5.0))
            facts = {"cpu_count": 2, "l2_bytes": 1 << 20}
            said = profiler.simulate(self._subject, Workload("small", {"n": 100}), facts, Path(scratch))
        said = said if isinstance(said, str) else ""
        return Met(True, not said or "valgrind" in said or "finish" in said, said)


class Handed(Compiler):
    """A compiler that has made the same of every kernel."""

    def __init__(self, made: Compiled, rest: Compiler) -> None:
        """`rest` compiles what the engine asks for beside a kernel."""
        self._made = made
        self._rest = rest

    def compile(self, job: CompileJob, **options: Any) -> Compiled:
        """See `Compiler`."""
        return self._made if set(job.expressions) <= set(self._made.lowered) else self._rest.compile(job, **options)


class Noting(Compiler):
    """A compiler that notes what it made of a kernel last."""

    made: Compiled | None = None

    def compile(self, job: CompileJob, **options: Any) -> Compiled:
        """See `Compiler`."""
        made = super().compile(job, **options)
        if any("evo_shim" in expression for expression in job.expressions):
            self.made = made
        return made


class CudaDoor:
    """Builds kernels of axpb; there may be no GPU that runs them."""

    def __init__(self) -> None:
        self._operator = load(str(AXPB))
        self._compiler = Noting()

    def close(self) -> None:
        """It ends the compiler."""
        self._compiler.close()

    def captured(self, source: str) -> Compiled:
        """The compiler's result for a kernel."""
        met = self.judge(source)
        assert met.built and self._compiler.made, met.said
        return self._compiler.made

    def judge(self, source: str, made: Compiled | None = None) -> Met:
        """Judges a kernel file, with a compiler's result for it, as the engine does."""
        kernel = Kernel("axpb", "cuda", source)
        built = compile_cuda(
            kernel, self._operator, "fp32", compiler=Handed(made, self._compiler) if made else self._compiler
        )
        if not isinstance(built, CudaBuild):
            return Met(False, False, built.message)
        try:
            plan = parse_plan(source, self._operator, "cuda")
            resolved = plan.resolve(
                self._operator, dtype="fp32", dims={"n": 1000}, values={}, facts=FACTS,
                occupancy=dict.fromkeys(plan.occupancy_kernels, 2),
            )  # fmt: skip
        except PlanError as error:
            return Met(True, False, str(error))
        code_digest(built, resolved=resolved.canonical(), dtype="fp32", device="H200")
        return Met(True, False, "")
