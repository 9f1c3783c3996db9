"""Words of prompts on machine, limits and search: whole golden prompts, and single things that must not be lost."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.evaluation import Status
from fitness.judging.base import Anchor, DeviceInfo
from fitness.profiling.roofline import allowed_us
from fitness.targets import fitness
from mutators.base import Parent, Request
from mutators.briefing import Attempt, Briefing, Ratio
from mutators.prompts import conversation, informed
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.mutators import informed_cases as cases
from tests.mutators.test_prompts import INJECTIONS, MARK, outside

SCORES = Path(__file__).parents[1] / "data" / "scores"
MOST_CHARACTERS = 20_000
"""Most characters of a prompt without the sources of its kernels: some 5,000 tokens."""


@pytest.mark.parametrize(("operator", "stage", "target"), cases.CASES)
def test_golden_prompts(operator: str, stage: str, target: str) -> None:
    for path, said in zip(cases.files(operator, stage, target), cases.asked(operator, stage, target), strict=True):
        golden = path.read_text(encoding="utf-8")
        assert f"{said['content']}\n" == golden, "python -m tests.mutators.informed_cases writes them anew"


@pytest.mark.parametrize(("operator", "target"), [(o, t) for o in cases.OPERATORS for t in cases.TARGETS])
def test_prompts_of_a_task_begin_with_the_same_bytes(operator: str, target: str) -> None:
    """Providers keep what a prompt begins with; it is the larger part, and the same at every stage."""
    prompts = [cases.asked(operator, stage, target) for stage in cases.STAGES]
    assert len({first["content"] for first, _ in prompts}) == 1
    assert all(len(first["content"]) > len(last["content"]) for first, last in prompts)


@pytest.mark.parametrize(("operator", "stage", "target"), cases.CASES)
def test_a_prompt_is_short_enough_to_be_read(operator: str, stage: str, target: str) -> None:
    text = "".join(message["content"] for message in cases.asked(operator, stage, target))
    sources = sum(map(len, re.findall(r"```cpp untrusted\n.*?```", text, re.DOTALL)))
    assert len(text) - sources < MOST_CHARACTERS


def asked(operator: Operator, target: str, briefing: Briefing) -> tuple[str, str]:
    """System and user message of a `rewrite` of the first of the cases' kernels."""
    task = Task(operator.name, operator.dtypes[target][0], target)
    first = cases.kernels(operator, target)[0]
    parent = Parent(first, cases.verdict(first, task, 0.7, briefing.parents.get(first.id, {})), briefing=briefing)
    params = {"workload_set": cases.SETS[target]}
    request = Request(task, 7, "rewrite", (first.id,), 1, params, model="m")
    system, user = conversation("rewrite", request, (parent,), operator)
    return system["content"], user["content"]


def known(operator: Operator, target: str) -> Briefing:
    return cases.briefing(operator, Task(operator.name, operator.dtypes[target][0], target))


def test_figures_of_the_machine_are_told_and_their_absence_is_no_gap() -> None:
    operator = load("softmax")
    system, _ = asked(operator, "cuda", known(operator, "cuda"))
    for words in ("132 SMs", "65536 registers", "227 KiB", "4.3e+03 GB/s read", "66.9 TFLOP/s in fp32", "178 TFLOP/s"):
        assert words in system
    assert "an empty launch costs 2.1 us" in system
    system, user = asked(operator, "cuda", Briefing())
    assert "# The machine" not in system and "of what the machine allows" not in user


def test_far_from_the_limit_a_design_is_asked_for_and_near_it_the_limit_that_is_left() -> None:
    operator, target = load("softmax"), "cpu"
    briefing = known(operator, target)
    _, far = asked(operator, target, briefing)
    assert "write the design that you would ship" in far
    peaks = cases.DEVICES[target].peaks
    assert peaks
    first = cases.kernels(operator, target)[0]
    chosen = [w for w in operator.workloads if w.set == cases.SETS[target]]
    allowed = {w.name: allowed_us(operator, w.dims, "fp32", peaks) for w in chosen}
    shares = dict(zip(allowed, (0.9, 0.6, 0.95), strict=True))
    near = {
        name: Ratio(math.log(briefing.naive_us[name] / allowed[name] * share), 0.01) for name, share in shares.items()
    }
    _, user = asked(operator, target, replace(briefing, parents={first.id: near}))
    assert f"furthest below it on {chosen[1].name} (60 %)" in user and "one limit that is left" in user
    assert "design that you would ship" not in user


def test_a_ratio_that_may_be_one_is_called_unresolved() -> None:
    assert str(Ratio(math.log(1.58), 0.44)) == "1.58 (0.667 to 3.74, unresolved)"
    assert str(Ratio(math.log(1.58), 0.05)) == "1.58 (1.43 to 1.74)"
    assert not Ratio(0.0, 0.0).resolved and str(Ratio(0.0, 0.0)) == "1.00"


def test_two_prompts_that_are_asked_of_the_same_kernel_differ() -> None:
    operator = load("softmax")
    briefing = known(operator, "cpu")
    prompts = {asked(operator, "cpu", replace(briefing, asked_before=count)) for count in range(4)}
    assert len(prompts) == 4


