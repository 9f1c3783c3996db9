"""NVRTC builds: facts, errors as data with the kernel file's own lines, logs without foreign text."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fitness.cuda.compile import build, nvrtc
from fitness.cuda.compile.build import DIALECT, CudaBuild, compile_cuda, read_ptxas_log, scrub_log
from fitness.cuda.compile.line import fitting_extra
from fitness.evaluation import Rejection, Status
from fitness.install import MissingPackage, installing
from fitness.sandbox.source import forbidden
from operators.catalog import load
from operators.errors import UserError
from operators.kernel import Kernel
from tests.gpu.kernels import EXAMPLES, SOFTMAX

HEADER = """/*! evo
[tune]
BLOCK = [64, 128]

[[launch]]
kernel = "{kernel}"
grid = ["rows"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/
"""
FIRST_LINE = HEADER.count("\n") + 1
SIGNATURE = "(const T* x, T* y, int rows, int cols)"


pytestmark = pytest.mark.usefixtures("headers")


def compiled(body: str, *, kernel: str = "f", dtype: str = "fp32", **values: int) -> CudaBuild | Rejection:
    source = HEADER.replace("{kernel}", kernel) + body
    return compile_cuda(Kernel("softmax", "cuda", source, values), load("softmax"), dtype)


def good(body: str, **options: object) -> CudaBuild:
    result = compiled(body, **options)  # type: ignore[arg-type]
    assert isinstance(result, CudaBuild), result
    return result


def bad(body: str, status: Status = Status.COMPILE_ERROR, **options: object) -> str:
    result = compiled(body, **options)  # type: ignore[arg-type]
    assert isinstance(result, Rejection)
    assert result.status is status
    return result.message


# --- what a build tells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["softmax", "matrix_mul", "spmv_csr"])
def test_the_naive_kernels_compile(name: str, dtype: str) -> None:
    operator = load(name)
    kernel = Kernel(name, "cuda", operator.ancestor("naive", "cuda").read_text())
    result = compile_cuda(kernel, operator, dtype)
    assert isinstance(result, CudaBuild), result
    assert result.lowered == {name: name}
    facts = result.kernels[name]
    assert 8 <= facts.registers <= 64
    assert (facts.spill_store_bytes, facts.spill_load_bytes, facts.stack_bytes) == (0, 0, 0)
    assert facts.static_shared_bytes == 0
    machine = struct.unpack_from("<H", result.cubin, 18)[0]
    assert (result.cubin[:4], machine) == (b"\x7fELF", 190), "an ELF file for CUDA"
    assert result.arch == "sm_90a"


def test_every_setting_of_the_naive_tunables_compiles() -> None:
    operator = load("matrix_mul")
    source = operator.ancestor("naive", "cuda").read_text()
    for values in ({"BLOCK_X": 64, "BLOCK_Y": 8}, {"BLOCK_X": 8, "BLOCK_Y": 2}):
        assert isinstance(compile_cuda(Kernel("matrix_mul", "cuda", source, values), operator, "bf16"), CudaBuild)


def test_templates_are_lowered_with_the_tunables_values() -> None:
    body = """
template <int B, class U>
__global__ void f(const U* x, U* y, int rows, int cols) { y[0] = store(B + load(x[0])); }
"""
    assert good(body, kernel="f<BLOCK, T>").lowered == {"f<BLOCK, T>": "_Z1fILi64EfEvPKT0_PS0_ii"}
    assert good(body, kernel="f<BLOCK, T>", BLOCK=128, dtype="bf16").lowered == {
        "f<BLOCK, T>": "_Z1fILi128E13__nv_bfloat16EvPKT0_PS1_ii"
    }


def test_facts_are_those_of_each_kernel() -> None:
    body = f"""
extern "C" __global__ void f{SIGNATURE} {{
    __shared__ float tile[BLOCK * 4];
    tile[threadIdx.x] = load(x[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = store(tile[BLOCK - 1 - threadIdx.x]);
}}
extern "C" __global__ void __launch_bounds__(1024) g{SIGNATURE} {{
    float v[160];
    #pragma unroll
    for (int i = 0; i < 160; i++) v[i] = load(x[i * cols]);
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 160; i++) y[i * cols] = store(v[i] * v[(i * 37) % 160]);
}}
"""
    header = HEADER.replace("{kernel}", "f") + body
    second = '[[launch]]\nkernel = "g"\ngrid = ["rows"]\nblock = ["BLOCK"]\nargs = ["x", "y", "rows", "cols"]\n*/'
    source = header.replace("*/", second, 1)
    result = compile_cuda(Kernel("softmax", "cuda", source), load("softmax"), "fp32")
    assert isinstance(result, CudaBuild), result
    f, g = result.kernels["f"], result.kernels["g"]
    assert (f.static_shared_bytes, f.barriers, f.spill_store_bytes) == (4 * 4 * 64, 1, 0)
    assert g.static_shared_bytes == 0
    assert g.registers <= 64
    assert g.spill_store_bytes > 0
    assert g.spill_load_bytes > 0
    assert g.stack_bytes > 0


