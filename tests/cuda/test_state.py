"""Facts from a cubin on memory that could outlive a call, and on memory that must not be mistaken for it."""

from __future__ import annotations

import struct
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.compile.cubin import CubinError, read_cubin
from fitness.cuda.compile.nvrtc import Compiled, CompileJob, compile_here, include_folders
from fitness.cuda.compile.state import PROBE, PROBE_KERNELS, Reference, detached, objection, reference, tables
from operators.catalog import load
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.gpu.canaries import gelu
from tests.gpu.kernels import ROWS

pytestmark = pytest.mark.usefixtures("headers")


@cache
def compiled(source: str, arch: str = "sm_90a") -> Compiled:
    made = compile_here(CompileJob(source, ("f",), arch, tuple(map(str, include_folders()))))
    assert made.cubin, made.log
    return made


@cache
def known(arch: str = "sm_90a") -> Reference:
    made = compile_here(CompileJob(PROBE, PROBE_KERNELS, arch, tuple(map(str, include_folders()))))
    return reference(read_cubin(made.cubin))


def problem(source: str, arch: str = "sm_90a") -> str | None:
    return objection(read_cubin(compiled(source, arch).cubin), known(arch))


def kernel(body: str, before: str = "") -> str:
    return f'{before}\nextern "C" __global__ void f(int* y, int n, float* z) {{ {body} }}'


SCOPE = kernel(
    'int o; asm volatile("{ .global .u32 hid; ld.global.u32 %0, [hid]; st.global.u32 [hid], 1; }" : "=r"(o)); y[0] = o;'
)
WINDOW = kernel(
    'int* a; asm volatile("{ .reg .u64 t; mov.u64 t, table; cvta.const.u64 %0, t; }" : "=l"(a)); '
    "*(volatile int*)a = n;",
    "__constant__ int table[8];",
)
PARAMETER = (
    'unsigned long long a; asm volatile("{ .reg .u64 t; mov.u64 t, f_param_1; cvta.param.u64 %0, t; }" : "=l"(a)); '
)
"""Takes the address of a kernel's second parameter."""
ARCHS = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")


@pytest.mark.parametrize("arch", some_slow(ARCHS, 2))
def test_variables_and_addresses_of_constants_are_seen_on_every_architecture(arch: str) -> None:
    assert "hid" in str(problem(SCOPE, arch))
    assert "address of a __constant__ variable" in str(problem(WINDOW, arch))
    assert "address of a parameter" in str(problem(kernel(f"{PARAMETER} *(volatile int*)(a + 64) = n;"), arch))
    assert "`kept`" in str(problem(kernel("y[0] = kept; kept = n;", "__device__ int kept;"), arch))
    assert problem(kernel("y[n] = n; z[0] = sinf(z[1]);", "__device__ int kept;"), arch) is None


CLUSTER = kernel('asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(y[0]));')
CHANGES = {"another register": 2, "another special register": 9, "another factor": 16 + 4, "a predicate": 1}
"""Changed byte of the instructions that choose a word of the driver's."""


def test_a_word_on_the_cluster_that_ptxas_looks_up_itself_is_no_parameter_that_is_computed() -> None:
    assert problem(CLUSTER, "sm_100a") is None
    code = compiled(CLUSTER, "sm_100a").cubin
    start = next(
        at for at in range(0, len(code), 16)
        if int.from_bytes(code[at : at + 2], "little") & 0xFFF == 0x805 and code[at + 9] == 0x8A
    )  # fmt: skip
    for what, place in CHANGES.items():
        forged = bytearray(code)
        forged[start + place] ^= 0x10
        assert "computes which" in str(objection(read_cubin(bytes(forged)), known("sm_100a"))), what


