"""The numerical oracle: what the right answer is, how far from it a kernel may be, and how far it was."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fitness.evaluation import CheckError
from fitness.inputs import Inputs, draw
from fitness.memory import Region
from fitness.native import Report, checks
from operators.catalog import Functions
from operators.dtypes import ACCUMULATOR, DTYPES, DType, resolve_dtype
from operators.errors import OperatorError
from operators.spec import Operator, Tensor, Workload

A_OUT = 1.01
"""One rounding to the output type, and a little."""
B_SUM = 2.0
LINEAR_FAMILIES = ("scaled", "structured", "integers")
"""Equal terms make every rounding of a sum go the same way: the bound then grows with K, not with its root."""
SMALLEST_SUBNORMAL = {"fp64": 2.0**-1074, "fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}


@dataclass(frozen=True)
class Case:
    """One set of inputs with its answer. The expected values never leave the verifier's process."""

    workload: Workload
    family: str
    inputs: Inputs
    region: Region
    """The `in` tensors, for others to map read-only."""
    expected: Mapping[str, np.ndarray]
    allowed: Mapping[str, np.ndarray]

    @property
    def dims(self) -> Mapping[str, int]:
        return self.inputs.dims


class Oracle:
    """Makes cases for one operator and dtype, and judges outputs against them."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str) -> None:
        self.operator = operator
        self.functions = functions
        self.dtype = dtype

    def element(self, tensor: Tensor) -> DType:
        return resolve_dtype(tensor.dtype, self.dtype)

    def case(self, workload: Workload, family: str, rng: np.random.Generator, *, at_end: bool) -> Case:
        """Draw inputs, compute the fp64 reference on the values as rounded to the task's dtype, and the bound."""
        inputs = draw(self.operator, self.functions, dims=workload.dims, dtype=self.dtype, family=family, rng=rng)
        sizes = {
            t.name: self.element(t).size * math.prod(t.sizes(inputs.dims))
            for t in self.operator.tensors
            if t.role == "in"
        }
        region = Region(sizes, at_end=at_end, readonly_for_others=True)
        for name in sizes:
            _write(region, name, inputs.tensors[name])
        expected, allowed = self._answer(inputs, family)
        return Case(workload, family, inputs, region, expected, allowed)

    def work_sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Bytes of every out and inout tensor."""
        return {t.name: self.element(t).size * math.prod(t.sizes(dims)) for t in self.operator.outputs}

    def restore(self, case: Case, work: Region) -> None:
        """Put the inout tensors' initial values in place."""
        for tensor in self.operator.outputs:
            if tensor.role == "inout":
                _write(work, tensor.name, case.inputs.tensors[tensor.name])

    def errors(self, case: Case, work: Region) -> Iterator[CheckError]:
        """How far each output in `work` is from the answer."""
        for tensor in self.operator.outputs:
            expected, allowed = case.expected[tensor.name], case.allowed[tensor.name]
            report = compare(work, tensor.name, self.element(tensor), expected, allowed)
            first_bad = int(report.first_bad) if report.first_bad >= 0 else None
            yield CheckError(
                case.workload.name, tensor.name, case.family, float(report.max_ratio), int(report.mismatches), first_bad
            )

    def describe(self, error: CheckError, case: Case, work: Region) -> str:
        """A wrong output in words: where, what was found, what was expected."""
        tensor = next(t for t in self.operator.outputs if t.name == error.tensor)
        shape = tensor.sizes(case.dims)
        assert error.first_bad is not None
        index = [int(i) for i in np.unravel_index(error.first_bad, shape)] if shape else []
        found = _read(work, tensor.name, self.element(tensor))[error.first_bad]
        wanted = case.expected[tensor.name].flat[error.first_bad]
        allowed = case.allowed[tensor.name].flat[error.first_bad]
        return (
            f"wrong result on {case.workload.name} ({case.family} inputs): {error.mismatches} of {math.prod(shape)} "
            f"elements of `{tensor.name}` are out of bounds, the first at {index}: {found:.9g}, expected {wanted:.9g} "
            f"within {allowed:.2g}"
        )

    def _answer(self, inputs: Inputs, family: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        # Copies: a reference that works in place must not change what the kernel is given.
        wide = {
            n: t.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True) for n, t in inputs.tensors.items()
        }
        values = dict(inputs.dims) | {s.name: s.value for s in self.operator.scalars} | wide
        answer = self.functions.reference(values)
        self._check("reference", answer, inputs.dims)
        magnitude = self.functions.magnitude(values | {"outputs": answer})
        self._check("magnitude", magnitude or {}, inputs.dims)
        terms = max(self.operator.tolerance.terms.evaluate(inputs.dims), 1)
        growth = terms if family in LINEAR_FAMILIES else math.sqrt(terms)
        expected, allowed = {}, {}
        for tensor in self.operator.outputs:
            y64 = np.ascontiguousarray(answer[tensor.name].double().numpy()).reshape(-1)
            element = self.element(tensor)
            if self.operator.tolerance.bound == "exact" or not element.is_float:
                rounded = answer[tensor.name].to(_torch(element)).double().numpy()
                expected[tensor.name] = np.ascontiguousarray(rounded).reshape(-1)
                allowed[tensor.name] = np.zeros_like(y64)
                continue
            s = np.abs(y64) if magnitude is None else magnitude[tensor.name].double().numpy().reshape(-1)
            u_acc = DTYPES[ACCUMULATOR[self.dtype]].unit_roundoff
            bound = A_OUT * element.unit_roundoff * np.abs(y64) + B_SUM * growth * u_acc * s
            expected[tensor.name] = y64
            allowed[tensor.name] = bound + SMALLEST_SUBNORMAL[element.name]
        return expected, allowed

    def _check(self, function: str, answer: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        """Refuse what numpy would broadcast, or round, in silence. Raises OperatorError."""
        for tensor in (t for t in self.operator.outputs if t.name in answer):
            value, shape = answer[tensor.name], tensor.sizes(dims)
            wide = self.element(tensor).is_float or function == "magnitude"
            right = isinstance(value, torch.Tensor) and tuple(value.shape) == shape
            if right and (value.dtype == torch.float64 if wide else not value.is_complex()):
                if value.isfinite().all() and (function == "reference" or (value >= 0).all()):
                    continue
                problem = "not finite" if function == "reference" else "negative or not finite"
                raise OperatorError(
                    f"{self.functions.module.__file__}: {function}() made values of `{tensor.name}` that are {problem}"
                )
            found = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise OperatorError(
                f"{self.functions.module.__file__}: {function}() made `{tensor.name}` as {found}, "
                f"it must be {'torch.float64' if wide else 'a tensor of integers'} {list(shape)}"
            )


def compare(work: Region, name: str, element: DType, expected: np.ndarray, allowed: np.ndarray) -> Report:
    """One output buffer against its answer, all elements."""
    report = Report(0.0, 0, -1)
    pointers = (expected.ctypes.data, allowed.ctypes.data, expected.size, ctypes.byref(report))
    if element.name == "fp32":
        checks().evo_compare_f32(work.address_of(name), *pointers)
    elif element.name == "fp64":
        checks().evo_compare_f64(work.address_of(name), *pointers)
    else:
        values = np.ascontiguousarray(_read(work, name, element), dtype=np.float64)
        checks().evo_compare_f64(values.ctypes.data, *pointers)
    return report


def worst(errors: Sequence[CheckError]) -> tuple[CheckError, ...]:
    """Of many checks, the worst per workload, tensor and family."""
    found: dict[tuple[str, str, str], CheckError] = {}
    for error in errors:
        key = (error.workload, error.tensor, error.family)
        if key not in found or error.max_ratio > found[key].max_ratio:
            found[key] = error
    return tuple(found.values())


def _torch(element: DType) -> torch.dtype:
    from fitness.inputs import TORCH_DTYPES

    return TORCH_DTYPES[element.name]


def _write(region: Region, name: str, value: torch.Tensor) -> None:
    view = region.view(name)
    if len(view):
        view[:] = value.contiguous().view(torch.uint8).numpy().reshape(-1).data


def _read(region: Region, name: str, element: DType) -> np.ndarray:
    if not len(region.view(name)):
        return np.empty(0)
    values = torch.frombuffer(region.view(name), dtype=_torch(element))
    return values.double().numpy() if element.is_float else values.numpy()