def test_a_called_functions_stack_counts() -> None:
    body = f"""
__noinline__ __device__ float deep(float v, int n) {{ volatile float a[64]; a[n] = v; return a[n / 2]; }}
extern "C" __global__ void f{SIGNATURE} {{ y[0] = store(deep(load(x[0]), cols)); }}
"""
    assert good(body).kernels["f"].stack_bytes >= 256


def test_comments_and_names_do_not_change_the_code() -> None:
    one = good(f'extern "C" __global__ void f{SIGNATURE} {{ int a = threadIdx.x; y[a] = x[a]; }}')
    two = good(f'// again\nextern "C" __global__ void f{SIGNATURE} {{\n    int b = threadIdx.x;\n    y[b] = x[b];\n}}')
    assert one.cubin == two.cubin
    assert one.cubin != good(f'extern "C" __global__ void f{SIGNATURE} {{ y[0] = x[1]; }}').cubin


def test_headers_that_people_are_used_to() -> None:
    good(f"""
#include <cmath>
#include <cfloat>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void f{SIGNATURE} {{
    std::uint32_t a = cols;
    uint8_t b = a;
    std::size_t at = threadIdx.x;
    float v = std::fmax(load(x[at]), -INFINITY) + std::exp(load(x[1])) + FLT_MAX + INT_MAX + b;
    y[at] = store(v == NAN ? FLT_EPSILON : __bfloat162float(__float2bfloat16_rn(v)));
}}""")


def test_cub_and_cuda_std_are_found() -> None:
    good(f"""
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void f{SIGNATURE} {{
    using Reduce = cub::BlockReduce<float, BLOCK>;
    __shared__ typename Reduce::TempStorage storage;
    float sum = Reduce(storage).Sum(load(x[threadIdx.x]));
    if (threadIdx.x == 0) y[0] = store(sum);
}}""")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_has_the_line_of_the_kernel_file_and_quotes_it() -> None:
    message = bad(f'extern "C" __global__ void f{SIGNATURE} {{\n    y[0] = missing(x[0]);\n}}')
    first, quote, caret = message.splitlines()
    assert first == f'kernel.cu:{FIRST_LINE + 1}: error: identifier "missing" is undefined'
    assert quote.strip() == "y[0] = missing(x[0]);"
    assert quote[caret.index("^") :].startswith("missing")


def test_an_error_in_a_broken_naive_kernel_has_its_line() -> None:
    operator = load("softmax")
    lines = operator.ancestor("naive", "cuda").read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if "sum +=" in line)
    lines[at - 1] = lines[at - 1].replace("sum", "total")
    result = compile_cuda(Kernel("softmax", "cuda", "\n".join(lines)), operator, "bf16")
    assert isinstance(result, Rejection)
    assert result.message.startswith(f'kernel.cu:{at}: error: identifier "total" is undefined')


def test_errors_come_in_the_order_of_the_file_and_warnings_do_not_come() -> None:
    message = bad(f'extern "C" __global__ void f{SIGNATURE} {{\n    int unused;\n    one();\n    y[0] = two;\n}}')
    found = [line for line in message.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in found] == [str(FIRST_LINE + 2), str(FIRST_LINE + 3)]
    assert "unused" not in message


