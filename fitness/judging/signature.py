"""A plan's arguments held against a compiled kernel's parameters: one rule for every target.

A shim around a kernel's source leaves a table of its parameters in the compiled file, which is read, not run.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from operators.definition.spec import Operator
from operators.dtypes import DType, resolve_dtype
from operators.plan.reading import Argument, ResolvedPlan
from operators.plan.tensor_map import TENSOR_MAP_BYTES

KINDS = ("integer", "float", "pointer", "other")
"""Kinds of parameters as the shims number them."""
_PARAM = struct.Struct("<5i")
MAX_PARAM_BYTES = 1 << 16
MAX_PARAMS = 1024
"""Most parameters of one launch; a plan passes fewer."""
MAX_TABLE_BYTES = 4 + MAX_PARAMS * _PARAM.size


class TableError(Exception):
    """A kernel's source made something else of its shim's table; in words."""


@dataclass(frozen=True)
class Param:
    """One parameter of a compiled kernel."""

    kind: str
    """One of KINDS; a structure is `other`."""
    size: int
    """Bytes."""
    pointee_kind: str
    pointee_size: int
    """Bytes; 0 for void."""
    pointee_const: bool


def parameter_table(data: bytes) -> tuple[Param, ...]:
    """The parameters in a shim's table, which begins with how many there are. Raises TableError."""
    count = int.from_bytes(data[:4], "little", signed=True)
    if not (len(data) >= 4 and 0 <= count <= MAX_PARAMS and 4 + count * _PARAM.size <= len(data)):
        raise TableError("the table of its parameters is not the shim's: a macro or a specialisation changes the shim")
    return tuple(_param(*_PARAM.unpack_from(data, 4 + number * _PARAM.size)) for number in range(count))


def _param(kind: int, size: int, pointee: int, pointee_size: int, const: int) -> Param:
    numbers = range(len(KINDS))
    fits = size in (4, 8) if kind == KINDS.index("float") else 0 < size <= (8 if kind in (0, 2) else MAX_PARAM_BYTES)
    if kind not in numbers or pointee not in numbers or not fits or pointee_size < 0:
        raise TableError(f"the table of its parameters has one of kind {kind} with {size} bytes, which there is not")
    return Param(KINDS[kind], size, KINDS[pointee], pointee_size, bool(const))


def check_arguments(
    plan: ResolvedPlan, params: Mapping[str, tuple[Param, ...]], operator: Operator, dtype: str
) -> str | None:
    """The fault of the plan's arguments, given the compiled kernels' parameters by name; None where they fit."""
    dtypes = {t.name: resolve_dtype(t.dtype, dtype) for t in operator.tensors}
    dtypes |= {b.name: resolve_dtype(b.dtype, dtype) for b in plan.buffers}
    writable = {t.name for t in operator.outputs} | {b.name for b in plan.buffers}
    for step in plan.steps:
        expected = params[step.kernel]
        if len(expected) != len(step.args):
            return f"{step.kernel}() takes {len(expected)} parameters, the plan passes {len(step.args)}"
        for position, (param, argument) in enumerate(zip(expected, step.args, strict=True), 1):
            if argument.kind in ("tensor", "buffer"):
                problem = _pointer_problem(param, argument, dtypes[argument.name], argument.name in writable)
            else:
                problem = _value_problem(param, argument, operator)
            if problem:
                return f"{step.kernel}(): argument {position} (`{argument.name}`) {problem}"
    return None


def packed(argument: Argument, param: Param, operator: Operator) -> bytes:
    """The bytes of an integer or a scalar, as the parameter's type has them. The arguments must have been checked."""
    value = _scalar(operator, argument.name) if argument.kind == "scalar" else argument.value
    assert value is not None
    if param.kind == "float":
        return struct.pack("<f" if param.size == 4 else "<d", value)
    number: int = int(value) % (1 << 8 * param.size)
    return number.to_bytes(param.size, sys.byteorder)


def _pointer_problem(param: Param, argument: Argument, element: DType, writable: bool) -> str | None:
    if param.kind != "pointer":
        return f"is a {argument.kind}, the parameter is a {_named(param.kind)}, not a pointer"
    if param.pointee_size and not _can_view(param, element):
        return (
            f"has dtype {element.name}, the parameter points to a {8 * param.pointee_size}-bit "
            f"{_named(param.pointee_kind)}"
        )
    if not param.pointee_const and not writable:
        return "is an input, the parameter must point to const"
    return None


def _can_view(param: Param, element: DType) -> bool:
    """Whether the pointee is an element, or a structure of one or several: __half, float4, `struct { T v[4]; }`.

    A number of another type is not: a file that takes fp32 for integers, or for bytes, is more likely wrong than it is
    clever, and what is clever can cast inside the kernel.
    """
    if param.pointee_kind == "other":
        return param.pointee_size % element.size == 0
    return param.pointee_size == element.size and (param.pointee_kind == "float") == element.is_float


def _value_problem(param: Param, argument: Argument, operator: Operator) -> str | None:
    if argument.kind == "map":
        points = param.kind == "pointer" and (param.pointee_kind, param.pointee_size) == ("other", TENSOR_MAP_BYTES)
        return None if points and param.pointee_const else "is a tensor map, the parameter must be `const CUtensorMap*`"
    if param.kind not in ("integer", "float"):
        return f"is a number, the parameter is a {_named(param.kind)}"
    if argument.kind == "integer":
        assert argument.value is not None
        if param.kind == "integer" and not -(1 << (8 * param.size - 1)) <= argument.value < 1 << (8 * param.size):
            return f"is {argument.value}, which does not fit into {8 * param.size} bits"
    elif param.kind == "integer" and not isinstance(_scalar(operator, argument.name), int):
        return "is a floating-point scalar, the parameter is an integer"
    return None


def _named(kind: str) -> str:
    return "structure" if kind == "other" else kind


def _scalar(operator: Operator, name: str) -> float | int:
    value: float | int = next(s.value for s in operator.scalars if s.name == name)
    return value
