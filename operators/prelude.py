"""The declarations that stand in front of every kernel file when it is compiled.

They give one source its element type, its accumulator type and its tunables. Everything but INFINITY, a macro in every
dialect, is a declaration: macros named T or N break the vendors' own headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from operators.definition.spec import Operator
from operators.dtypes import ACCUMULATOR, DTYPES, resolve_dtype
from operators.plan.reading import Plan

INT_MAX = 2**31 - 1
CUDA_HEADERS: Mapping[str, str] = {"bf16": "cuda_bf16.h", "fp16": "cuda_fp16.h"}
"""Headers that declare types which CUDA C++ does not know by itself."""
CUDA_LOAD: Mapping[str, str] = {"bf16": "__bfloat162float(value)", "fp16": "__half2float(value)"}
CUDA_STORE: Mapping[str, str] = {"bf16": "__float2bfloat16_rn(value)", "fp16": "__float2half_rn(value)"}
"""Conversions to and from the accumulator; a cast does for every other type."""

DEPENDENCE = (
    "#ifdef __CUDACC_RTC__",
    "__device__ __forceinline__ void cudaGridDependencySynchronize() {",
    '    asm volatile("griddepcontrol.wait;" ::: "memory");',
    "}",
    "__device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion() {",
    '    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");',
    "}",
    "#endif",
)
"""Functions that overlapping launches call; the header of CUDA that declares it needs one that NVRTC lacks."""

INFINITY = ("#ifndef INFINITY", "#define INFINITY __int_as_float(0x7f800000)", "#endif")
"""NVRTC has no <math.h>; headers that stand in for it ask whether it is there."""
TENSOR_MAP = (
    "struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };",
    "typedef struct CUtensorMap_st CUtensorMap;",
)

VECTOR_MATH: Mapping[str, int] = {"exp": 1, "log": 1, "sin": 1, "cos": 1, "pow": 2}
"""Functions, and how many arguments they take, whose vector variants every libmvec of x86-64 has (glibc 2.22)."""
NEWER_VECTOR_MATH: Mapping[str, int] = {
    "tanh": 1, "exp2": 1, "log2": 1, "expm1": 1, "log1p": 1, "erf": 1, "cbrt": 1, "sinh": 1, "cosh": 1, "atan": 1,
    "atan2": 2, "hypot": 2,
}  # fmt: skip
"""The same since glibc 2.35."""


def prelude(operator: Operator, plan: Plan, *, target: str, dtype: str, values: Mapping[str, int]) -> str:
    """The declarations for one task's dtype and one setting of the tunables (defaults filled in).

    Ends in a `#line` that makes the compiler count the kernel file's own lines. Raises PlanError for values that the
    plan does not declare. The kernel sees:

    - `T`, `ACC`: element and accumulator type;
    - `constexpr int NAME`: every tunable (`long long` where an int is too small);
    - `ACC load(T value)` and `T store(ACC value)`: conversions, rounding to nearest;
    - `INFINITY`;
    - on cuda, where launches overlap, `cudaGridDependencySynchronize` and `cudaTriggerProgrammaticLaunchCompletion`;
    - on cuda `CUtensorMap` and, where the task has them, the types of `<cuda_bf16.h>` and `<cuda_fp16.h>`;
    - on cpu `<math.h>`, with vector variants declared, so that `#pragma omp simd` loops call libmvec.
    """
    plan = plan.for_dtype(dtype)
    element, accumulator = DTYPES[dtype], DTYPES[ACCUMULATOR[dtype]]
    names = (element.cpp, accumulator.cpp) if target == "cpu" else (element.cuda, accumulator.cuda)
    lines = [
        *(_math() if target == "cpu" else _cuda_types(operator, plan, dtype)),
        f"using T = {names[0]};",
        f"using ACC = {names[1]};",
        *_conversions(target, dtype),
        *(_constant(name, value) for name, value in plan.settings(values).items()),
        "#line 1",
    ]
    return "\n".join(lines) + "\n"


def translation_unit(
    source: str, operator: Operator, plan: Plan, *, target: str, dtype: str, values: Mapping[str, int]
) -> str:
    """The text that the compiler gets: prelude and kernel file. Lines in its messages are the kernel file's."""
    return prelude(operator, plan, target=target, dtype=dtype, values=values) + source.removeprefix("\ufeff")


def _constant(name: str, value: int) -> str:
    return f"constexpr {'int' if abs(value) <= INT_MAX else 'long long'} {name} = {value};"


def _conversions(target: str, dtype: str) -> Iterable[str]:
    qualifiers = "static inline" if target == "cpu" else "__device__ __forceinline__"
    to_acc, to_t = "static_cast<ACC>(value)", "static_cast<T>(value)"
    if target == "cuda":
        to_acc, to_t = CUDA_LOAD.get(dtype, to_acc), CUDA_STORE.get(dtype, to_t)
    yield f"{qualifiers} ACC load(T value) {{ return {to_acc}; }}"
    yield f"{qualifiers} T store(ACC value) {{ return {to_t}; }}"


def _cuda_types(operator: Operator, plan: Plan, dtype: str) -> Iterable[str]:
    declared = ["T", "ACC", *(buffer.dtype for buffer in plan.buffers)]
    declared += [tensor.dtype for tensor in operator.tensors]
    declared += [scalar.dtype for scalar in operator.scalars]
    used = {resolve_dtype(name, dtype).name for name in declared}
    for name, header in CUDA_HEADERS.items():
        if name in used:
            yield f"#include <{header}>"
    yield from INFINITY
    yield from TENSOR_MAP
    if any(launch.overlap for launch in plan.launches):
        yield from DEPENDENCE


def _math() -> Iterable[str]:
    """glibc declares its vector variants under -ffast-math only; the functions themselves do not need it."""
    yield "#include <math.h>"
    yield "#if defined __x86_64__ && defined __GLIBC__"
    yield 'extern "C" {'
    yield from _vector_variants(VECTOR_MATH)
    yield "#if __GLIBC_PREREQ(2, 35)"
    yield from _vector_variants(NEWER_VECTOR_MATH)
    yield "#endif"
    yield "}"
    yield "#endif"


def _vector_variants(functions: Mapping[str, int]) -> Iterable[str]:
    for name, count in functions.items():
        for suffix, number in (("f", "float"), ("", "double")):
            yield "#pragma omp declare simd notinbranch"
            yield f"{number} {name}{suffix}({', '.join([number] * count)}) noexcept;"
