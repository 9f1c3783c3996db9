"""Tricks on the cuda target that are refused before anything runs; the others are in tests/gpu."""

from __future__ import annotations

import re

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.judging.signature import check_arguments
from operators.catalog import load
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.cuda.test_target import H100
from tests.gpu import canaries, marks

pytestmark = pytest.mark.usefixtures("headers")

CANARIES = canaries.CANARIES | marks.MARKS
RIGHT = canaries.RIGHT | marks.AFTER


def refusal(source: str) -> str | None:
    """Why a kernel for gelu gets no further than its build."""
    operator = load("gelu")
    made = compile_cuda(Kernel("gelu", "cuda", source), operator, "fp32")
    if not isinstance(made, CudaBuild):
        return made.message
    try:
        declared = parse_plan(source, operator, "cuda")
        occupancy = dict.fromkeys(declared.occupancy_kernels, 1)
        plan = declared.resolve(
            operator, dtype="fp32", dims={"n": 1000}, values={}, facts=H100.plan_facts, occupancy=occupancy
        )
    except PlanError as error:
        return str(error)
    return check_arguments(plan, made.params, operator, "fp32")


@pytest.mark.parametrize("name", sorted(name for name, canary in CANARIES.items() if canary.structural))
def test_it_is_refused(name: str) -> None:
    found = refusal(CANARIES[name].source)
    assert found
    assert re.search(CANARIES[name].says, found), found
    assert "root:" not in found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name, canary in CANARIES.items() if not canary.structural))
def test_what_must_run_to_be_found_out_builds(name: str) -> None:
    assert refusal(CANARIES[name].source) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_what_they_are_made_of_builds(name: str) -> None:
    assert refusal(RIGHT[name]) is None
