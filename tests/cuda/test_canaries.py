"""Tricks on the cuda target without a GPU: those that are refused before anything runs, and the others in emulation.

Whether what runs is found out for certain is a question for tests/gpu.
"""

from __future__ import annotations

import re

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.emulator.target import emulated
from fitness.evaluation import CheckError, Rejection, Status
from fitness.judging.signature import check_arguments
from operators.catalog import load
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.cuda.test_target import H100
from tests.gpu import canaries, marks
from tests.gpu.every import CANARIES, KINDS, RUNNING, STRUCTURAL, TWINS

pytestmark = pytest.mark.usefixtures("headers")

RIGHT = canaries.RIGHT | marks.AFTER
FOR_GPU = frozenset((
    "asleep", "barrier counted beside", "barrier counted far behind", "barrier counted in", "barrier waited at",
    "buffers of a timed call", "cold caches", "counts in a table by a hidden address", "fill of scratch",
    "fill of shared memory", "fill of the output", "graph that does not wait", "marks in reserved shared memory",
    "memo behind barrier words", "one sum for all", "parameter counted in by atomics", "parameter stored through",
    "parameter that is given another address", "parameter that points to a tensor map", "place of the buffers",
    "slack between timed sets", "slack by a bulk copy", "small sizes alone", "ten calls right",
    "unwritten shared memory",
))  # fmt: skip
"""Those that emulation finds nothing in, or something else: one thread runs there until it waits, launches never
overlap, and there are no caches, timed calls, earlier calls' memory, tensor maps and words of the driver's."""
EMULATED = [name for name in RUNNING if name not in FOR_GPU]
BRIEF = ("TF32 in the middle", "warps in step", "zeroes its input")


def refusal(source: str, name: str = "gelu") -> str | None:
    """Why a kernel gets no further than its build."""
    operator = load(name)
    made = compile_cuda(Kernel(name, "cuda", source), operator, "fp32")
    if not isinstance(made, CudaBuild):
        return made.message
    try:
        declared = parse_plan(source, operator, "cuda")
        occupancy = dict.fromkeys(declared.occupancy_kernels, 1)
        plan = declared.resolve(
            operator,
            dtype="fp32",
            dims=dict.fromkeys(operator.dims, 1000),
            values={},
            facts=H100.plan_facts,
            occupancy=occupancy,
        )
    except PlanError as error:
        return str(error)
    return check_arguments(plan, made.params, operator, "fp32")


def found_in_emulation(operator: str, source: str, *, shapes: int, families: int) -> tuple[CheckError, ...] | Rejection:
    return emulated(Kernel(operator, "cuda", source), load(operator), "fp32", shapes=shapes, families=families)


def test_every_name_is_one_of_a_kind() -> None:
    assert sum(map(len, KINDS.values())) == len(CANARIES)
    assert set(CANARIES) > FOR_GPU


def test_every_class_has_three_tricks() -> None:
    assert not [kind for kind, group in KINDS.items() if len(group) < 3]


@pytest.mark.parametrize("name", some_slow(STRUCTURAL, {*STRUCTURAL} - {"CUB for the whole device", "Thrust"}))
def test_it_is_refused(name: str) -> None:
    found = refusal(CANARIES[name].source, CANARIES[name].operator)
    assert found
    assert re.search(CANARIES[name].says, found), found
    assert "root:" not in found


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNING)
def test_what_must_run_to_be_found_out_builds(name: str) -> None:
    assert refusal(CANARIES[name].source, CANARIES[name].operator) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_what_they_are_made_of_builds(name: str) -> None:
    assert refusal(RIGHT[name]) is None


@pytest.mark.parametrize("name", some_slow(EMULATED, BRIEF))
def test_emulation_finds_it_out(name: str) -> None:
    canary = CANARIES[name]
    found = found_in_emulation(canary.operator, canary.source, shapes=99, families=3)
    if not canary.says:
        assert not isinstance(found, Rejection), found
        assert not any(error.wrong for error in found)
    else:
        assert isinstance(found, Rejection)
        assert re.search(f"{canary.says}|segmentation fault|__trap", found.message), found
        assert found.status not in (Status.INVALID, Status.COMPILE_ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_it_is_right_without_its_trick(name: str) -> None:
    found = found_in_emulation(CANARIES[name].operator, CANARIES[name].twin, shapes=3, families=9)
    assert not isinstance(found, Rejection), found
    assert found and not any(error.wrong for error in found)
