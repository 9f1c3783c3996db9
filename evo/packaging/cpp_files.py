"""The C++ part of a package: a launcher, its test with the cases that Python's has, and what builds them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evo.packaging import binding, cpp
from evo.packaging.cpp import Source, literal
from evo.packaging.runtime import loading

FOLDER = "cpp"
STATIC = Path(loading.__file__).parent / FOLDER
NVCC_OPTIONS = "-std=c++17 --expt-relaxed-constexpr -w"
"""For kernel.cu, where NVRTC has `fitness.cuda.compile.nvrtc.OPTIONS`."""
OF_TARGET = {"cuda": "driver.hpp", "cpu": "machine.hpp"}
"""Header that a launcher includes besides its own."""


def cpp_files(source: Source, head: str, cases: bytes, more: Mapping[str, str]) -> dict[str, str | bytes]:
    """Return the files, by path in the package.

    `head` is what every file begins with, `cases` is cases.npz, and `more` is what else CMakeLists.txt is told.
    """
    table, data = _cases(source, cases)
    target = source.plan.target
    made: dict[str, str | bytes] = {**launcher_files(source, head), "cases.hpp": table, "cases.bin": data}
    for file in (*STATIC.glob("*.*"), *(STATIC / target).glob("*.*")):
        text = file.read_text(encoding="utf-8")
        for key, value in {"NAME": source.name, **more}.items():
            text = text.replace(f"@{key}@", value)
        made[file.name] = text
    if between := binding.binding(source):
        made[binding.FILE] = head + between
    return {f"{FOLDER}/{name}": content for name, content in made.items()}


def launcher_files(source: Source, head: str) -> dict[str, str]:
    """Return the launcher's own two files, by name."""
    return {f"{source.name}.hpp": head + _header(source), f"{source.name}.cpp": head + _launcher(source)}


# --- the header -----------------------------------------------------------------------------------------------------

_CUDA = """
// The kernel's code on a GPU. It belongs to the CUDA context that is current when it is made (cudaSetDevice makes one
// so), which must be current where it is used too. Copies share the code, which launches that wait and CUDA graphs that
// were captured from launches need. Several threads may launch at a time.
class Kernel {
public:
    // Of a file with a cubin or fatbin of kernel.cu, or of its contents.
    explicit Kernel(const std::string& file);
    static Kernel of_image(const void* image);
    // Of kernel.cu compiled into the same program: the functions of `evo_kernels`, by cudaGetFuncBySymbol.
    static Kernel of_functions(const std::vector<CUfunction>& functions);

    // Whether the kernel serves these dims.
    bool supports(const Dims& dims) const;

    // Put one call into a stream; nothing is waited for. Scratch is the stream's (cuMemAllocAsync), or the caller's: as
    // many bytes as `scratch_bytes` says, on 256, which nothing else may use until the call is done.
    void launch(const Dims& dims, const Tensors& tensors, CUstream stream) const;
    void launch(const Dims& dims, const Tensors& tensors, void* scratch, CUstream stream) const;
    std::size_t scratch_bytes(const Dims& dims) const;

private:
    explicit Kernel(std::shared_ptr<const void> module);
    std::shared_ptr<const void> module_;
};
"""
_CPU = """
// Whether the kernel serves these dims.
bool supports(const Dims& dims);

// One call. Scratch is allocated, or the caller's: as many bytes as `scratch_bytes` says, on 256. A kernel that works
// with threads takes as many as OpenMP gives it (OMP_NUM_THREADS).
void run(const Dims& dims, const Tensors& tensors);
void run(const Dims& dims, const Tensors& tensors, void* scratch);
std::size_t scratch_bytes(const Dims& dims);
"""


