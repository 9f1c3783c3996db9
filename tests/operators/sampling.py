"""Operators that are tested by default: one of a family; the others run with --slow."""

from __future__ import annotations

import pytest

from operators.catalog import folders

SAMPLE = (
    "cross_entropy_loss", "gelu", "matrix_mul", "prefix_sum", "rms_norm", "softmax", "spmv_csr", "stencil_2d",
)  # fmt: skip

BRIEF = ("matrix_mul", "prefix_sum", "softmax", "spmv_csr")
"""Operators that a test which makes one of each uses by default."""


def every_operator(default: tuple[str, ...] = BRIEF) -> list[object]:
    """Parameters for all operators."""
    return [pytest.param(n, marks=[] if n in default else [pytest.mark.slow]) for n in sorted(folders())]
