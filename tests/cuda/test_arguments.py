"""A plan's arguments as the launches want them."""

from __future__ import annotations

import struct

from fitness.cuda.running.arguments import program
from fitness.judging.signature import Param
from operators.catalog import load
from operators.plan.reading import ResolvedPlan, parse_plan

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
LONG = Param("integer", 8, "other", 0, False)


def resolved(cols: int = 256) -> ResolvedPlan:
    operator = load("rms_norm")
    plan = parse_plan(SOURCE, operator, "cuda")
    return plan.resolve(operator, dtype="fp32", dims={"rows": 7, "cols": cols}, values={}, facts={"sm_count": 1})


def test_what_fits_is_packed_as_the_parameters_have_it() -> None:
    (launch,) = program(resolved(), {"f": (CONST_FLOATS, FLOATS, INTS, FLOAT, LONG)}, load("rms_norm")).calls
    eps = next(s.value for s in load("rms_norm").scalars if s.name == "eps")
    assert launch.args[:3] == (("buffer", "x"), ("buffer", "y"), ("buffer", "part"))
    assert launch.args[3:] == (struct.pack("<f", eps), struct.pack("<q", 512))
    assert (launch.grid, launch.block) == ((7, 1, 1), (64, 1, 1))