HONEST = {
    "a table indexed dynamically": kernel("y[0] = table[n & 7];", "__constant__ int table[8];"),
    "a table through a pointer": kernel(
        "y[0] = sum(table, n) + sum(other + 1, n);",
        "__constant__ int table[8], other[8];\n"
        "__device__ int sum(const int* p, int n) { int s = 0; for (int k = 0; k < (n & 7); k++) s += p[k]; return s; }",
    ),
    "one of two tables": kernel(
        "const int* p = n > 3 ? table : other; y[0] = p[n & 7];", "__constant__ int table[8], other[8];"
    ),
    "functions in a table": kernel(
        "y[0] = (n & 1 ? one : two)(n);",
        "__device__ __noinline__ int one(int x) { return x + 1; }\n"
        "__device__ __noinline__ int two(int x) { return x * 3; }",
    ),
    "a switch": kernel(
        "switch (n) { case 0: y[1] = 4; break; case 1: y[2] = 5; break; case 2: y[7]++; break; case 3: y[1] = n; "
        "break; case 4: y[0] = 9; break; case 5: y[5] = y[6]; break; case 6: y[9] *= 3; break; case 7: y[8] /= n; }"
    ),
    "local arrays": kernel("int a[100]; for (int k = 0; k < 100; k++) a[(k * n) % 100] = k; y[0] = a[n];"),
    "a local table": kernel("const int t[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3}; y[0] = t[n];"),
    "recursion": kernel(
        "y[0] = fib(n);", "__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }"
    ),
    "a table of the device": kernel("y[0] = table[n];", "__device__ const int table[4] = {1, 2, 3, 4};"),
    "a table of a function": kernel("static constexpr float t[3] = {1, 2, 4}; z[0] = t[n] + t[n + 1];"),
    "a table of the library's name": kernel(
        "y[0] = __cudart_i2opi_f[n];", 'extern "C" { __device__ unsigned __cudart_i2opi_f[6] = {1, 2, 3}; }'
    ),
    "static shared memory": kernel(
        "static __shared__ int s[64]; __shared__ int t[64]; s[n] = t[n]; __syncthreads(); y[0] = s[5]; "
        "int* p = n ? s : y; *p = n;"
    ),
    "large arguments": kernel("z[0] = sinf(z[1]) + cosf(z[2]) + tanf(z[3]); ((double*)z)[9] = sin(((double*)z)[8]);"),
    "division and logarithms": kernel(
        "((double*)z)[0] = ((double*)z)[1] / ((double*)z)[2]; z[3] = lgammaf(z[4]) * powf(z[5], z[6]);"
    ),
    "cooperative groups": kernel(
        "cooperative_groups::this_grid().sync(); auto t = cooperative_groups::tiled_partition<32>("
        "cooperative_groups::this_thread_block()); "
        "y[0] = cooperative_groups::reduce(t, n, cooperative_groups::plus<int>());",
        "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>",
    ),
    "CUB": kernel(
        "using R = cub::BlockReduce<int, 128>; __shared__ R::TempStorage t; y[0] = R(t).Sum(y[threadIdx.x]);",
        "#include <cub/block/block_reduce.cuh>",
    ),
    "barriers": kernel(
        "__shared__ cuda::barrier<cuda::thread_scope_block> b; if (!threadIdx.x) init(&b, 32); __syncthreads(); "
        "b.arrive_and_wait(); y[0] = n;",
        "#include <cuda/barrier>",
    ),
}  # fmt: skip


DESCRIPTOR = """
struct alignas(64) CUtensorMap { unsigned long long words[16]; };
extern "C" __global__ void f(const CUtensorMap* map, int* y) {
    __shared__ alignas(128) int tile[64];
    const unsigned to = __cvta_generic_to_shared(tile);
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];"
                 ::"l"(map), "r"(0), "r"(to) : "memory");
    y[0] = 1;
}"""


@pytest.mark.parametrize("arch", ARCHS[3:])
def test_a_tensor_map_is_used_through_a_pointer_and_by_no_address_among_the_parameters(arch: str) -> None:
    assert problem(DESCRIPTOR, arch) is None
    by_value = DESCRIPTOR.replace("const CUtensorMap* map", "const __grid_constant__ CUtensorMap map")
    assert "address of a parameter" in str(problem(by_value.replace('"l"(map)', '"l"(&map)'), arch))


def test_a_kernel_of_a_tensor_map_allows_nothing_beside_it() -> None:
    beside = kernel(f"{PARAMETER} *(volatile int*)(a + 64) = n;").replace(" f(", " g(").replace("f_param", "g_param")
    made = compile_here(CompileJob(DESCRIPTOR + beside, ("f", "g"), "sm_90a", tuple(map(str, include_folders()))))
    assert "address of a parameter" in str(objection(read_cubin(made.cubin), known()))


@pytest.mark.parametrize("name", some_slow(HONEST, 3))
def test_what_honest_kernels_use_is_nobodys_memory(name: str) -> None:
    assert problem(HONEST[name]) is None


