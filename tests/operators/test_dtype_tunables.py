"""Tunables whose values depend on the task's dtype: build, plan, choice of settings and children all see the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.emulator.target import EmulatedKernel, Emulation
from fitness.evaluation import Rejection, Status
from mutators.base import Parent, Request
from mutators.tuning.tune import Tune
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from operators.prelude import prelude
from tests.operators.sample import FACTS, OPERATOR, header

LAUNCH = '[[launch]]\nkernel = "f"\ngrid = ["VECTOR"]\nblock = ["BLOCK"]\n'
BODY = """\
[tune]
BLOCK = [256, 128]
VECTOR = [4]
where = ["VECTOR * BLOCK <= 2048"]
[tune.bf16]            # eight to a vector
VECTOR = [8, 16]
"""


def test_plan_and_prelude_have_the_values_of_the_dtype() -> None:
    plan = parse_plan(header(BODY + LAUNCH), OPERATOR, "cuda", name="k.cu")
    dims = {"rows": 1, "cols": 1, "longest": 1}
    for dtype, vector in (("fp32", 4), ("bf16", 8), ("fp32", 4)):
        plan = plan.for_dtype(dtype)
        (step,) = plan.resolve(OPERATOR, dtype=dtype, dims=dims, values={}, facts=FACTS).steps
        assert step.grid[0] == vector == plan.settings({})["VECTOR"]
        for other in (plan, plan.for_dtype("bf16"), plan.for_dtype("fp32")):  # a caller that forgot is put right
            assert f"constexpr int VECTOR = {vector};" in prelude(
                OPERATOR, other, target="cuda", dtype=dtype, values={}
            )
            assert other.resolve(OPERATOR, dtype=dtype, dims=dims, values={}, facts=FACTS).steps == (step,)
    with pytest.raises(PlanError, match="VECTOR = 16 is not a declared value"):
        plan.resolve(OPERATOR, dtype="fp32", dims=dims, values={"VECTOR": 16}, facts=FACTS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[tune]\nA = [1]\n[tune.bf61]\nA = [2]", "line 4: [tune.bf61] is of no dtype; there are "),
        ("[tune]\nA = [1]\n[tune.bf16]\nB = [2]", "line 5: [tune.bf16]: `B` is no tunable of [tune], which lists A"),
        ("[tune.bf16]\nB = [2]", "`B` is no tunable of [tune], which lists none"),
        ("[tune]\nA = [1]\n[tune.bf16]\nA = [2, 2]", "line 5: [tune.bf16]: `A` lists 2 more than once"),
        ("[tune]\nA = [1]\n[tune.bf16]\nA = []", "line 5: [tune.bf16]: `A` must have 1 to 64 elements, not 0"),
        ("[tune]\nA = [1]\nwhere = ['A < 2']\n[tune.bf16]\nA = [2]", "`A < 2` does not hold with A = 2, the default"),
        ("[tune]\na = 3", "line 3: [tune]: `a` must be a list"),
    ],
)
def test_mistakes_in_tables_of_dtypes(body: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan(
            header(body + "\n" + LAUNCH.replace("VECTOR", "1").replace("BLOCK", "32")), OPERATOR, "cuda", name="k.cu"
        )
    assert message in str(error.value) and "\n" not in str(error.value)


SCALE = (
    "/*! evo\n[tune]\nEACH = [1]\nBLOCK = [64, 128]\n[tune.bf16]\nEACH = [2, 4]\n"
    '[[launch]]\nkernel = "f"\ngrid = ["ceil_div(n, BLOCK * EACH)"]\nblock = ["BLOCK"]\nargs = ["x", "y", "n"]\n*/\n'
    "__global__ void f(const T* x, T* y, int n) {\n"
    "    static_assert(EACH == (sizeof(T) == 4 ? 1 : 2) || EACH == 4);\n"
    "    for (int e = 0; e < EACH; e++) {\n"
    "        const int i = (blockIdx.x * EACH + e) * BLOCK + threadIdx.x;\n"
    "        if (i < n) { ACC v = load(x[i]); y[i] = store(v > 0 ? v : 0); }\n    }\n}\n"
)


@pytest.mark.parametrize(("dtype", "wrong"), [("fp32", 4), ("bf16", 1)])
def test_what_is_chosen_and_run_is_of_the_dtype(dtype: str, wrong: int, tmp_path: Path) -> None:
    operator, kernel = load("relu"), Kernel("relu", "cuda", SCALE)
    emulation = Emulation(operator, dtype, folder=tmp_path)
    prepared = emulation.prepare(kernel)
    assert isinstance(prepared, EmulatedKernel)
    assert not isinstance(emulation.examine(prepared, shapes=2), Rejection)
    refused = emulation.prepare(kernel.with_values({"EACH": wrong}))
    assert isinstance(refused, Rejection) and refused.status is Status.INVALID
    chosen = set()
    for seed in range(12):
        request = Request(Task("relu", dtype, "cuda"), seed, "tune", (kernel.id,), seed)
        child = Tune().propose(request, (Parent(kernel),), operator).kernel
        if child:
            chosen.add(parse_plan(SCALE, operator, "cuda").for_dtype(dtype).settings(child.values)["EACH"])
    assert chosen <= ({1} if dtype == "fp32" else {2, 4}) and chosen