def test_precision_is_told_as_verification_has_it() -> None:
    said = {name: asked(load(name), "cuda", Briefing())[0] for name in ("matrix_mul", "sorting", "matrix_copy")}
    assert "an fp32 product as three TF32 ones on tensor cores. Plain TF32 fails." in said["matrix_mul"]
    assert "Every bit must be one of the input's" in said["matrix_copy"] and "Means are free" not in said["matrix_copy"]
    assert "Means are free" not in said["sorting"]


def test_only_the_naive_kernel_is_called_so() -> None:
    operator = load("softmax")
    task = Task("softmax", "fp32", "cpu")
    others = Kernel("softmax", "cpu", f"{operator.naive('cpu')}// as fast\n")
    calls_naive = []
    for log, se in ((0.0, 0.0), (1e-5, 1e-5)):
        verdict = replace(cases.verdict(others, task, 0.7, {}), log_speedup=log, log_speedup_se=se)
        request = Request(task, 7, "rewrite", (others.id,), 1, model="m")
        _, user = conversation("rewrite", request, (Parent(others, verdict),), operator)
        calls_naive.append("It is the naive kernel" in user["content"])
    assert calls_naive == [True, False]


def test_memory_is_said_to_be_poisoned_between_calls_and_not_between_launches() -> None:
    system, _ = asked(load("softmax"), "cpu", Briefing())
    assert "Outputs and scratch hold poison before every call," in system


def test_facts_that_say_nothing_are_left_out() -> None:
    operator = load("softmax")
    _, user = asked(operator, "cuda", known(operator, "cuda"))
    (facts,) = re.findall(r"The compiler's facts:\n\n```untrusted\n(.*?)\n```", user)
    assert facts == "registers 64; tensor_cores yes"


@pytest.mark.parametrize("injected", INJECTIONS)
def test_ideas_and_kernels_of_others_stay_within_fences_that_are_marked(injected: str) -> None:
    operator = load("softmax")
    briefing = known(operator, "cpu")
    idea = Attempt(injected, "correct", Ratio(0.5, 0.01), injected)
    winner = replace(briefing.winners[0].kernel, source=f"// {injected}\n", values={MARK: 1})
    bad = replace(
        briefing, tried=(idea,), helped=(idea,), fruitless=(idea,), failed=(idea,),
        winners=(replace(briefing.winners[0], kernel=winner),),
    )  # fmt: skip
    _, user = asked(operator, "cpu", bad)
    assert user.count(MARK) >= 9 and MARK not in outside(user)


# --- worked examples --------------------------------------------------------------------------------------------------


def test_an_example_is_no_kernel_of_an_operator_that_is_asked_for() -> None:
    from operators.catalog import folders

    assert "scores" not in folders()


@pytest.mark.parametrize("dtype", some_slow(["fp32", "fp64"], 1))
def test_the_example_of_the_cpu_is_right(dtype: str, tmp_path: Path) -> None:
    operator = load(str(SCORES))
    (example,) = informed.EXAMPLES["cpu"]
    kernel = Kernel("scores", "cpu", example.source)
    stage = fitness(operator, Task("scores", dtype, "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        built = stage.build(kernel)
        found = stage.full(kernel, Anchor(stage.baseline, 0.0, 0.0))
    finally:
        stage.close()
    assert found.status is Status.CORRECT, found.message
    assert built.facts["threads"] and built.facts["vector_bits"] >= 128


def test_a_device_is_shown_no_example_that_it_cannot_run() -> None:
    old = DeviceInfo("an NVIDIA A100", {}, ("compiled for sm_80: cp.async",))
    hopper = cases.DEVICES["cuda"]
    operator = load("softmax")
    (cuda,), (cpu,) = informed.EXAMPLES["cuda"], informed.EXAMPLES["cpu"]
    assert not cuda.fits(operator, old)
    assert cuda.fits(operator, hopper) and cuda.fits(operator, None) and cpu.fits(operator, cases.DEVICES["cpu"])


def test_an_example_is_not_shown_for_its_own_operator() -> None:
    own = load(str(SCORES))
    assert not informed.constants(None, own, Task("scores", "bf16", "cuda"))["examples"]
    shown = informed.constants(None, own, Task("scores", "bf16", "cuda"), informed.CUTE)["examples"]
    assert [example.operator for example in shown] == ["row_peaks"]


@pytest.mark.parametrize(
    ("device", "hopper"), [(cases.DEVICES["cuda"], True), (DeviceInfo("a GPU", {}, ("sm_80",)), False)]
)
def test_prompts_that_ask_for_cute_have_its_examples_beside_those_of_the_device(
    device: DeviceInfo, hopper: bool
) -> None:
    operator = load("softmax")
    first = cases.kernels(operator, "cuda")[0]
    request = Request(Task("softmax", "fp32", "cuda"), 7, "rewrite", (first.id,), 1, {"dialect": "cute"}, model="m")
    shown = (Parent(first, briefing=Briefing(device)),)
    system = conversation("rewrite", request, shown, operator)[0]["content"]
    assert system.count("#include <cute/tensor.hpp>") == 3 and ("wgmma.mma_async" in system) == hopper
    plain = conversation("rewrite", replace(request, params={}), shown, operator)[0]["content"]
    assert "cute/tensor" not in plain and ("wgmma.mma_async" in plain) == hopper
