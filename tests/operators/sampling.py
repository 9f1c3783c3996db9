"""Operators that are tested by default: one of a family; the others run with --slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operators.catalog import folders, load
from operators.definition.spec import Operator
from tests.choosing import some_slow

SAMPLE = (
    "cross_entropy_loss", "gelu", "matrix_mul", "prefix_sum", "rms_norm", "softmax", "spmv_csr", "stencil_2d",
)  # fmt: skip

BRIEF = ("matrix_mul", "prefix_sum", "softmax", "spmv_csr")
"""Operators that a test which makes one of each uses by default."""


def every_operator(default: tuple[str, ...] = BRIEF) -> list[Any]:
    """Parameters for all operators."""
    return some_slow(sorted(folders()), default)


def of_every_operator(check: Callable[[Operator], None]) -> Callable[[], None]:
    """One test for all operators of what takes no time for each: to collect and report hundreds takes longer."""

    def test() -> None:
        for name in sorted(folders()):
            try:
                check(load(name))
            except Exception as error:
                error.add_note(f"of operator {name}")
                raise

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test
