"""Runs the operators' naive C++ kernels in this process, as their plans say: trusted code, no sandbox, no clock."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch

from fitness.cpu.build import FLAGS, LIBRARIES, LINK_FLAGS
from fitness.oracle.inputs import TORCH_DTYPES, Inputs
from fitness.sandbox.native import CXX
from operators.definition.spec import Operator
from operators.dtypes import resolve_dtype
from operators.plan.reading import Plan, ResolvedLaunch, parse_plan
from operators.prelude import translation_unit

FACTS = {
    "sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 * 2**20, "cpu_count": 2,
}  # fmt: skip
C_TYPES = {
    "fp64": ctypes.c_double, "fp32": ctypes.c_float, "int64": ctypes.c_longlong, "int32": ctypes.c_int,
}  # fmt: skip
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")  # an operator may have nothing to store


class Runner:
    """Compiles each kernel file once per dtype."""

    target = "cpu"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._libraries: dict[tuple[str, str], ctypes.CDLL] = {}

    def run(
        self, operator: Operator, inputs: Inputs, dtype: str, *, poison: float = math.nan
    ) -> dict[str, torch.Tensor]:
        """Outputs by name; elements that were not written are poison."""
        plan = self._plan(operator)
        resolved = plan.resolve(operator, dtype=dtype, dims=inputs.dims, values={}, facts=FACTS)
        tensors = {n: t.clone() for n, t in inputs.tensors.items()}
        for tensor in operator.outputs:
            if tensor.role == "out":
                tensors[tensor.name] = _poisoned(tensor.sizes(inputs.dims), _torch(tensor.dtype, dtype), poison)
        for buffer in resolved.buffers:
            tensors[buffer.name] = _poisoned(buffer.shape, _torch(buffer.dtype, dtype), poison)
        for name in resolved.zero:
            tensors[name].zero_()
        for step in resolved.steps:
            self._launch(operator, dtype, step, tensors)
        return {t.name: tensors[t.name] for t in operator.outputs}

    def _plan(self, operator: Operator) -> Plan:
        return parse_plan(operator.ancestor("naive", self.target).read_text(), operator, self.target)

    def _launch(
        self, operator: Operator, dtype: str, step: ResolvedLaunch, tensors: Mapping[str, torch.Tensor]
    ) -> None:
        scalars = {s.name: C_TYPES[resolve_dtype(s.dtype, dtype).name](s.value) for s in operator.scalars}
        values = [
            ctypes.c_void_p(tensors[a.name].data_ptr())
            if a.kind in ("tensor", "buffer")
            else scalars.get(a.name, ctypes.c_int(a.value or 0))
            for a in step.args
        ]
        getattr(self._library(operator, dtype), step.kernel)(*values)

    def _library(self, operator: Operator, dtype: str) -> ctypes.CDLL:
        key = (operator.name, dtype)
        if key not in self._libraries:
            self._libraries[key] = self._compiled(operator, dtype)
        return self._libraries[key]

    def _compiled(self, operator: Operator, dtype: str) -> ctypes.CDLL:
        source, target = (self._folder / f"{operator.name}-{dtype}{ending}" for ending in (".cpp", ".so"))
        text = operator.ancestor("naive", "cpu").read_text()
        source.write_text(translation_unit(text, operator, self._plan(operator), target="cpu", dtype=dtype, values={}))
        flags = [flag for flag in FLAGS if flag not in ("-fvisibility=hidden", "-w")]
        subprocess.run([CXX, *flags, *WARNINGS, str(source), "-o", str(target), *LINK_FLAGS, *LIBRARIES], check=True)
        return ctypes.CDLL(str(target))


def _torch(name: str, dtype: str) -> torch.dtype:
    return TORCH_DTYPES[resolve_dtype(name, dtype).name]


def _poisoned(shape: tuple[int, ...], dtype: torch.dtype, poison: float) -> torch.Tensor:
    return torch.full(shape, poison if dtype.is_floating_point else -1, dtype=dtype)
