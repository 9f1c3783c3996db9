"""Compiles kernels of the cpu target and runs them on small inputs, for tests of what transforms keep."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from operators.definition.spec import Operator
from operators.plan.reading import Plan, parse_plan
from operators.prelude import translation_unit

FACTS = {"cpu_count": 2, "l2_bytes": 2**20}
FLAGS = ("-O2", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-w")
SHAPES: Mapping[str, tuple[dict[str, int], ...]] = {
    "softmax": ({"rows": 1, "cols": 1}, {"rows": 7, "cols": 133}, {"rows": 65, "cols": 31}, {"rows": 300, "cols": 64}),
    "matrix_mul": (
        {"m": 1, "n": 1, "k": 1}, {"m": 37, "n": 131, "k": 29}, {"m": 64, "n": 64, "k": 64}, {"m": 3, "n": 5, "k": 300},
    ),
    "spmv_csr": (
        {"rows": 1, "cols": 1, "nnz": 0}, {"rows": 50, "cols": 41, "nnz": 900}, {"rows": 300, "cols": 77, "nnz": 1000},
    ),
}  # fmt: skip


class CompileError(Exception):
    """The compiler's message."""


def inputs(operator: Operator, dims: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random fp32 tensors, all outputs full of NaN."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for tensor in operator.tensors:
        shape = tensor.sizes(operator.environment(dims))
        if tensor.role == "out":
            made[tensor.name] = np.full(shape, np.nan, dtype=np.float32)
        elif tensor.name == "row_offsets":
            cuts = np.sort(rng.integers(0, dims["nnz"] + 1, dims["rows"] - 1))
            made[tensor.name] = np.concatenate([[0], cuts, [dims["nnz"]]]).astype(np.int32)
        elif tensor.name == "col_indices":
            made[tensor.name] = rng.integers(0, dims["cols"], shape).astype(np.int32)
        else:
            made[tensor.name] = rng.uniform(-1, 1, shape).astype(np.float32)
    return made


def expected(operator: Operator, t: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result in fp64."""
    if operator.name == "softmax":
        e = np.exp(t["x"].astype(np.float64) - t["x"].max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    if operator.name == "matrix_mul":
        return t["a"].astype(np.float64) @ t["b"].astype(np.float64)
    products = t["values"].astype(np.float64) * t["x"][t["col_indices"]]
    row = np.repeat(np.arange(len(t["row_offsets"]) - 1), np.diff(t["row_offsets"]))
    return np.bincount(row, products, minlength=len(t["row_offsets"]) - 1)


class Built:
    """One kernel file, compiled for fp32."""

    def __init__(
        self, operator: Operator, plan: Plan, values: Mapping[str, int], library: ctypes.CDLL, suffix: str
    ) -> None:
        self.operator, self.plan, self.values = operator, plan, dict(values)
        self.library, self.suffix = library, suffix

    def run(self, dims: Mapping[str, int], tensors: Mapping[str, np.ndarray]) -> np.ndarray:
        """The output; `tensors` are changed in place."""
        env = {**dims, **dict.fromkeys(self.operator.data_dims, 1)}
        resolved = self.plan.resolve(self.operator, dtype="fp32", dims=env, values=self.values, facts=FACTS)
        for step in resolved.steps:
            arguments = [
                tensors[a.name].ctypes.data_as(ctypes.c_void_p) if a.kind == "tensor" else ctypes.c_int(a.value or 0)
                for a in step.args
            ]
            getattr(self.library, step.kernel + self.suffix)(*arguments)
        return tensors[self.operator.outputs[0].name]

    def worst_error(self) -> float:
        """Largest error over all shapes, relative to 1 + |expected|; infinite for NaN."""
        worst = 0.0
        for seed, dims in enumerate(SHAPES[self.operator.name]):
            tensors = inputs(self.operator, dims, seed)
            wanted = expected(self.operator, tensors)
            error = np.abs(self.run(dims, tensors) - wanted) / (1 + np.abs(wanted))
            worst = max(worst, float(np.nan_to_num(error, nan=np.inf).max()))
        return worst


def build(
    source: str,
    operator: Operator,
    folder: Path,
    values: Mapping[str, int] | None = None,
    flags: tuple[str, ...] = FLAGS,
) -> Built:
    """Raises CompileError."""
    return build_all([(source, values or {})], operator, folder, flags)[0]


def build_all(
    sources: Sequence[tuple[str, Mapping[str, int]]],
    operator: Operator,
    folder: Path,
    flags: tuple[str, ...] = FLAGS,
) -> list[Built]:
    """Kernel files of one operator, with values, compiled as one file to save time. Raises CompileError."""
    plans = [parse_plan(source, operator, "cpu") for source, _ in sources]
    tops: dict[str, None] = {}
    spaces = []
    for number, ((source, values), plan) in enumerate(zip(sources, plans, strict=True)):
        unit = translation_unit(source, operator, plan, target="cpu", dtype="fp32", values=values)
        top, inner = unit[: unit.index("using T")], unit[unit.index("using T") :]
        tops |= dict.fromkeys([top, *re.findall(r"^#include.*$", inner, re.MULTILINE)])
        inner = re.sub(r"^#include.*$", "", inner, flags=re.MULTILINE)
        inner = re.sub(r'extern "C" void (\w+)\(', rf'extern "C" void \1_{number}(', inner)
        spaces.append(f"namespace k{number} {{\n{inner}\n}}\n")
    stem = f"{operator.name}{len(list(folder.glob('*.cpp')))}"
    file, library = folder / f"{stem}.cpp", folder / f"{stem}.so"
    file.write_text("\n".join([*tops, *spaces]))
    command = ["g++", *flags, str(file), "-o", str(library), "-lmvec", "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr)
    loaded = ctypes.CDLL(str(library))
    return [Built(operator, p, v, loaded, f"_{n}") for n, (p, (_, v)) in enumerate(zip(plans, sources, strict=True))]