def _header(source: Source) -> str:
    tensors = [
        f"{source.pointer(t)} {t.name} = nullptr;  // {t.role}, {source.element(t.dtype)} "
        f"[{', '.join(axis.text for axis in t.shape)}]"
        for t in source.operator.tensors
    ]
    includes = "#include <cstddef>\n#include <cstdint>\n"
    if source.cuda:
        includes = f"#include <cuda.h>\n\n{includes}#include <memory>\n#include <string>\n#include <vector>\n"
    where = "on the GPU" if source.cuda else "in memory"
    return f"""#pragma once
{includes}
namespace {source.name} {{

struct Dims {{
{cpp.indented(f"long long {name} = 0;" for name in source.dims)}}};

// Where dense arrays begin {where}, on multiples of 16 bytes; what is written shares memory with nothing.
struct Tensors {{
{cpp.indented(tensors)}}};

// What cannot be done throws std::invalid_argument where dims or tensors are at fault, else std::runtime_error; nothing
// has been launched then, unless a launch itself failed.

{(_CUDA if source.cuda else _CPU).lstrip()}
}}  // namespace {source.name}
"""


# --- the launcher ---------------------------------------------------------------------------------------------------

_CUDA_METHODS = """
namespace {
const Module& module_of(const std::shared_ptr<const void>& known) { return *static_cast<const Module*>(known.get()); }
}  // namespace

Kernel::Kernel(std::shared_ptr<const void> module) : module_(std::move(module)) {}
Kernel::Kernel(const std::string& file) : Kernel(of_image(contents(file).data())) {}
Kernel Kernel::of_image(const void* image) { return Kernel(std::make_shared<const Module>(image, SYMBOLS)); }
Kernel Kernel::of_functions(const std::vector<CUfunction>& functions) {
    return Kernel(std::make_shared<const Module>(functions));
}

bool Kernel::supports(const Dims& dims) const { return holds(numbers(dims, module_of(module_).facts)); }

std::size_t Kernel::scratch_bytes(const Dims& dims) const {
    Memory at;
    return place_scratch(numbers(dims, module_of(module_).facts), 0, at);
}

void Kernel::launch(const Dims& dims, const Tensors& tensors, void* scratch, CUstream stream) const {
    const Module& module = module_of(module_);
    const Numbers v = numbers(dims, module.facts);
    require(v);
    Memory at;
    place_tensors(v, tensors, at);
    place_scratch(v, reinterpret_cast<std::uintptr_t>(scratch), at);
    std::vector<long long> blocks(module.functions.size(), 1);
    if (ASKS_OCCUPANCY) blocks = occupancy(plan(v, at, blocks, module.descriptors).calls, module.functions);
    Plan planned = plan(v, at, blocks, module.descriptors);
    for (const Extent& extent : planned.zero) clear(extent, stream);
    for (Call& call : planned.calls) start(call, module.functions[call.kernel], stream);
}

void Kernel::launch(const Dims& dims, const Tensors& tensors, CUstream stream) const {
    const std::size_t bytes = scratch_bytes(dims);
    CUdeviceptr scratch = 0;
    if (bytes > 0) driver(cuMemAllocAsync(&scratch, bytes, stream), "cuMemAllocAsync");
    try {
        launch(dims, tensors, reinterpret_cast<void*>(scratch), stream);
    } catch (...) {
        if (bytes > 0) cuMemFreeAsync(scratch, stream);
        throw;
    }
    if (bytes > 0) driver(cuMemFreeAsync(scratch, stream), "cuMemFreeAsync");
}
"""
_CPU_FUNCTIONS = """
bool supports(const Dims& dims) { return holds(numbers(dims, machine())); }

std::size_t scratch_bytes(const Dims& dims) {
    Memory at;
    return place_scratch(numbers(dims, machine()), 0, at);
}

void run(const Dims& dims, const Tensors& tensors, void* scratch) {
    const Numbers v = numbers(dims, machine());
    require(v);
    Memory at;
    place_tensors(v, tensors, at);
    place_scratch(v, reinterpret_cast<std::uintptr_t>(scratch), at);
    Plan planned = plan(v, at, {});
    for (const Extent& extent : planned.zero) clear(extent);
    for (Call& call : planned.calls) KERNELS[call.kernel](call.arguments.pointers().data());
}

void run(const Dims& dims, const Tensors& tensors) {
    const auto scratch = allocated(scratch_bytes(dims));
    run(dims, tensors, scratch.get());
}
"""