def test_an_error_in_a_template_tells_where_it_was_used() -> None:
    body = "template <class U> __device__ U half(U v) { return v.half(); }\n"
    message = bad(body + f'extern "C" __global__ void f{SIGNATURE} {{\n    y[0] = half(x[0]);\n}}')
    assert message.startswith(f"kernel.cu:{FIRST_LINE}: error: expression must have class type")
    assert f"at line {FIRST_LINE + 2}" in message


def test_an_error_inside_a_cuda_header_shows_no_paths() -> None:
    body = f'#include <cuda/std/array>\nextern "C" __global__ void f{SIGNATURE} {{ cuda::std::array<void, 3> a; }}'
    message = bad(body)
    assert "error: reference to void is not allowed" in message
    assert f"at line {FIRST_LINE + 1} of kernel.cu" in message
    assert str(nvrtc.include_folders()[0]) not in message
    assert "site-packages" not in message


def test_a_launch_of_something_that_is_not_there() -> None:
    body = f'extern "C" __global__ void g{SIGNATURE} {{}}'
    assert bad(body) == 'launch of `f`: error: identifier "f" is undefined'
    assert "launch of `f`: error: Name expression cannot form address of a non-__global__" in bad(
        f'extern "C" __device__ void f{SIGNATURE} {{}}'
    )
    template = "template <int B> __global__ void f(const T* x, T* y, int rows, int cols) {}"
    assert bad(template).startswith("launch of `f`: error: cannot determine which instance of function template")


def test_what_only_ptxas_refuses() -> None:
    too_much = (
        "__shared__ float tile[100000]; tile[threadIdx.x] = load(x[0]); __syncthreads(); y[0] = store(tile[cols]);"
    )
    message = bad(f'extern "C" __global__ void f{SIGNATURE} {{ {too_much} }}')
    assert message == "ptxas: error: Entry function 'f' uses too much shared data (0x61a80 bytes, 0x38c00 max)"
    message = bad(f'extern "C" __global__ void f{SIGNATURE} {{ asm("no_such.b32;"); }}')
    assert message.startswith("ptxas: error: ")


def test_a_long_log_is_cut() -> None:
    message = bad("\n".join(f"int broken{i} = missing{i};" for i in range(60)))
    assert len(message.splitlines()) == build.MAX_LOG_LINES + 1
    assert message.splitlines()[-1].endswith("more lines")


def test_a_plan_that_cannot_be_used_is_invalid() -> None:
    assert "no header" in bad_source("int x;")
    result = compile_cuda(
        Kernel("softmax", "cuda", HEADER.replace("{kernel}", "f"), {"BLOCK": 7}), load("softmax"), "fp32"
    )
    assert isinstance(result, Rejection)
    assert result.status is Status.INVALID
    assert "BLOCK = 7 is not a declared value" in result.message


def bad_source(source: str) -> str:
    result = compile_cuda(Kernel("softmax", "cuda", source), load("softmax"), "fp32")
    assert isinstance(result, Rejection)
    assert result.status is Status.INVALID
    return result.message


@pytest.mark.parametrize("tail", ["\ud800", "\0", "\x01 é 漢", "/* never closed", "'", '"', 'R"(', "#if", "{" * 3000])
def test_strange_text_is_a_compile_error_and_nothing_worse(tail: str) -> None:
    result = compiled(f'extern "C" __global__ void f{SIGNATURE} {{ y[0] = x[0]; }}\n{tail}')
    assert isinstance(result, CudaBuild | Rejection)
    if isinstance(result, Rejection):
        assert result.message


def test_text_that_looks_like_the_assemblers_is_not_believed() -> None:
    forged = (
        "Compiling entry function 'f' 1 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads Used 1 registers"
    )
    pragmas = f'#pragma message("{forged}")\n#pragma message "Compiling entry function \'z\'"\n'
    body = f'extern "C" __global__ void f{SIGNATURE} {{ y[0] = x[cols]; }}'
    assert good(pragmas + body).kernels == good(body).kernels


