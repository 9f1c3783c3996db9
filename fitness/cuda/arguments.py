"""A resolved plan's arguments against the compiled kernels' parameters, and as the launches want them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping

from fitness.cuda.cubin import Param
from fitness.cuda.program import TENSOR_MAP_BYTES, Launch, Program, Value
from operators.dtypes import DType, resolve_dtype
from operators.plan import Argument, ResolvedPlan
from operators.spec import Operator


def check_arguments(
    plan: ResolvedPlan, params: Mapping[str, tuple[Param, ...]], operator: Operator, dtype: str
) -> str | None:
    """Compare the plan's arguments with the compiled kernels' parameters; what is wrong, or None."""
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


def _pointer_problem(param: Param, argument: Argument, element: DType, writable: bool) -> str | None:
    if param.kind != "pointer":
        return f"is a {argument.kind}, the parameter is a {param.kind}, not a pointer"
    if param.pointee_size and not _can_view(param, element):
        return (
            f"has dtype {element.name}, the parameter points to a {8 * param.pointee_size}-bit "
            f"{'structure' if param.pointee_kind == 'other' else param.pointee_kind}"
        )
    if not param.pointee_const and not writable:
        return "is an input, the parameter must point to const"
    return None


def _can_view(param: Param, element: DType) -> bool:
    """Elements as they are, or bytes, or several of them as one: float4, __nv_bfloat162, an unsigned int."""
    size = param.pointee_size
    if param.pointee_kind == "float":
        return element.is_float and size == element.size
    return size == 1 or size % element.size == 0


def _value_problem(param: Param, argument: Argument, operator: Operator) -> str | None:
    if argument.kind == "map":
        fits = param.kind == "other" and param.size == TENSOR_MAP_BYTES
        return None if fits else "is a tensor map, the parameter must be `const __grid_constant__ CUtensorMap`"
    if param.kind not in ("integer", "float"):
        return f"is a number, the parameter is a {'structure' if param.kind == 'other' else param.kind}"
    if argument.kind == "integer":
        assert argument.value is not None
        if param.kind == "integer" and not -(1 << (8 * param.size - 1)) <= argument.value < 1 << (8 * param.size):
            return f"is {argument.value}, which does not fit into {8 * param.size} bits"
    elif param.kind == "integer" and not isinstance(_scalar(operator, argument.name), int):
        return "is a floating-point scalar, the parameter is an integer"
    return None


def program(plan: ResolvedPlan, params: Mapping[str, tuple[Param, ...]], operator: Operator) -> Program:
    """What the worker gets. The arguments must have been checked."""
    launches = []
    for step in plan.steps:
        args: list[Value] = []
        for argument, param in zip(step.args, params[step.kernel], strict=True):
            if argument.kind in ("tensor", "buffer"):
                args.append(("buffer", argument.name))
            elif argument.kind == "map":
                args.append(("map", argument.name))
            else:
                args.append(_number(argument, param, operator))
        launches.append(
            Launch(step.kernel, tuple(args), step.grid, step.block, step.cluster, step.shared_bytes, step.cooperative)
        )
    return Program(plan.zero, tuple(launches), plan.tensor_maps)


def _number(argument: Argument, param: Param, operator: Operator) -> bytes:
    """As the parameter's type has it."""
    value = _scalar(operator, argument.name) if argument.kind == "scalar" else argument.value
    assert value is not None
    if param.kind == "float":
        return struct.pack("<f" if param.size == 4 else "<d", value)
    number: int = int(value) % (1 << 8 * param.size)
    return number.to_bytes(param.size, sys.byteorder)


def _scalar(operator: Operator, name: str) -> float | int:
    value: float | int = next(s.value for s in operator.scalars if s.name == name)
    return value
