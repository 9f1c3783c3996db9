"""fp16 on cuda: the kernels that were published in it, what their sums may not be kept in, and its largest number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitness.evaluation import Rejection, Status
from fitness.oracle.bounds import Precision, analysed, element_bound, judge
from operators.catalog import load
from operators.dtypes import DTYPES
from operators.kernel import Kernel
from tests.cuda.test_emulation import edited, emulated, right

SHAPES = [{"rows": 3, "cols": 127}, {"rows": 257, "cols": 17}]


@pytest.mark.parametrize("name", ["fused_add_rms_norm", "merge_attn_states", "silu_and_mul"])
def test_the_kernels_that_were_published_in_fp16_are_right_in_it(name: str) -> None:
    operator = load(name)
    right(emulated(Kernel(name, "cuda", operator.naive("cuda")), operator, "fp16", shapes=4))


@pytest.mark.parametrize(
    "edit",
    [
        ("sum += value * value;", "sum = load(store(sum + value * value));"),
        ("sum += value * value;", "sum += load(store(value * value * 4096)) / 4096;"),  # rounded, and no number over 16
    ],
    ids=["rounded", "overflowing"],
)
def test_sums_and_squares_that_are_kept_in_fp16_are_refused(edit: tuple[str, str]) -> None:
    operator = load("fused_add_rms_norm")
    kernel = Kernel(operator.name, "cuda", edited(operator.naive("cuda"), edit))
    found = emulated(kernel, operator, "fp16", shapes=SHAPES)
    assert isinstance(found, Rejection) and found.status is Status.WRONG


@pytest.mark.parametrize(
    ("answer", "found", "passes"),
    [
        (70_000.0, math.inf, True),  # what no fp16 holds
        (65_519.0, math.inf, True),  # so near to the largest that an error within the bound decides
        (60_000.0, math.inf, False),
        (60_000.0, 60_032.0, False),  # two roundoffs off
        (60_000.0, 59_968.0, False),
        (60_000.0, 60_016.0, True),
        (2.0**-24, 0.0, True),  # the least of all, which may be flushed
        (2.0**-20, 0.0, False),
        (math.inf, 65_504.0, False),
    ],
)
def test_results_overflow_where_fp16_ends_and_nowhere_else(answer: float, found: float, passes: bool) -> None:
    precision = Precision(DTYPES["fp16"], DTYPES["fp32"], DTYPES["fp16"])
    y64 = np.array([answer])
    roundoffs = analysed(precision, 1, "nominal")
    bound = element_bound(precision, y64, np.abs(y64), terms=1, roundoffs=roundoffs)
    assert (judge(np.array([found]), y64, bound.allowed).mismatches == 0) is passes
