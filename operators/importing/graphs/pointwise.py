"""Loops of operators that compute each element of their result from the same element of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from operators.errors import OperatorError
from operators.importing.graphs.graph import Node
from operators.importing.graphs.kernels import Array, Writer, cast, is_float, kind

LARGER, SMALLER = "(a0 > a1 || a0 != a0 ? a0 : a1)", "(a0 < a1 || a0 != a0 ? a0 : a1)"
ROOT_HALF, ROOT_2_PI = "ACC(0.70710678118654752440)", "ACC(0.79788456080286535588)"
ROUNDED = "(rint(a0))"


def _gelu(args: list[Any]) -> str:
    if args[1] == "tanh":
        return f"a0 / 2 * (1 + tanh({ROOT_2_PI} * (a0 + ACC(0.044715) * a0 * a0 * a0)))"
    return f"a0 / 2 * (1 + erf(a0 * {ROOT_HALF}))"


def _clamp(args: list[Any]) -> str:
    text = "a0"
    if args[1] is not None:
        text = f"({text} < a1 ? a1 : {text})"
    return f"({text} > a2 ? a2 : {text})" if args[2] is not None else text


def _rounding(args: list[Any]) -> str:
    return {"floor": "floor(a0 / a1)", "trunc": "trunc(a0 / a1)", None: "a0 / a1"}[args[2]]


INTEGERS: Mapping[str, str] = {
    "div": "(a0 / a1 - (a0 % a1 != 0 && (a0 < 0) != (a1 < 0)))",
    "floor_divide": "(a0 / a1 - (a0 % a1 != 0 && (a0 < 0) != (a1 < 0)))",
    "remainder": "((a0 % a1 + a1) % a1)", "fmod": "(a0 % a1)", "abs": "(a0 < 0 ? -a0 : a0)",
    "floor": "a0", "ceil": "a0", "round": "a0", "trunc": "a0", "pow": "(long long)(pow((double)a0, (double)a1))",
}  # fmt: skip
"""Texts for integers, where they are not those for floating numbers."""

FUNCTIONS: Mapping[str, str | Callable[[list[Any]], str]] = {
    # one number
    "neg": "-a0", "abs": "fabs(a0)", "exp": "exp(a0)", "exp2": "exp2(a0)", "expm1": "expm1(a0)", "log": "log(a0)",
    "log2": "log2(a0)", "log10": "log10(a0)", "log1p": "log1p(a0)", "sqrt": "sqrt(a0)", "rsqrt": "1 / sqrt(a0)",
    "reciprocal": "1 / a0", "sin": "sin(a0)", "cos": "cos(a0)", "tan": "tan(a0)", "asin": "asin(a0)",
    "acos": "acos(a0)", "atan": "atan(a0)", "sinh": "sinh(a0)", "cosh": "cosh(a0)", "tanh": "tanh(a0)",
    "asinh": "asinh(a0)", "acosh": "acosh(a0)", "atanh": "atanh(a0)", "erf": "erf(a0)", "erfc": "erfc(a0)",
    "floor": "floor(a0)", "ceil": "ceil(a0)", "round": ROUNDED, "trunc": "trunc(a0)",
    "sign": "((a0 > 0) - (a0 < 0))", "square": "a0 * a0", "isnan": "(a0 != a0)", "isinf": "(fabs(a0) == INFINITY)",
    "logical_not": "!a0", "bitwise_not": "~a0",
    # activations
    "relu": "(a0 < 0 ? 0 : a0)", "sigmoid": "1 / (1 + exp(-a0))", "silu": "a0 / (1 + exp(-a0))", "gelu": _gelu,
    "leaky_relu": "(a0 > 0 ? a0 : a0 * a1)", "hardtanh": "(a0 < a1 ? a1 : a0 > a2 ? a2 : a0)",
    "elu": "(a0 > 0 ? a0 * a2 : (exp(a0 * a3) - 1) * a1 * a2)",
    "softplus": "(a0 * a1 > a2 ? a0 : log1p(exp(a0 * a1)) / a1)",
    "hardsigmoid": "(a0 <= -3 ? 0 : a0 >= 3 ? 1 : a0 / 6 + ACC(0.5))",
    "hardswish": "(a0 <= -3 ? 0 : a0 >= 3 ? a0 : a0 * (a0 + 3) / 6)",
    "mish": "a0 * tanh(a0 > 20 ? a0 : log1p(exp(a0)))",
    "log_sigmoid_forward": "(a0 < 0 ? a0 : 0) - log1p(exp(-fabs(a0)))",
    "logit": "log(a0 / (1 - a0))", "threshold": "(a0 <= a1 ? a2 : a0)",
    "softshrink": "(a0 > a1 ? a0 - a1 : a0 < -a1 ? a0 + a1 : 0)",
    "hardshrink": "(a0 >= -a1 && a0 <= a1 ? 0 : a0)", "celu": "(a0 > 0 ? a0 : a1 * (exp(a0 / a1) - 1))",
    # several
    "add": "a0 + a2 * a1", "sub": "a0 - a2 * a1", "rsub": "a1 - a2 * a0", "mul": "a0 * a1", "div": _rounding,
    "pow": "pow(a0, a1)", "atan2": "atan2(a0, a1)", "hypot": "hypot(a0, a1)", "fmod": "fmod(a0, a1)",
    "remainder": "(a0 - a1 * floor(a0 / a1))", "floor_divide": "floor(a0 / a1)", "maximum": LARGER, "minimum": SMALLER,
    "fmax": "fmax(a0, a1)", "fmin": "fmin(a0, a1)", "clamp": _clamp, "clamp_min": "(a0 < a1 ? a1 : a0)",
    "clamp_max": "(a0 > a1 ? a1 : a0)", "eq": "(a0 == a1)", "ne": "(a0 != a1)", "lt": "(a0 < a1)", "le": "(a0 <= a1)",
    "gt": "(a0 > a1)", "ge": "(a0 >= a1)", "logical_and": "((a0 != 0) && (a1 != 0))",
    "logical_or": "((a0 != 0) || (a1 != 0))", "logical_xor": "((a0 != 0) != (a1 != 0))", "bitwise_and": "(a0 & a1)",
    "bitwise_or": "(a0 | a1)", "bitwise_xor": "(a0 ^ a1)", "where": "(a0 ? a1 : a2)", "masked_fill": "(a1 ? a2 : a0)",
    "addcmul": "a0 + a3 * a1 * a2", "addcdiv": "a0 + a3 * a1 / a2", "lerp": "a0 + a2 * (a1 - a0)",
    "xlogy": "(a0 == 0 ? 0 : a0 * log(a1))", "copysign": "copysign(a0, a1)", "lgamma": "lgamma(a0)",
    "bitwise_left_shift": "(a0 << a1)", "bitwise_right_shift": "(a0 >> a1)",
    # the same number in another type
    "_to_copy": "a0", "clone": "a0", "copy": "a1", "alias": "a0", "detach": "a0", "lift_fresh_copy": "a0",
}  # fmt: skip
"""By operator: the result in terms of its arguments, a0 the first."""
COMPARISONS = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "isnan",
    "isinf",
)
OVERLOADS: Mapping[str, str] = {
    "pow": "Tensor_Scalar Tensor_Tensor Scalar", "clamp": "default Tensor", "clamp_min": "default Tensor",
    "clamp_max": "default Tensor", "div": "Tensor Scalar Tensor_mode Scalar_mode",
    "where": "self ScalarOther ScalarSelf Scalar",
    "masked_fill": "Scalar Tensor", "bitwise_and": "Tensor Scalar", "bitwise_or": "Tensor Scalar",
    "bitwise_xor": "Tensor Scalar", "floor_divide": "default Scalar", "lerp": "Scalar Tensor", "round": "default",
    "xlogy": "Tensor", "copysign": "Tensor Scalar", "bitwise_left_shift": "Tensor Tensor_Scalar",
    "bitwise_right_shift": "Tensor Tensor_Scalar",
}  # fmt: skip
_TWO = ["add", "sub", "rsub", "mul", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge"]


def overloads(name: str) -> list[str]:
    """The overloads of an operator that take what its text says."""
    return OVERLOADS.get(name, "Tensor Scalar" if name in _TWO else "default").split()


def pointwise(writer: Writer, node: Node, *args: Any) -> tuple[Array | None, ...]:
    """One loop over the elements of the result."""
    name = node.op.split(".")[1]
    values, out_dtype = list(args), node.outputs[0].dtype
    if name == "div" and len(values) == 2:
        values.append(None)
    tensors = [value for value in values if isinstance(value, Array)]
    numbers = [v for v in values[1:] if isinstance(v, float) or (isinstance(v, dict) and "calc" in v)]
    if name in COMPARISONS:
        floating = any(array.is_float for array in tensors) or bool(numbers)
        dtype = "ACC" if floating else "int64"
    else:
        dtype = out_dtype
    integer = INTEGERS.get(name) if not is_float(dtype) else None
    found = integer or FUNCTIONS[name]
    text = found if isinstance(found, str) else found(values)
    if name == "bitwise_not":
        text = "!a0" if dtype == "bool" else "~a0"
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        for position, value in enumerate(values):
            if f"a{position}" not in text or value is None or isinstance(value, str):
                continue
            condition = (name, position) in (("where", 0), ("masked_fill", 1))
            own = "bool" if condition else dtype
            if isinstance(value, Array):
                read = kernel.broadcast(value, index, own)
            elif isinstance(value, list):
                raise OperatorError(f"node {node.name}: argument {position} is a list")
            elif name == "eq" and type(value) is int and 0 <= value < 2**31:  # one function for all experts of a router
                read = cast(kernel.passed(value), own)
            else:
                read = cast(kernel.number(value), own)
            kernel.line(f"{kind(own)} a{position} = {read};")
        if name in ("_to_copy", "clone") and not is_float(dtype):
            text = kernel.broadcast(values[0], index, dtype)
        kernel.put(out, index, text)
    return (out, *(None for _ in node.outputs[1:]))


ENTRIES: dict[str, Callable[..., Any]] = {
    f"aten.{name}.{overload}": pointwise for name in FUNCTIONS for overload in overloads(name)
}
