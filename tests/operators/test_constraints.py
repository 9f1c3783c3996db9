"""Constraints between tunables: no setting that breaks one is drawn, proposed, walked to or built."""

from __future__ import annotations

from itertools import islice, product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cuda.compile.build import compile_cuda
from fitness.emulator import look
from fitness.evaluation import Rejection, Status
from mutators.base import Parent, Request, Trial
from mutators.tuning.space import space_of
from mutators.tuning.tune import Tune
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan
from tests.operators.sample import FACTS, OPERATOR, header

LAUNCH = '[[launch]]\nkernel = "f"\ngrid = [1]\nblock = [32]\n'
TUNE = "[tune]\nTILE = [32, 64, 128, 256]\nSTAGES = [1, 2, 3, 4, 8]\nWARPS = [4, 8]\n"
ROOM = '[let]\nstage_bytes = "TILE * TILE * sizeof_T"\n'
WHERE = 'where = ["STAGES * stage_bytes <= max_shared_bytes // 2", "TILE % (8 * WARPS) == 0"]\n'
DIMS = {"rows": 6, "cols": 100, "longest": 9}


def plan_of(body: str) -> Plan:
    return parse_plan(header(body + LAUNCH), OPERATOR, "cuda", name="k.cu")


def test_what_rests_on_type_and_device_is_checked_where_they_are_known() -> None:
    plan = plan_of(TUNE + WHERE + ROOM)
    values = {"TILE": 128, "STAGES": 3}
    assert plan.settings(values)["STAGES"] == 3
    assert plan.supports(OPERATOR, DIMS, values, FACTS, "bf16")
    with pytest.raises(PlanError) as error:
        plan.supports(OPERATOR, DIMS, values, FACTS, "fp32")
    assert str(error.value) == (
        "k.cu:line 6: [tune]: `where`: `STAGES * stage_bytes <= max_shared_bytes // 2` does not hold with STAGES = 3, "
        "TILE = 128, max_shared_bytes = 232448, sizeof_T = 4"
    )
    with pytest.raises(PlanError, match=r"`TILE % \(8 \* WARPS\) == 0` does not hold with TILE = 32, WARPS = 8"):
        plan.settings({"WARPS": 8})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "[tune]\nA = [1, 2]\nwhere = ['A > 1']",
            "line 4: [tune]: `where`: `A > 1` does not hold with A = 1, the default",
        ),
        ("[tune]\nA = [1, 2]\nwhere = ['8 // (A - 1)']", "`8 // (A - 1)` divides by zero with A = 1, the default"),
        (
            "[tune]\nA = [1, 2]\nwhere = [\n'A > 0',\n'rows > A']",
            "line 6: [tune]: `where`: `rows > A`: `rows` is a dim",
        ),
        ("[tune]\nA = [1]\nwhere = ['t > A']\n[let]\nt = 'total'", "`total` is a dim, and a setting serves all sizes"),
        ("[tune]\nA = [1]\nwhere = ['B > 1']", "line 4: [tune]: `where`: `B > 1`: unknown name `B`"),
        ("[tune]\nA = [1]\nwhere = ['sizeof_T > 1']", "`where`: `sizeof_T > 1` names no tunable"),
        ("[tune]\nA = [1]\nwhere = 'A > 0'", "line 4: [tune]: `where` must be a list such as"),
        ("where = ['A > 0']\n[tune]\nA = [1]", "line 2: `where` belongs into [tune]"),
    ],
)
def test_mistakes_in_constraints(body: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(body + "\n")
    assert message in str(error.value) and "\n" not in str(error.value)


SIZES = ", ".join(map(str, range(1, 33)))
NARROW = (
    f"[tune]\nA = [{SIZES}]\nB = [{SIZES}]\nC = [{SIZES}]\nD = [{SIZES}]\n"
    "where = ['A == B', 'B * C == 2 * A', 'D == A + C - 2']\n"
)
"""31 settings of a million: A = B, C = 2, D = A, but for A = 1, where D = 1."""


def softmax(tune: str, body: str = "") -> Kernel:
    launch = '[[launch]]\nkernel = "f"\ngrid = ["rows"]\nblock = [32]\nargs = []\n'
    return Kernel("softmax", "cuda", f"/*! evo\n{tune}{launch}*/\n{body or '__global__ void f() {}'}\n")


def narrow() -> Kernel:
    return softmax(NARROW.replace("A = [1, 2,", "A = [1, 2,").replace("C = [1, 2,", "C = [2, 1,"))


@pytest.mark.slow
def test_few_settings_of_many_are_found_drawn_and_proposed() -> None:
    operator, kernel = load("softmax"), narrow()
    trials: list[Trial] = []
    for seed in range(6):
        request = Request(Task("softmax", "fp32", "cuda"), seed, "tune", (kernel.id,), seed, {}, tuple(trials))
        child = Tune().propose(request, (Parent(kernel),), operator).kernel
        assert child
        values = parse_plan(kernel.source, operator, "cuda").settings(child.values)
        assert values["A"] == values["B"] == values["D"] and values["C"] == 2
        trials.append(Trial(values, 0.01 * values["A"]))
    assert len({tuple(trial.values.items()) for trial in trials}) == 6
    space = space_of(kernel, request, operator)
    drawn = {space.values(setting)["A"] for setting in islice(space.drawn(Random(1)), 100)}
    assert len(drawn) > 15


def test_a_setting_that_breaks_one_is_refused_before_it_is_compiled() -> None:
    found = compile_cuda(narrow().with_values({"D": 7}), load("softmax"), "fp32")
    assert isinstance(found, Rejection) and found.status is Status.INVALID
    assert "`where`: `D == A + C - 2` does not hold with A = 1, C = 2, D = 7" in found.message


CONDITIONS = ("A <= B", "A * B <= 12", "A != C", "B % C == 0", "A + B + C > 4", "not (A == 4 and C == 1)", "t < 9")


@given(chosen=st.sets(st.sampled_from(CONDITIONS), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_only_what_all_constraints_allow_is_drawn_and_walked_to(chosen: set[str], seed: int) -> None:
    listed = {"A": [1, 2, 3, 4], "B": [1, 2, 4, 8], "C": [1, 2, 3]}
    where = sorted(chosen)
    allowed = [
        values
        for each in product(*listed.values())
        if all(
            eval(text, {}, (values := dict(zip(listed, each, strict=True))) | {"t": each[0] * each[2]})
            for text in where
        )
    ]
    if not allowed:
        return
    default = allowed[seed % len(allowed)]
    first = {name: [default[name], *(v for v in values if v != default[name])] for name, values in listed.items()}
    tune = "[tune]\n" + "".join(f"{name} = {values}\n" for name, values in first.items()) + f"where = {where}\n"
    kernel = softmax(tune + '[let]\nt = "A * C"\n')
    operator = load("softmax")
    request = Request(Task("softmax", "fp32", "cuda"), 0, "tune", (kernel.id,), seed, {"workload_set": "realistic"})
    space = space_of(kernel, request, operator)
    drawn = [space.values(setting) for setting in islice(space.drawn(Random(seed)), 20)]
    assert all(values in allowed for values in drawn)
    plan = space.plan
    walked = look.settings(plan.tune, default, np.random.default_rng(seed), lambda values: not plan.breach(values))
    assert all(values in allowed and values != default for values in walked)
