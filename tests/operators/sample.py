"""An operator with one of everything, for tests that need no folder."""

from __future__ import annotations

from pathlib import Path

from operators.definition.spec import Operator, Scalar, Tensor, Tolerance
from operators.expression import parse

DIMS = ("rows", "cols")
NAMES = (*DIMS, "total", "longest")


def shape(*axes: str) -> tuple:
    return tuple(parse(axis, NAMES) for axis in axes)


OPERATOR = Operator(
    name="sample",
    family="test",
    formula="y = alpha x",
    dims=DIMS,
    derived={"total": parse("rows * cols", DIMS)},
    data_dims={"longest": "longest row"},
    tensors=(
        Tensor("x", "in", "T", shape("rows", "cols"), None),
        Tensor("index", "in", "int32", shape("rows"), None),
        Tensor("y", "out", "T", shape("rows", "cols"), None),
        Tensor("state", "inout", "ACC", shape("rows"), None),
    ),
    scalars=(Scalar("alpha", "fp32", 0.5),),
    dtypes={"cpu": ("fp32",), "cuda": ("fp32", "bf16")},
    workloads=(),
    hidden=(),
    flops=parse("total", NAMES),
    min_flops=parse("total", NAMES),
    min_bytes=parse("total", NAMES),
    bytes=parse("total", NAMES),
    tolerance=Tolerance("rounding", parse("1", ())),
    folder=Path(),
)

FACTS = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 * 2**20}


def header(body: str) -> str:
    """A kernel file whose line 1 is the opening of the header and whose body starts in line 2."""
    return f"/*! evo\n{body}\n*/\n"