def _launcher(source: Source) -> str:
    if source.cuda:
        symbols = ",\n".join(f"    {literal(source.symbols[name])}" for name in source.params)
        asks = "true" if source.plan.occupancy_kernels else "false"
        before, within = "", f"const std::initializer_list<const char*> SYMBOLS = {{\n{symbols}}};\n"
        within += f"constexpr bool ASKS_OCCUPANCY = {asks};\n"
    else:
        calls = [f"evo_launch_{number}" for number in range(len(source.params))]
        before = 'extern "C" {  // kernel.cpp has them\n'
        before += "".join(f"void {call}(void* const* arguments);\n" for call in calls) + "}\n\n"
        within = f"void (*const KERNELS[])(void* const*) = {{{', '.join(calls)}}};\n"
    return f"""#include "{source.name}.hpp"

#include "{OF_TARGET[source.plan.target]}"

{before}namespace {source.name} {{
namespace {{

using namespace evo_plan;

{within}
{cpp.numbers(source)}
{cpp.memory(source)}
{cpp.plan_function(source)}
}}  // namespace
{_CUDA_METHODS if source.cuda else _CPU_FUNCTIONS}
}}  // namespace {source.name}
"""


# --- the cases of its test ------------------------------------------------------------------------------------------


_TABLE = """// The cases of test_kernel.cpp; cases.bin has their numbers.
#pragma once
#include <vector>

#include "{name}.hpp"

namespace cases {{

namespace kernel = ::{name};

struct Tensor {{
    const char *name, *dtype;
}};
inline const std::vector<Tensor> TENSORS = {{
{tensors}}};
inline kernel::Tensors tensors(const std::vector<void*>& at) {{ return {{{bound}}}; }}

constexpr bool BITS = {bits};  // of which bits are compared

// Offsets in cases.bin, -1 where there is nothing: the input, what the fp64 reference made, the error allowed.
struct Array {{
    long long elements, input, expected, allowed;
}};
struct Case {{
    const char* name;
    kernel::Dims dims;
    std::vector<Array> arrays;
}};
inline const std::vector<Case> CASES = {{
{rows}}};

}}  // namespace cases
"""


def _cases(source: Source, packed: bytes) -> tuple[str, bytes]:
    """The arrays of cases.npz one behind the other, and a table that says where each of them begins."""
    arrays: Mapping[str, Any] = np.load(io.BytesIO(packed))
    index = json.loads(str(arrays["index"]))
    data, rows = bytearray(), []

    def placed(key: str) -> int:
        if key not in arrays:
            return -1
        begin = len(data)
        kept = np.ascontiguousarray(arrays[key]).tobytes()
        data.extend(kept + bytes(-len(kept) % 16))
        return begin

    for case in index:
        key = case["key"]
        env = source.operator.environment(case["dims"])
        entries = []
        for tensor in source.operator.tensors:
            places = [placed(f"{key}/{kind}/{tensor.name}") for kind in ("in", "out", "allowed")]
            entries.append(f"{{{int(np.prod(tensor.sizes(env)))}, {', '.join(map(str, places))}}}")
        dims = ", ".join(str(case["dims"][name]) for name in source.dims)
        rows.append(f"{{{literal(case['name'])}, {{{dims}}}, {{{', '.join(entries)}}}}},")
    tensors = [f"{{{literal(t.name)}, {literal(source.element(t.dtype))}}}," for t in source.operator.tensors]
    bound = ", ".join(f"static_cast<{source.pointer(t)}>(at[{n}])" for n, t in enumerate(source.operator.tensors))
    bits = "true" if any(case["bits"] for case in index) else "false"
    table = _TABLE.format(
        name=source.name, tensors=cpp.indented(tensors), bound=bound, bits=bits, rows=cpp.indented(rows)
    )
    return table, bytes(data)