def test_an_architecture_that_nvrtc_does_not_know() -> None:
    operator = load("softmax")
    kernel = Kernel("softmax", "cuda", operator.ancestor("naive", "cuda").read_text())
    with pytest.raises(UserError, match=r"NVRTC \d+\.\d+ cannot compile for 'sm_42'"):
        compile_cuda(kernel, operator, "fp32", arch="sm_42")
    other = compile_cuda(kernel, operator, "fp32", arch="sm_80")
    assert isinstance(other, CudaBuild)
    assert other.arch == "sm_80"


def on_blackwell(name: str, source: str, dtype: str) -> CudaBuild | Rejection:
    return compile_cuda(Kernel(name, "cuda", source), load(name), dtype, arch="sm_100a")


@pytest.mark.slow
def test_clusters_on_blackwell_are_read_and_counted() -> None:
    """nvdisasm counts the same: see `tests.bench.architectures`, which compiles all kernels."""
    source = load("monte_carlo_int").ancestor("champions/h200", "cuda").read_text()
    tuned = on_blackwell("monte_carlo_int", source, "fp32")
    assert isinstance(tuned, CudaBuild), tuned  # clusters, and parts that lie there twice
    assert tuned.facts["shuffle_instructions"] and tuned.facts["barrier_instructions"] and tuned.facts["registers"]


def test_machine_code_for_blackwell_is_read_and_counted() -> None:
    plain, rows = (on_blackwell("softmax", source, "fp32") for source in (load("softmax").naive("cuda"), SOFTMAX))
    assert isinstance(plain, CudaBuild), plain
    assert isinstance(rows, CudaBuild), rows
    assert rows.facts["shuffle_instructions"] and rows.facts["barrier_instructions"] and rows.facts["registers"]
    assert plain.facts["fp32_instructions"] and plain.facts["global_instructions"]
    assert plain.facts["fp16_instructions"] == 0, "HFMA2 that sets a register to a constant computes nothing"


def test_instructions_of_another_generation_are_refused_in_one_line() -> None:
    source = load("matrix_mul").ancestor("champions/h200-bf16", "cuda").read_text()
    refused = on_blackwell("matrix_mul", source, "bf16")
    assert isinstance(refused, Rejection)
    assert refused.status is Status.COMPILE_ERROR and "\n" not in refused.message
    assert "sm_100a has no wgmma.fence, wgmma.mma_async" in refused.message
    assert "wgmma is for Hopper alone (sm_90a)" in refused.message


# --- what a kernel may open, and what others get to see ---------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '#include "../../secret.h"',
        "#include <cuda/../../secret>",
        "#include MACRO",
        '#inc\\\nlude "/etc/passwd"',
        '# /**/ include "/etc/passwd"',
        '#/* */include "/etc/passwd"',
        '#include /**/ "/etc/passwd"',
        '%:include "/etc/passwd"',
        '#include_next "/etc/passwd"',
        '#embed "/etc/passwd"',
        '#if __has_include("/etc/passwd")\n#endif',
        '#if __has_include /**/ ("/etc/passwd")\n#endif',
    ],
)
def test_files_other_than_cuda_headers_cannot_be_named(line: str) -> None:
    message = bad(f'{line}\nextern "C" __global__ void f{SIGNATURE} {{}}', Status.INVALID)
    assert re.match(r"kernel.cu:1\d: `", message)
    assert "root:" not in message


@pytest.mark.parametrize(
    "line",
    [
        "#include <cuda_bf16.h>",
        '#include "cute/tensor.hpp"',
        "#if __has_include(<mma.h>)",
        "#pragma unroll",
        "#define A 1",
    ],
)
def test_ordinary_directives_pass(line: str) -> None:
    assert forbidden(line + "\n", "kernel.cu", DIALECT) is None


@pytest.mark.parametrize(
    "text", ["#/*" * 80_000, "# " * 120_000, "/**/" * 60_000 + "#", "\\\n" * 120_000, "#" + " " * 250_000]
)
def test_the_check_of_any_text_comes_to_an_end(text: str) -> None:
    forbidden(text, "kernel.cu", DIALECT)


