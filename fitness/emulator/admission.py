"""Trials of the cuda target's kernels on a machine without a GPU: compiled for one, and emulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fitness.cuda.compile.build import compile_cuda
from fitness.cuda.compile.cubin import read_cubin
from fitness.emulator.look import OWN_FAULTS
from fitness.emulator.target import Emulation
from fitness.evaluation import Rejection, Status
from fitness.judging.checks import Call
from fitness.judging.mutation_test import Ready
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.header import read_header

CALL_S = 10.0
"""Time limit of an emulated call; hidden shapes are small."""


class EmulatedPlace:
    """`fitness.judging.mutation_test.KernelHost` without a GPU."""

    def __init__(self, operator: Operator, dtype: str, folder: Path) -> None:
        self._operator = operator
        self._dtype = dtype
        self._emulation = Emulation(operator, dtype, folder=folder, run_timeout_s=CALL_S)
        self._has_compiler = True
        self.oracle = self._emulation.oracle
        self.stage = None

    @property
    def words(self) -> str:
        """The extent of the trial in words; once a kernel was made ready it is known whether the compiler is here."""
        compiled = "compiled by NVRTC and " if self._has_compiler else ""
        return f"no GPU here: {compiled}emulated on a CPU"

    def ready(self, kernel: Kernel) -> Ready | Rejection:
        code = self._compiled(kernel)
        if isinstance(code, Rejection):
            return code
        prepared = self._emulation.prepare(kernel)
        return prepared if isinstance(prepared, Rejection) else Ready(prepared, code, prepared.plan.deterministic)

    def _compiled(self, kernel: Kernel) -> str | Rejection:
        """A digest of what the GPU's compiler makes of it and of its plan; empty where that compiler is not here."""
        if not self._has_compiler:
            return ""
        try:
            build = compile_cuda(kernel, self._operator, self._dtype)
        except UserError:
            self._has_compiler = False
            return ""
        if isinstance(build, Rejection):
            return build
        return digest("code", read_cubin(build.cubin).digest(), repr(read_header(kernel.source).table))

    @contextmanager
    def opened(self, ready: Ready) -> Iterator[Call]:
        with self._emulation.opened(ready.held) as call:
            yield call

    def close(self) -> None:
        """Nothing is left: every process ends with its kernel."""

    def is_own_fault(self, status: Status) -> bool:
        """See `fitness.judging.mutation_test.KernelHost`: of kernels that compile, others may be the emulation's."""
        return not self._has_compiler or status in OWN_FAULTS
