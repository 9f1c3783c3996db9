"""Facts from the PTX of a kernel: traits for the archive's cells, and what is refused before anything runs."""

from __future__ import annotations

import pytest

from fitness.cuda.compile.build import CudaBuild, code_digest, compile_cuda, read_ptxas_log, scrub_log
from fitness.cuda.compile.ptx import lower_precision, rare, traits, written
from fitness.evaluation import Rejection, Status
from fitness.words import CLOCK, HELD_ADDRESS, OWN_ADDRESS, PLACE
from operators.catalog import load
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.gpu.kernels import FEATURES, REJECTED, ROWS, SOFTMAX

pytestmark = pytest.mark.usefixtures("headers")


def built(name: str, source: str, dtype: str = "fp32") -> CudaBuild:
    result = compile_cuda(Kernel(name, "cuda", source), load(name), dtype)
    assert isinstance(result, CudaBuild), result
    return result


CELLS = {
    "two launches": ("vector", "fma", "block"),
    "cluster": ("scalar", "fma", "cluster"),
    "doubling": ("scalar", "fma", "none"),
    "cooperative": ("scalar", "fma", "grid"),
    "tensor map": ("tma", "fma", "block"),
    "overlap": ("scalar", "fma", "warp"),
}


@pytest.mark.parametrize("dtype", some_slow(["fp32", "bf16"], 1))
@pytest.mark.parametrize(
    ("name", "feature"), some_slow([(name, f) for name, kernels in FEATURES.items() for f in kernels], 3)
)
def test_cells_follow_from_the_code(name: str, feature: str, dtype: str) -> None:
    assert built(name, FEATURES[name][feature], dtype).cell[:3] == CELLS[feature]


def test_tensor_cores_async_copies_and_atomics_are_seen() -> None:
    body = """
    __shared__ alignas(16) float tile[256];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(tile)), "l"(in));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    unsigned a = __float_as_uint(tile[0]);
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                 : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3) : "r"(a));
    atomicAdd(out, d0 + d1 + d2 + d3);
}
"""
    build = built("softmax", ROWS + body)
    assert build.cell[:2] == ("async", "tensor")
    assert build.facts["atomics"]
    assert not built("softmax", SOFTMAX).facts["atomics"]


MMA = """
    unsigned a = __float_as_uint(in[0]);
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    asm volatile("mma.sync.aligned.%s "
                 "{%%0,%%1,%%2,%%3}, {%%4,%%4,%%4,%%4}, {%%4,%%4}, {%%0,%%1,%%2,%%3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a));
    out[0] = store(d0);
}
"""


@pytest.mark.parametrize(
    ("instruction", "dtype", "said"),
    [
        ("m16n8k8.row.col.f32.tf32.tf32.f32", "fp32", "tf32 tensor cores"),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", "fp32", "bf16 tensor cores"),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", "none"),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "bf16", "e4m3 tensor cores"),
    ],
)
def test_products_in_a_lower_precision_than_the_tasks_are_named(instruction: str, dtype: str, said: str) -> None:
    facts = built("softmax", ROWS + MMA % instruction, dtype).facts
    assert facts["lower_precision"] == said
    assert facts["tensor_instructions"] > 0


def test_wmma_without_operand_types_multiplies_halves_and_narrow_arithmetic_is_seen() -> None:
    ptx = ".entry f()\n{\n wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%f2};\n fma.rn.bf16x2 %r1, %r2;\n}\n"
    assert lower_precision(traits(ptx), "fp32") == ("f16 tensor cores", "bf16 arithmetic")
    assert lower_precision(traits(ptx), "bf16") == ()


TOGETHER = ROWS.replace('kernel = "f"', 'kernel = "f"\ncooperative = true')
READS = (
    ("%globaltimer", CLOCK), ("%clock64", CLOCK), ("%pm0_64", CLOCK), ("%gridid", PLACE), ("%envreg1", PLACE),
    ("%smid", PLACE), ("%warpid", PLACE), ("%tid.x", ""), ("%laneid", ""), ("%nctaid.y", ""),
)  # fmt: skip


@pytest.mark.parametrize(("register", "reason"), READS)
def test_clocks_and_numbers_of_places_are_flagged(register: str, reason: str) -> None:
    bits = 64 if register in ("%globaltimer", "%clock64", "%pm0_64", "%gridid") else 32
    letter, kind = {64: ("l", "unsigned long long"), 32: ("r", "unsigned")}[bits]
    asks = f'asm volatile("mov.u{bits} %0, {register};" : "={letter}"(now));'
    read = f"    {kind} now; {asks} out[0] = store((ACC)now);\n}}\n"
    assert built("softmax", TOGETHER + read).facts["flagged"] == [reason] * bool(reason)


