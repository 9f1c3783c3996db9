"""Which operators are tested by default: one of a family; the others run with --slow."""

from __future__ import annotations

from typing import Any

from operators.catalog import folders
from tests.choosing import some_slow

SAMPLE = (
    "cross_entropy_loss", "gelu", "matrix_mul", "prefix_sum", "rms_norm", "softmax", "spmv_csr", "stencil_2d",
)  # fmt: skip

BRIEF = ("matrix_mul", "prefix_sum", "softmax", "spmv_csr")
"""What a test that makes one of each operator makes by default."""


def every_operator(default: tuple[str, ...] = BRIEF) -> list[Any]:
    """Parameters for all operators."""
    return some_slow(sorted(folders()), default)
