"""Buffers that a plan clears before its first launch, always or on conditions; others are poison."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.emulator.look import Routes
from fitness.emulator.target import EmulatedKernel, Emulation
from fitness.evaluation import Rejection, Status
from operators.catalog import load
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan
from tests.operators.sample import FACTS, OPERATOR, header

LAUNCH = '[[launch]]\nkernel = "f"\ngrid = [1]\nblock = [32]\n'
BUFFER = '[[buffer]]\nname = "counters"\ndtype = "int32"\nshape = [4]\n'
DIMS = {"rows": 6, "cols": 100, "longest": 9}


def plan_of(body: str) -> Plan:
    return parse_plan(header(body + BUFFER + LAUNCH), OPERATOR, "cuda", name="k.cu")


def test_conditions_choose_what_is_cleared() -> None:
    plan = plan_of('zero = ["y", { name = "counters", when = "many" }]\n[let]\nmany = "rows > 8"\n')
    for rows, zero in ((6, ("y",)), (9, ("y", "counters"))):
        resolved = plan.resolve(OPERATOR, dtype="fp32", dims=DIMS | {"rows": rows}, values={}, facts=FACTS)
        assert resolved.zero == zero


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{ name = "counters" }', "line 2: zero 1: `when` is missing; write when = \"n > 4096\", or "),
        ('{ when = "1" }', 'line 2: zero 1: `name` is missing; write name = "counters"'),
        ('{ name = "counters", if = "1" }', "line 2: zero 1: `if` is not a key that exists here"),
        ('{ name = "x", when = "1" }', "line 2: `zero` names `x`, which has the role in; its values would be lost"),
        ('"counters", { name = "counters", when = "1" }', "line 2: `zero` names `counters` more than once"),
        ('{ name = "counters", when = "i > 1" }', "`i` counts the repeats of a group"),
        ('{ name = "counters", when = "y" }', "`y` is a tensor, not a number"),
        ("3", "line 2: `zero` may name outputs and buffers: holds 3"),
    ],
)  # fmt: skip
def test_mistakes_in_what_is_cleared(entry: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(f"zero = [{entry}]\n")
    assert message in str(error.value) and "\n" not in str(error.value)


SUM = """\
/*! evo
deterministic = false
zero = [{ name = "product", when = "CONDITION" }]
[[launch]]
kernel = "alone"
when = "n <= 32"
grid = [1]
block = [1]
args = ["x", "y", "product", "n"]
[[launch]]
kernel = "together"
when = "n > 32"
grid = ["ceil_div(n, 64)"]
block = [64]
args = ["x", "y", "product", "n"]
*/
__global__ void alone(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) sum += load(x[i]) * load(y[i]);
    *product = sum;
}
__global__ void together(const T* x, const T* y, ACC* product, int n) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) atomicAdd(product, load(x[i]) * load(y[i]));
}
"""


@pytest.mark.parametrize(("condition", "right"), [("n > 32", True), ("n > 100", False)])
def test_what_is_not_cleared_is_poison(condition: str, right: bool, tmp_path: Path) -> None:
    operator = load("dot_product")
    kernel = Kernel("dot_product", "cuda", SUM.replace("CONDITION", condition))
    assert isinstance(compile_cuda(kernel, operator, "fp32"), CudaBuild)
    emulation = Emulation(operator, "fp32", folder=tmp_path)
    prepared = emulation.prepare(kernel)
    assert isinstance(prepared, EmulatedKernel)
    assert not isinstance(emulation.examine(prepared, shapes=[{"n": 20}, {"n": 200}]), Rejection)
    found = emulation.examine(prepared, shapes=[{"n": 50}])
    assert isinstance(found, Rejection) != right
    assert right or (isinstance(found, Rejection) and found.status is Status.WRONG)
    routes = Routes(prepared.plan, kernel, operator, "fp32", FACTS)
    assert len({routes.of({"n": n}) for n in (20, 50, 200)}) == (2 if right else 3)
    assert "together" in routes.named(routes.of({"n": 200}) or ())