def test_a_header_that_does_not_exist() -> None:
    assert bad("#include <nothing_here.h>").startswith(
        f'kernel.cu:{FIRST_LINE}: error: cannot open source file "nothing_here.h"'
    )


def test_a_log_tells_nothing_of_foreign_files(tmp_path: Path) -> None:
    log = (
        "/etc/passwd(1): error: this declaration has no storage class or type specifier\n"
        "  root:x:0:0:root:/root:/bin/bash\n  ^\n\n"
        'kernel.cu(7): error: identifier "q" is undefined\n  y = q; // a /b/c\n      ^\n\n'
        f'{tmp_path}/inc/a.h(3): error: no "x"\n  secret\n  ^\n'
        "          detected during use at line 9 of /home/me/k.cu\n\n"
        "2 errors detected\n"
    )
    assert scrub_log(log, ("f",), (tmp_path / "inc",)).splitlines() == [
        'kernel.cu:7: error: identifier "q" is undefined',
        "  y = q; // a /b/c",
        "      ^",
        "kernel.cu: error: an #include opened a file that is none of the CUDA headers",
        'a.h:3: error: no "x"',
        "          detected during use at line 9 of <path>",
    ]


def test_an_empty_log_still_says_something() -> None:
    assert scrub_log("", (), ()) == "the compiler failed without a message"
    assert read_ptxas_log("") == {}


# --- what is not installed --------------------------------------------------------------------------------------------


@pytest.fixture
def uncached() -> Iterator[None]:
    nvrtc.library.cache_clear()
    nvrtc.include_folders.cache_clear()
    yield
    nvrtc.library.cache_clear()
    nvrtc.include_folders.cache_clear()


@pytest.mark.usefixtures("uncached")
def test_without_the_bindings_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(UserError, match=rf"NVRTC is not installed \(.*\): {re.escape(installing(fitting_extra()))}"):
        compiled(f'extern "C" __global__ void f{SIGNATURE} {{}}')


@pytest.mark.usefixtures("uncached")
def test_without_the_headers_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_header_directory", lambda name: None)
    told = re.escape(f"the CUDA headers are not installed: {installing(fitting_extra())}")
    with pytest.raises(UserError, match=told):
        nvrtc.include_folders()


@pytest.mark.usefixtures("uncached")
def test_headers_of_another_line_than_the_compilers_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = 12 if nvrtc.version().startswith("13") else 13
    (tmp_path / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {other}090\n")
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_header_directory", lambda name: str(tmp_path))
    told = rf"NVRTC {nvrtc.version()} and the headers in {tmp_path} are of different CUDA lines: .* pip uninstall -y .*"
    with pytest.raises(MissingPackage, match=told) as error:
        nvrtc.include_folders()
    assert error.value.clash
    assert error.value.cure.endswith(installing(fitting_extra()))


@pytest.mark.usefixtures("uncached")
def test_bindings_of_another_line_than_the_compilers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = "12.9.10" if nvrtc.version().startswith("13") else "13.5.0"
    monkeypatch.setattr("cuda.bindings.__version__", other)
    with pytest.raises(MissingPackage, match=f"and cuda-bindings {other} are of different CUDA lines"):
        nvrtc.library()


def test_a_build_is_plain_data() -> None:
    result = good(f'extern "C" __global__ void f{SIGNATURE} {{ y[0] = x[0]; }}')
    assert replace(result) == result


def test_an_example_with_tma_and_wgmma_compiles() -> None:
    source = EXAMPLES["wgmma"].read_text()
    build = compile_cuda(Kernel("matrix_mul", "cuda", source), load("matrix_mul"), "bf16")
    assert isinstance(build, CudaBuild), build
    assert {"tma", "tensor"} <= set(build.cell)
    assert not build.facts["spill_bytes"]


@pytest.mark.slow
def test_an_example_with_cute_compiles() -> None:
    if not nvrtc.cutlass_folders():
        pytest.skip("nvidia-cutlass is not installed")
    source = EXAMPLES["cute"].read_text()
    build = compile_cuda(Kernel("matrix_mul", "cuda", source), load("matrix_mul"), "bf16")
    assert isinstance(build, CudaBuild), build
    assert build.facts["tensor_cores"]
