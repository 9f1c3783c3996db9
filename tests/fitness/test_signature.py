"""A plan's arguments against the parameters of compiled kernels: the same rule on every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.cpu.build import CpuBuild, build
from fitness.cuda.compile import nvrtc
from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.judging.signature import Param, check_arguments
from operators.catalog import load
from operators.errors import UserError
from operators.kernel import Kernel
from operators.plan.reading import ResolvedPlan, parse_plan

OPERATOR = load("rms_norm")
DECLARED = """
struct Four { float v[4]; };
struct Odd { char v[3]; };
enum Color { RED };
"""
CASES: dict[str, tuple[str, str, str]] = {
    "elements": ("const float* p", "x", ""),
    "void": ("const void* p", "x", ""),
    "several at a time": ("const Four* p", "x", ""),
    "not a multiple": ("const Odd* p", "x", "has dtype fp32, the parameter points to a 24-bit structure"),
    "bytes": ("const unsigned char* p", "x", "has dtype fp32, the parameter points to a 8-bit integer"),
    "characters": ("char* p", "y", "has dtype fp32, the parameter points to a 8-bit integer"),
    "integers": ("const unsigned* p", "x", "has dtype fp32, the parameter points to a 32-bit integer"),
    "wider": ("const double* p", "x", "has dtype fp32, the parameter points to a 64-bit float"),
    "an enumeration": ("const Color* p", "x", "has dtype fp32, the parameter points to a 32-bit integer"),
    "not const": ("float* p", "x", "is an input, the parameter must point to const"),
    "a buffer": ("int* p", "part", ""),
    "a buffer without sign": ("unsigned* p", "part", ""),
    "a buffer of floats": ("float* p", "part", "has dtype int32, the parameter points to a 32-bit float"),
    "a buffer of longs": ("long long* p", "part", "has dtype int32, the parameter points to a 64-bit integer"),
    "bytes of bytes": ("unsigned char* p", "raw", ""),
    "floats of bytes": ("float* p", "raw", "has dtype uint8, the parameter points to a 32-bit float"),
    "a number for a tensor": ("float p", "x", "is a tensor, the parameter is a float, not a pointer"),
    "a structure for a buffer": ("Four p", "part", "is a buffer, the parameter is a structure, not a pointer"),
    "a dim": ("int p", "cols", ""),
    "a dim as a float": ("double p", "cols", ""),
    "a dim that is too large": ("unsigned char p", "2 * cols", "is 512, which does not fit into 8 bits"),
    "a pointer for a dim": ("const float* p", "cols", "is a number, the parameter is a pointer"),
    "a structure for a dim": ("Four p", "cols", "is a number, the parameter is a structure"),
    "a scalar": ("float p", "eps", ""),
    "a scalar as an integer": ("int p", "eps", "is a floating-point scalar, the parameter is an integer"),
}
"""A parameter, what the plan passes for it, and what is wrong with that."""
BUFFERS = "".join(
    f'[[buffer]]\nname = "{name}"\ndtype = "{dtype}"\nshape = ["rows"]\n'
    for name, dtype in (("part", "int32"), ("raw", "uint8"))
)

Refusal = Callable[[str], str]


def _source(target: str) -> str:
    """One launch, and one function, for each case, and one that takes a parameter less than it is given."""
    grid = 'grid = ["rows"]\nblock = [64]\n' if target == "cuda" else ""
    cases = {name: (param, argument) for name, (param, argument, _) in CASES.items()} | {"too few": ("", "x")}
    launches = "".join(
        f'[[launch]]\nkernel = "f{number}"\n{grid}args = ["{argument}"]\n'
        for number, (_, argument) in enumerate(cases.values())
    )
    head = 'extern "C" __global__ void' if target == "cuda" else "void"
    code = "".join(f"{head} f{number}({param}) {{}}\n" for number, (param, _) in enumerate(cases.values()))
    return f"/*! evo\n{BUFFERS}{launches}*/\n{DECLARED}{code}"


def _params(target: str, source: str, folder: Path) -> Mapping[str, tuple[Param, ...]]:
    kernel = Kernel(OPERATOR.name, target, source)
    if target == "cpu":
        plan = parse_plan(source, OPERATOR, "cpu")
        made = build(kernel, plan, OPERATOR, dtype="fp32", folder=folder, resolved="")
        assert isinstance(made, CpuBuild), made
        return made.params
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
    compiled = compile_cuda(kernel, OPERATOR, "fp32")
    assert isinstance(compiled, CudaBuild), compiled
    return compiled.params


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def refusal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Refusal:
    """The fault of a case on a target."""
    source = _source(request.param)
    params = _params(request.param, source, tmp_path_factory.mktemp("signature"))
    plan = parse_plan(source, OPERATOR, request.param)
    dims = {"rows": 7, "cols": 256}
    resolved: ResolvedPlan = plan.resolve(OPERATOR, dtype="fp32", dims=dims, values={}, facts={"sm_count": 1})

    def found(case: str) -> str:
        step = resolved.steps[[*CASES, "too few"].index(case)]
        return check_arguments(replace(resolved, steps=(step,)), params, OPERATOR, "fp32") or ""

    return found


@pytest.mark.parametrize("case", CASES)
def test_every_target_takes_the_same_arguments_for_a_parameter(refusal: Refusal, case: str) -> None:
    _, argument, problem = CASES[case]
    found = refusal(case)
    assert found.partition("(`")[2] == (f"{argument}`) {problem}" if problem else ""), found
    assert ": argument 1 (" in found or not found


def test_every_parameter_has_an_argument(refusal: Refusal) -> None:
    assert refusal("too few") == f"f{len(CASES)}() takes 0 parameters, the plan passes 1"


MAPS = {
    "const CUtensorMap* p": True,
    "const Words* p": True,
    "CUtensorMap* p": False,
    "const void* p": False,
    "const float* p": False,
    "const Four* p": False,
    "const CUtensorMap p": False,
    "const __grid_constant__ CUtensorMap p": False,
    "long long p": False,
}
"""Parameters, and whether a tensor map can be passed for them."""


def test_a_tensor_map_is_passed_by_a_pointer_to_what_is_constant() -> None:
    declared = '[[tensor_map]]\nname = "m"\ntensor = "x"\nshape = ["cols", "rows"]\nbox = [32, 1]\n'
    launches = "".join(
        f'[[launch]]\nkernel = "f{number}"\ngrid = ["rows"]\nblock = [64]\nargs = ["m"]\n'
        for number in range(len(MAPS))
    )
    code = "".join(f'extern "C" __global__ void f{number}({param}) {{}}\n' for number, param in enumerate(MAPS))
    source = f"/*! evo\n{declared}{launches}*/\n{DECLARED}struct alignas(64) Words {{ int w[32]; }};\n{code}"
    params = _params("cuda", source, Path())
    plan = parse_plan(source, OPERATOR, "cuda")
    resolved = plan.resolve(
        OPERATOR, dtype="fp32", dims={"rows": 7, "cols": 256}, values={}, facts={"sm_count": 1, "max_shared_bytes": 1}
    )
    told = [
        check_arguments(replace(resolved, steps=(step,)), params, OPERATOR, "fp32") or "" for step in resolved.steps
    ]
    assert [not each for each in told] == list(MAPS.values())
    refused = "is a tensor map, the parameter must be `const CUtensorMap*`"
    assert all(each.endswith(refused) for each in told if each)