REFUSED = {
    "of a scope": (SCOPE, "hid"),
    "two scopes down": (
        kernel('asm volatile("{ { .global .align 8 .b8 hid[64]; red.global.add.u32 [hid+8], 1; } }");'), "hid"
    ),
    "behind a comment": (
        kernel('asm volatile("{ /* // */ .global .u32 hid; st.global.u32 [hid], 1; }");'), "hid"
    ),
    "in a comment that lines end": (
        kernel('asm volatile("// \\n { .global .u32 hid; /* \\n // */ st.global.u32 [hid], 1; }");'), "hid"
    ),
    "by a constant": (
        kernel("*where = n;", "__device__ int kept; __constant__ int* where = &kept;"), "kept"
    ),
    "by a constant of the middle": (
        kernel("*where[n & 1] = n;", "__device__ int kept[9]; __constant__ int* where[2] = {kept + 3, kept};"), "kept"
    ),
    "static of a function": (kernel("static int calls; y[0] = calls++;"), "calls"),
    "that is empty at first": (kernel("y[0] = table[n];", "__device__ const int table[4] = {};"), "table"),
    "with addresses": (
        kernel(
            "y[0] = *rows[n];", "__device__ int one = 1, two = 2; __device__ int* const rows[3] = {&one, &two, &one};"
        ),
        "rows",
    ),
    "with a middle that has a name": (
        kernel("y[n] = *table[2 + n];", "__device__ int kept[2]; __device__ int* table[4] = {0, 0, kept, 0};"), "table"
    ),
    "a constant by its generic address": (WINDOW, "address"),
    "a constant or the output": (
        kernel("volatile int* p = n ? y : (int*)table; *p = n;", "__constant__ int table[8];"), "address"
    ),
    "a constant by another": (
        kernel("*where = n; y[0] = table[n & 7];", "__constant__ int table[8]; __constant__ int* where = (int*)table;"),
        "address",
    ),
    "words in front of the parameters": (
        'struct Many { int a[16]; };\n'
        'extern "C" __global__ void f(int* y, int n, const __grid_constant__ Many many) { y[0] = many.a[n]; }',
        "computes which of its parameters",
    ),
    "a parameter by its address": (
        'extern "C" __global__ void f(int* y, const __grid_constant__ int n) { '
        "volatile int* p = (volatile int*)&n; y[0] = p[1]; p[1] = 777; }",
        "address of a parameter",
    ),
    "the driver's words by a parameter's address": (
        kernel(f"{PARAMETER} volatile int* p = *(int**)(a - 328); y[0] = p[n & 7]; p[n & 7] = 777;"),
        "address of a parameter",
    ),
    "malloc": (kernel("int* p = (int*)malloc(64); p[n] = 1; y[0] = p[n + 1]; free(p);"), "malloc|free"),
    "printf": (kernel('printf("%d", n);'), "vprintf"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_outlive_a_call_is_named(name: str) -> None:
    source, says = REFUSED[name]
    found = problem(source)
    assert found
    assert any(word in found for word in says.split("|")), found


def test_tables_of_the_library_are_read_from_memory_that_cannot_be_written() -> None:
    """The loaded image refers to the module's own memory no more; its loader fills in other addresses."""
    code = compiled(HONEST["large arguments"]).cubin
    loaded, slots = detached(code, read_cubin(code))
    library = {"__cudart_i2opi_f", "__cudart_i2opi_d", "__cudart_sin_cos_coeffs"}
    assert tables(read_cubin(code)) == library
    assert not {r.symbol.name for r in read_cubin(loaded).relocations()} & library
    assert sorted(len(table.data) for table in slots) == [24, 128, 144]
    addresses = next(section for section in read_cubin(loaded).sections if section.name == ".nv.constant4")
    for table in slots:
        assert addresses.offset <= table.offset <= addresses.offset + addresses.size - 8
        assert struct.unpack_from("<Q", loaded, table.offset) == (0,)
    assert len(loaded) == len(code)


def test_a_build_is_detached_and_carries_its_tables() -> None:
    table = "static constexpr int t[2] = {3, 5};"
    body = f"{ROWS} {table} out[threadIdx.x] = store(t[cols & 1] * (ACC)sinf(1e9f * in[0])); }}"
    build = compile_cuda(Kernel("softmax", "cuda", body), load("softmax"), "fp32")
    assert isinstance(build, CudaBuild), build
    assert sorted(len(table.data) for table in build.tables) == [8, 24]
    assert struct.pack("<2i", 3, 5) in [table.data for table in build.tables]


@pytest.mark.parametrize("change", ["t[cols & 1]++;", "atomicAdd(t + 1, 2);", "int* p = t; p += rows; *p = 4;"])
def test_a_variable_with_an_initial_value_that_is_written_is_named(change: str) -> None:
    body = f"{ROWS} static int t[2] = {{3, 5}}; out[threadIdx.x] = store((ACC)t[cols & 1]); {change} }}"
    found = compile_cuda(Kernel("softmax", "cuda", body), load("softmax"), "fp32")
    assert "it writes to the __device__ variable" in getattr(found, "message", "")


def test_more_local_memory_than_can_be_cleared_is_refused() -> None:
    body = "int a[8192]; for (int k = 0; k < 8192; k++) a[(k * n) & 8191] = k; y[i] = store(right + ACC(a[n & 8191]));"
    found = compile_cuda(Kernel("gelu", "cuda", gelu(body)), load("gelu"), "fp32")
    assert "bytes of local memory per thread" in getattr(found, "message", "")


@given(st.integers(0, 2**32), st.sampled_from(["tables", "scope", "groups"]))
def test_broken_cubins_are_refused_or_judged(seed: int, which: str) -> None:
    sources = {"tables": HONEST["large arguments"], "scope": SCOPE, "groups": HONEST["a switch"]}
    code, rng = bytearray(compiled(sources[which]).cubin), Random(seed)
    for _ in range(rng.randint(1, 12)):
        code[rng.randrange(len(code))] = rng.randrange(256)
    try:
        cubin = read_cubin(bytes(code))
        objection(cubin, known())
        detached(bytes(code), cubin)
    except CubinError:
        pass
