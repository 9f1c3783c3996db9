"""Shapes that an operator.toml leaves to us: hidden ones of all kinds, and the bytes that its tensors amount to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from operators.dtypes import DTYPES

MOST_DIMS = 4
"""The most dims for which shapes are made: of more, too many would be large."""
OF_ONE = {
    "one element": (1,),
    "odd": (3, 7, 17, 127, 1023, 4097),
    "even, no multiple of 8": (2, 100, 1002),
    "divisible by 8": (8, 1000),
    "divisible by 32": (32, 96, 1024, 1056, 4000, 8192, 65536),
}
LONG = {2: 2039, 3: 509, 4: 127}
"""A prime, by the number of dims, that one dim takes while the others are small."""
SMALL = (3, 5, 2)
ODD = {2: (17, 127, 3, 257), 3: (17, 65, 3, 33), 4: (5, 17, 3, 7)}
OF_8 = (8, 40, 24)
OF_32 = {
    2: ((1, 1), (3, 8), (8, 3), (2, 33), (33, 1), (5, 32)),
    3: ((1, 1, 1), (3, 2, 1), (1, 3, 2), (2, 1, 3), (4, 2, 2), (2, 4, 4)),
    4: ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (2, 1, 2, 1)),
}
"""Times 32: six shapes for kernels that ask for whole warps in every dim."""


def completed(raw: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The tables of an operator.toml, not yet checked, with what it leaves out; and whether hidden shapes are ours.

    `hidden` are made where there are at most `MOST_DIMS` dims, `cost.min_bytes` where no size depends on data;
    `cost.min_flops` is 0.
    """
    made, dims, cost = dict(raw), raw.get("dims"), raw.get("cost")
    own = "hidden" not in raw and isinstance(dims, list) and 0 < len(dims) <= MOST_DIMS
    if own:
        made["hidden"] = list(hidden([str(dim) for dim in dims or ()]))
    if isinstance(cost, dict):
        known = {} if raw.get("data_dims") else {"min_bytes": tensors_bytes(raw.get("tensor"))}
        made["cost"] = {"min_flops": 0, **known, **cost}
    return made, own


def hidden(dims: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Tables of `[[hidden]]`: ones, long and small, odd sizes, multiples of 8 and of 32."""
    if len(dims) == 1:
        yield from ({"source": source, "dims": {dims[0]: list(sizes)}} for source, sizes in OF_ONE.items())
        return
    seen = set()
    for source, sizes in _several(dims):
        if sizes not in seen:
            seen.add(sizes)
            yield {"source": source, "dims": dict(zip(dims, sizes, strict=True))}


def _several(dims: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    count = len(dims)
    odd, numbers = ODD[count], range(count)
    yield "one element", (1,) * count
    for one in numbers:
        yield f"long in {dims[one]}", tuple(LONG[count] if n == one else SMALL[n % len(SMALL)] for n in numbers)
        yield f"{dims[one]} = 1", tuple(1 if n == one else odd[(n + one) % len(odd)] for n in numbers)
    for turn in range(len(odd)):
        yield "odd", tuple(odd[(n + turn) % len(odd)] for n in numbers)
    for turn in range(len(OF_8)):
        yield "divisible by 8", tuple(OF_8[(n + turn) % len(OF_8)] for n in numbers)
    for factors in OF_32[count]:
        yield "divisible by 32", tuple(32 * factor for factor in factors)


def tensors_bytes(tensors: object) -> str:
    """A formula for the bytes of all tensors, those that are changed in place counted twice; what is no tensor is 0."""
    listed = tensors if isinstance(tensors, list) else []
    return " + ".join(filter(None, map(_bytes, listed))) or "0"


def _bytes(tensor: object) -> str:
    if not isinstance(tensor, dict) or not isinstance(tensor.get("shape"), list):
        return ""
    dtype = str(tensor.get("dtype", "T"))
    size = str(DTYPES[dtype].size) if dtype in DTYPES else f"sizeof_{'ACC' if dtype == 'ACC' else 'T'}"
    twice = "2 * " if tensor.get("role") == "inout" else ""
    return twice + " * ".join([size, *(f"({axis})" for axis in tensor["shape"])])
