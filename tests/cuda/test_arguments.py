"""A plan's arguments against the parameters of the compiled kernels."""

from __future__ import annotations

import struct

import pytest

from fitness.cuda.arguments import check_arguments, program
from fitness.cuda.cubin import Param
from operators.catalog import load
from operators.plan import ResolvedPlan, parse_plan

SOURCE = """/*! evo
[[buffer]]
name = "part"
dtype = "int32"
shape = ["rows"]

[[launch]]
kernel = "f"
grid = ["rows"]
block = [64]
args = ["x", "y", "part", "eps", "2 * cols"]
*/
"""
FLOATS, CONST_FLOATS = Param("pointer", 8, "float", 4, False), Param("pointer", 8, "float", 4, True)
INTS = Param("pointer", 8, "integer", 4, False)
FLOAT = Param("float", 4, "other", 0, False)
BYTE, INT, LONG = (Param("integer", size, "other", 0, False) for size in (1, 4, 8))
RIGHT = (CONST_FLOATS, FLOATS, INTS, FLOAT, INT)


def resolved(cols: int = 256) -> ResolvedPlan:
    operator = load("rms_norm")
    plan = parse_plan(SOURCE, operator, "cuda")
    return plan.resolve(operator, dtype="fp32", dims={"rows": 7, "cols": cols}, values={}, facts={"sm_count": 1})


def problem(params: tuple[Param, ...], cols: int = 256) -> str | None:
    return check_arguments(resolved(cols), {"f": params}, load("rms_norm"), "fp32")


def test_what_fits_is_packed_as_the_parameters_have_it() -> None:
    assert problem(RIGHT) is None
    (launch,) = program(resolved(), {"f": (*RIGHT[:4], LONG)}, load("rms_norm")).launches
    eps = next(s.value for s in load("rms_norm").scalars if s.name == "eps")
    assert launch.args[:3] == (("buffer", "x"), ("buffer", "y"), ("buffer", "part"))
    assert launch.args[3:] == (struct.pack("<f", eps), struct.pack("<q", 512))
    assert (launch.grid, launch.block) == ((7, 1, 1), (64, 1, 1))


@pytest.mark.parametrize(
    ("position", "param", "text"),
    [
        (0, FLOATS, "argument 1 (`x`) is an input, the parameter must point to const"),
        (
            1,
            Param("pointer", 8, "float", 8, False),
            "`y`) has dtype fp32, the parameter points to a 64-bit float",
        ),
        (1, INT, "is a tensor, the parameter is a integer, not a pointer"),
        (3, INT, "argument 4 (`eps`) is a floating-point scalar, the parameter is an integer"),
        (4, FLOATS, "is a number, the parameter is a pointer"),
        (4, BYTE, "is 512, which does not fit into 8 bits"),
    ],
)
def test_the_message_says_which_argument_is_wrong(position: int, param: Param, text: str) -> None:
    params = (*RIGHT[:position], param, *RIGHT[position + 1 :])
    assert text in str(problem(params))


def test_too_few_parameters() -> None:
    assert problem(RIGHT[:4]) == "f() takes 4 parameters, the plan passes 5"


@pytest.mark.parametrize("pointee", [("other", 16), ("integer", 4), ("integer", 1), ("other", 0)])
def test_several_elements_or_bytes_at_a_time(pointee: tuple[str, int]) -> None:
    assert problem((CONST_FLOATS, Param("pointer", 8, *pointee, False), *RIGHT[2:])) is None
