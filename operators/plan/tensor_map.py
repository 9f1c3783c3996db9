"""Descriptors for the Tensor Memory Accelerator, as a plan declares them and as one workload needs them.

Everything is said as `cuTensorMapEncodeTiled` of the CUDA driver wants it: sizes, boxes and strides with the
innermost (contiguous) dimension first, strides in bytes for all dimensions but that one, no interleaving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from operators.dtypes import DTYPES
from operators.expression import Expression

MAX_RANK = 5
TENSOR_MAP_BYTES = 128
"""The size of a `CUtensorMap`."""
SWIZZLES: Mapping[str, int] = {
    "NONE": 0,
    "32B": 32,
    "64B": 64,
    "128B": 128,
    "128B_ATOM_32B": 128,
    "128B_ATOM_32B_FLIP_8B": 128,
    "128B_ATOM_64B": 128,
}
"""Suffix of CU_TENSOR_MAP_SWIZZLE_..., and the most bytes the box may have along its innermost dimension (0: any)."""
L2_PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
"""Suffixes of CU_TENSOR_MAP_L2_PROMOTION_..."""
OOB_FILLS = ("NONE", "NAN_REQUEST_ZERO_FMA")
"""Suffixes of CU_TENSOR_MAP_FLOAT_OOB_FILL_..."""
DATA_TYPES: Mapping[str, str] = {
    "fp64": "FLOAT64",
    "fp32": "FLOAT32",
    "fp16": "FLOAT16",
    "bf16": "BFLOAT16",
    "int64": "INT64",
    "int32": "INT32",
    "int8": "UINT8",
    "uint8": "UINT8",
}
"""Suffix of CU_TENSOR_MAP_DATA_TYPE_... by dtype; the driver has no signed bytes and only copies them anyway."""


@dataclass(frozen=True)
class TensorMap:
    """One `[[tensor_map]]` of a plan."""

    name: str
    tensor: str
    """A tensor or buffer, which the map describes from its first element on."""
    shape: tuple[Expression, ...]
    """Elements along each dimension, innermost first."""
    strides: tuple[Expression, ...]
    """Bytes, one fewer than `shape`; empty: dense."""
    box: tuple[Expression, ...]
    element_strides: tuple[Expression, ...]
    """Empty: all 1."""
    swizzle: str
    l2_promotion: str
    oob_fill: str
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ResolvedTensorMap:
    """The arguments of `cuTensorMapEncodeTiled`, besides the address."""

    name: str
    tensor: str
    dtype: str
    """A name of `DTYPES`."""
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    l2_promotion: str
    oob_fill: str


def resolve_tensor_map(
    declared: TensorMap, dtype: str, object_bytes: int, value: Callable[[Expression, str], int]
) -> ResolvedTensorMap:
    """The map for one workload. Raises ValueError, with the numbers, where the driver or good sense would refuse.

    `value` evaluates an expression of the key that it is told; `object_bytes` is the size of tensor or buffer.
    """
    size = DTYPES[dtype].size
    shape = tuple(value(axis, "shape") for axis in declared.shape)
    box = tuple(value(axis, "box") for axis in declared.box)
    element_strides = tuple(value(s, "element_strides") for s in declared.element_strides) or (1,) * len(shape)
    _within("shape", declared.shape, shape, 2**32)
    _within("box", declared.box, box, 256)
    _within("element_strides", declared.element_strides, element_strides, 8)
    strides = tuple(value(s, "strides") for s in declared.strides)
    if not strides:
        strides = tuple(size * math.prod(shape[: axis + 1]) for axis in range(len(shape) - 1))
    _check_strides(strides)
    extent = size + (shape[0] - 1) * size + sum((n - 1) * s for n, s in zip(shape[1:], strides, strict=True))
    if extent > object_bytes:
        raise ValueError(
            f"shape {list(shape)} with strides {list(strides)} spans {extent} bytes, but `{declared.tensor}` has "
            f"{object_bytes}"
        )
    _check_box(box[0] * size, declared.swizzle)
    if declared.oob_fill != "NONE" and not DTYPES[dtype].is_float:
        raise ValueError(f"oob_fill {declared.oob_fill} needs a floating-point type; `{declared.tensor}` is {dtype}")
    return ResolvedTensorMap(
        declared.name, declared.tensor, dtype, shape, strides, box, element_strides,
        declared.swizzle, declared.l2_promotion, declared.oob_fill,
    )  # fmt: skip


def _within(key: str, declared: tuple[Expression, ...], values: tuple[int, ...], largest: int) -> None:
    for expression, number in zip(declared, values, strict=False):
        if not 1 <= number <= largest:
            raise ValueError(f"{key}: `{expression.text}` is {number}; allowed are 1 to {largest}")


def _check_strides(strides: tuple[int, ...]) -> None:
    for stride in strides:
        if stride % 16 or not 0 < stride < 2**40:
            raise ValueError(f"strides: {stride} bytes; every stride must be a multiple of 16, above 0 and below 2**40")


def _check_box(inner_bytes: int, swizzle: str) -> None:
    if inner_bytes % 16:
        raise ValueError(f"box: the innermost dimension has {inner_bytes} bytes; it must be a multiple of 16")
    span_bytes = SWIZZLES[swizzle]
    if span_bytes and inner_bytes > span_bytes:
        raise ValueError(
            f"box: the innermost dimension has {inner_bytes} bytes; swizzle {swizzle} allows at most {span_bytes}"
        )