def test_only_a_cooperative_launch_may_ask_for_its_barrier() -> None:
    source = ROWS.replace('extern "C"', COOPERATIVE + 'extern "C"') + "    cg::this_grid().sync();\n}\n"
    found = compile_cuda(Kernel("softmax", "cuda", source), load("softmax"), "fp32")
    assert isinstance(found, Rejection) and found.status is Status.INVALID
    assert "add `cooperative = true` to the [[launch]]" in found.message


def test_a_function_is_called_by_its_address_and_not_reckoned_with() -> None:
    called = "mov.u64 %rd1, twice;\n call (r), %rd1, (p), proto;\n"
    unit = ".func (.param .b32 r) twice(.param .b32 p)\n{{\n ret;\n}}\n.entry f()\n{{\n {} ret;\n}}\n"
    assert rare(unit.format(called)).flagged == ()
    for use in (
        "and.b64 %rd2, %rd1, 255;",
        "st.global.u64 [%rd9], %rd1;",
        "ld.u32 %r1, [%rd1];",
        "setp.lt.u64 %p1, %rd1, 7;",
    ):
        assert rare(unit.format(f"mov.u64 %rd1, twice;\n {use}\n")).flagged == (OWN_ADDRESS,)


COOPERATIVE = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
BARRIER = """    __shared__ cuda::barrier<cuda::thread_scope_block> all;
    init(&all, blockDim.x);
    all.arrive_and_wait();
    out[threadIdx.x] = in[threadIdx.x];
"""
CHRONO = "    out[0] = store((ACC)cuda::std::chrono::high_resolution_clock::now().time_since_epoch().count());\n"


@pytest.mark.parametrize(
    ("before", "body", "reasons", "uncommon"),
    some_slow([
        ("", "    __shared__ float tile[10000];\n    tile[threadIdx.x] = 1;\n    __syncthreads();\n    "
         "out[threadIdx.x] = store((ACC)tile[threadIdx.x ^ 1]);\n", [], "none"),
        ("", "    ((float*)0x7f0000000000ull)[threadIdx.x] = 1;\n", [HELD_ADDRESS], "none"),
        ("", "    out[threadIdx.x] = in[threadIdx.x + 100000];\n", [], "none"),
        (COOPERATIVE, "    cg::this_grid().sync();\n", [], "none"),
        (COOPERATIVE, "    cg::this_grid().sync();\n    if (in == nullptr) __trap();\n", [], "trap"),
        ("#include <cuda/barrier>\n", BARRIER, [], "none"),
        ("#include <cuda/barrier>\n", BARRIER + "    __nanosleep(20);\n", [], "sleep"),
        ("#include <cuda/std/chrono>\n", CHRONO, [CLOCK], "none"),
        ("#define WHEN clock64\n", "    out[0] = store((ACC)WHEN());\n", [CLOCK], "none"),
    ], 1),
)  # fmt: skip
def test_what_the_kernel_itself_does_is_flagged_and_neither_sizes_nor_what_headers_do(
    before: str, body: str, reasons: list[str], uncommon: str
) -> None:
    source = TOGETHER.replace('extern "C"', before + 'extern "C"') + body + "}\n"
    facts = built("softmax", source).facts
    assert (facts["flagged"], facts["uncommon"]) == (reasons, uncommon)


def test_machine_instructions_are_counted() -> None:
    facts = built("softmax", SOFTMAX).facts
    seen = {name for name, count in facts.items() if name.endswith("_instructions") and count}
    assert seen >= {f"{kind}_instructions" for kind in ("fp32", "special", "global", "shared", "barrier")}
    assert facts["tensor_instructions"] == facts["fp64_instructions"] == facts["fp16_instructions"] == 0


@pytest.mark.parametrize("case", sorted(REJECTED))
def test_state_between_calls_and_the_devices_runtime_are_refused(case: str) -> None:
    before, body, text = REJECTED[case]
    source = TOGETHER.replace('extern "C"', before + 'extern "C"') + body + "}\n"
    result = compile_cuda(Kernel("softmax", "cuda", source), load("softmax"), "fp32")
    assert isinstance(result, Rejection)
    assert (result.status, text in result.message) == (Status.INVALID, True)


def test_variables_that_nobody_uses_and_constant_tables_are_fine() -> None:
    before = "__device__ float unused[4];\n__constant__ float table[2] = {1, 2};\n"
    built("softmax", SOFTMAX.replace('extern "C"', before + 'extern "C"').replace("/ sum", "/ (sum * table[0])"))


