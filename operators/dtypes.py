"""The element types that tensors, scalars and buffers can have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One element type and what each target calls it."""

    name: str
    size: int
    """Bytes per element."""
    cpp: str
    cuda: str
    unit_roundoff: float
    """Largest relative error of rounding to nearest; 0 for integers."""
    exact_integer_limit: int
    """Integers up to this magnitude are all representable."""

    @property
    def is_float(self) -> bool:
        """Whether values of the type are rounded; integers are exact."""
        return self.unit_roundoff > 0


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("fp64", 8, "double", "double", 2.0**-53, 2**53),
        DType("fp32", 4, "float", "float", 2.0**-24, 2**24),
        DType("fp16", 2, "_Float16", "__half", 2.0**-11, 2**11),
        DType("bf16", 2, "", "__nv_bfloat16", 2.0**-8, 2**8),
        DType("int64", 8, "long long", "long long", 0.0, 2**63 - 1),
        DType("int32", 4, "int", "int", 0.0, 2**31 - 1),
        DType("int8", 1, "signed char", "signed char", 0.0, 2**7 - 1),
        DType("uint8", 1, "unsigned char", "unsigned char", 0.0, 2**8 - 1),
    )
}
"""By name. An empty C++ name means that the target has no such type."""

ACCUMULATOR = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp32", "bf16": "fp32"}
"""Meaning of `ACC` for each element type `T` that a task can have."""

TARGETS = ("cpu", "cuda")


def resolve_dtype(name: str, task_dtype: str) -> DType:
    """The type that `name` means in a task over `task_dtype`; `name` is T, ACC or a name of `DTYPES`."""
    if name == "T":
        name = task_dtype
    elif name == "ACC":
        name = ACCUMULATOR[task_dtype]
    return DTYPES[name]


def least_deviation(terms: int, dtype: DType, share: float = 2.0**-12) -> float:
    """The least deviations of so many numbers, as a share of them, `share` at least, that are told from roundings.

    They are no less than the last place of a sum of all of them, or its roundings would all go the same way.
    """
    return max(share, 2 * terms * resolve_dtype("ACC", dtype.name).unit_roundoff, 16 * dtype.unit_roundoff)