def test_braces_of_initial_values_hold_no_code() -> None:
    ptx = """
.global .align 4 .b8 kept[8] = {1, 2};
.visible .entry f(.param .u64 a)
{
    { ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]; }
    ret;
}
.global .align 4 .b8 more[8] =
{ ld.global.v2.u64 {%f1, %f2}, [%rd1]; };
"""
    assert traits(ptx).access_bytes == 16
    assert not traits(ptx[: ptx.index(".visible")] + ptx[ptx.index(".global .align 4 .b8 more") :]).vectors


def test_the_digest_knows_code_and_plan_but_no_comments() -> None:
    def digest(source: str, resolved: str = "plan") -> str:
        return code_digest(built("softmax", source), resolved=resolved, dtype="fp32", device="a GPU")

    assert digest(SOFTMAX) == digest(SOFTMAX.replace("#include <cmath>", "// nothing new\n#include <cmath>"))
    assert digest(SOFTMAX) != digest(SOFTMAX.replace("d = 16", "d = 8"))
    assert digest(SOFTMAX) != digest(SOFTMAX, "another plan")


TRIGONOMETRY = ("sinf(1e9f * x[0])", "cos(1e9 * x[0])", "sinpi(1e3 * x[0]) + tanf(x[1])", "j0f(x[0]) + y1f(x[1])")


@pytest.mark.parametrize("value", TRIGONOMETRY)
def test_the_tables_of_trigonometric_functions_are_nobodys_memory(value: str) -> None:
    built("softmax", f"{ROWS} out[threadIdx.x] = store((ACC)({value.replace('x[', 'in[')})); }}")


ADDRESS = 0x7F0000000000
LITERALS = {
    "hexadecimal": (f"{ADDRESS:#x}", True), "unsigned": (f"{ADDRESS:#X}U", True), "decimal": (f"{ADDRESS}", True),
    "octal": (f"0{ADDRESS:o}", True), "binary": (f"{ADDRESS:#b}", True), "a small octal": ("0777", False),
    "zero": ("0", False), "no number at all": ("0899", False), "as long as a log": ("9" * 5000, False),
    "long and octal": ("0" + "7" * 5000, False),
}  # fmt: skip


@pytest.mark.parametrize("name", LITERALS)
def test_an_address_is_one_in_every_notation_and_no_number_is_an_error(name: str) -> None:
    literal, is_address = LITERALS[name]
    ptx = f".visible .entry f() {{ mov.b64 %rd1, {literal}; st.global.u32 [%rd1], 0; ret; }}"
    assert (HELD_ADDRESS in rare(ptx).flagged) == is_address


def test_a_kernel_with_octal_literals_compiles() -> None:
    octal = 'asm volatile("{ .reg .b64 t; mov.b64 t, 0777; add.s64 t, t, 010; }");'
    built("softmax", f"{ROWS} {octal} out[threadIdx.x] = store(0); }}")


def test_numbers_of_a_log_have_a_limit() -> None:
    long = "9" * 5000
    stack = f"{long} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    log = f"Compiling entry function 'f' for 'sm_90'\n {stack}"
    assert read_ptxas_log(f"{log}\nUsed {long} registers, used {long} barriers, {long} bytes smem") == {}
    assert "without a message" in scrub_log(f"kernel.cu({long}): error: x", (), ())


def test_registers_of_one_function_are_not_those_of_another() -> None:
    ptx = """
.func a() { mov.u64 %rd1, table; ld.global.u32 %r1, [%rd1]; mov.u64 %rd2, 0x7f0000000000; ret; }
.func b(.param .b64 p) { ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 0; st.global.u32 [%rd2], 0; ret; }
"""
    assert written(ptx, {"table"}) is None
    assert rare(ptx).flagged == ()
    assert written(ptx.replace("[p];", "[p]; add.s64 %rd1, table, 8;"), {"table", "other"}) == "table"


@pytest.mark.parametrize(
    "hidden",
    [
        "// nanosleep.u32 1;\n", "/* nanosleep.u32 1; \n*/", '.pragma "; nanosleep.u32 1; ";', "nanosleep: ",
        "bra nanosleep;", "mov.b32 nanosleep, %clockwork;", '.pragma "a; // "; // nanosleep.u32 1;\n',
    ],
)  # fmt: skip
def test_words_that_are_no_instructions_are_none(hidden: str) -> None:
    ptx = f".visible .entry f() {{ {hidden} ret; }}"
    assert rare(ptx).uncommon == ()
    assert rare(ptx.replace("ret;", "/* // */ @!%p1 nanosleep .u32 1; ret;")).uncommon == ("sleep",)


def test_a_kernel_that_says_which_lines_it_comes_from_passes_for_no_header() -> None:
    body = '    asm volatile(".loc 1 1 1\\n nanosleep.u32 %0;" :: "r"(cols));\n    out[0] = in[0];\n}\n'
    assert built("softmax", ROWS + body).facts["uncommon"] == "sleep"
