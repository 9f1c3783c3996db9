"""Writes the C++ between torch's tensors and the launcher of a kernel, for packages and for solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.packaging.cpp import Source, indented, literal, number
from operators.definition.spec import Operator, Tensor
from operators.expression import Expression

FILE = "binding.cpp"
TORCH = {
    "fp64": "kDouble", "fp32": "kFloat", "fp16": "kHalf", "bf16": "kBFloat16", "int64": "kLong", "int32": "kInt",
    "int8": "kChar", "uint8": "kByte",
}  # fmt: skip


# --- what bindings share: tensors are t_x there, and sizes d_rows -----------------------------------------------------


def torch_type(source: Source, tensor: Tensor) -> str:
    """The C++ of the type that a tensor has in torch."""
    return f"at::{TORCH[source.element(tensor.dtype)]}"


def shape(tensor: Tensor) -> str:
    """The C++ of the shape that a tensor must have."""
    return f"Shape{{{', '.join(map(_size, tensor.shape))}}}"


def told_by(tensors: Sequence[Tensor]) -> dict[str, str]:
    """The C++ of the sizes that axes of these tensors tell, by axis."""
    axes: dict[str, str] = {}
    for tensor in tensors:
        for position, axis in enumerate(tensor.shape):
            axes.setdefault(axis.text, f"t_{tensor.name}.size({position})")
    return axes


def sizes(operator: Operator, dims: Mapping[str, str]) -> list[str]:
    """The statements that work out sizes: those of the dims, by name, and those that derive from them."""
    stated = [*dims.items(), *((name, _size(expression)) for name, expression in operator.derived.items())]
    return [f"[[maybe_unused]] const long long d_{name} = {value};" for name, value in stated]


def new(source: Source, tensor: Tensor) -> str:
    """The C++ of a new tensor where the first input lies."""
    return made(source, tensor, "empty")


def made(source: Source, tensor: Tensor, function: str) -> str:
    """The C++ of a tensor that one of torch's functions makes, such as `empty`, where the first input lies."""
    options = f"t_{source.operator.inputs[0].name}.options().dtype({torch_type(source, tensor)})"
    return f"at::{function}({shape(tensor)}, {options})"


def arguments(source: Source) -> list[str]:
    """The statements that make the launcher's `dims` and `tensors`."""
    places = (f"static_cast<{source.pointer(t)}>(t_{t.name}.data_ptr())" for t in source.operator.tensors)
    return [
        f"const {source.name}::Dims dims{{{', '.join(f'd_{name}' for name in source.dims)}}};",
        f"const {source.name}::Tensors tensors{{{', '.join(places)}}};",
    ]


def _size(expression: Expression) -> str:
    return number(expression, lambda name: f"d_{name}")


# --- the binding of a package -----------------------------------------------------------------------------------------

_UNIT = """// Between torch's tensors and the launcher: `build()` of the package compiles it.
#include "torch.hpp"

#include "{name}.cpp"
#include "device.hpp"

namespace {{

using namespace evo_torch;
using Shape = std::vector<int64_t>;

{functions}

struct Binding {{
    static constexpr std::size_t INPUTS = {inputs}, OUTPUTS = {outputs};
    static constexpr std::array<const char*, {dims}> DIMS{{{names}}};  // sizes that no shape tells
    static void add(int device, const std::vector<std::uintptr_t>& addresses) {{ functions.add(device, addresses); }}
    static bool compute(const at::Tensor* const* inputs, [[maybe_unused]] const int64_t* said, at::Tensor* outputs) {{
{lines}    }}
}};

}}  // namespace
{after}
PYBIND11_MODULE(binding, m) {{ evo_torch::define<Binding>(m); }}
"""
_FUNCTIONS = {"cpu": "Functions<{count}> functions;", "cuda": "Kernels<{name}::Kernel> functions;"}
_LAUNCH = {
    "cpu": "{name}::run(dims, tensors);",
    "cuda": """const Current current(ready->context);
{scratch}
ready->kernel.launch(dims, tensors, scratch, current_stream({first}.get_device()));""",
}
_SCRATCH = """const auto scratch_bytes = static_cast<int64_t>(ready->kernel.scratch_bytes(dims));
const at::Tensor memory = at::empty({{scratch_bytes}}, {first}.options().dtype(at::kByte));
void* const scratch = memory.data_ptr();"""


def binding(source: Source) -> str:
    """Return binding.cpp of a package, or nothing for a kernel without inputs, which tell the device."""
    operator, target = source.operator, source.plan.target
    if not operator.inputs:
        return ""
    made = [tensor for tensor in operator.outputs if tensor.role == "out"]
    told = told_by(operator.inputs)
    said = [name for name in source.dims if name not in told]
    dims = {name: told.get(name) or f"said[{said.index(name)}]" for name in source.dims}
    first = f"t_{operator.inputs[0].name}"
    body = [f"const at::Tensor& t_{t.name} = *inputs[{position}];" for position, t in enumerate(operator.inputs)]
    body.append(f"const auto ready = functions.on({first}.get_device());")
    body.append("if (!ready) return false;")
    for tensor in operator.inputs:
        wanted = f"{torch_type(source, tensor)}, {len(tensor.shape)}, {first}, PLAIN"
        body.append(f"if (!fits(t_{tensor.name}, {wanted})) return false;")
    body += sizes(operator, dims)
    for tensor in operator.inputs:
        wanted = " && ".join(f"t_{tensor.name}.size({n}) == {_size(axis)}" for n, axis in enumerate(tensor.shape))
        body += [f"if (!({wanted})) return false;"] if wanted else []
    for position, tensor in enumerate(made):
        body.append(f"const at::Tensor& t_{tensor.name} = outputs[{position}] = {new(source, tensor)};")
    scratch = _SCRATCH.format(first=first) if source.plan.buffers else "void* const scratch = nullptr;"
    launch = _LAUNCH[target].format(name=source.name, first=first, scratch=scratch)
    body += [*arguments(source), *launch.splitlines(), "return true;"]
    after = (
        ""
        if source.cuda
        else "".join(
            f'extern "C" void evo_launch_{n}(void* const* arguments) {{ functions.call({n}, arguments); }}\n'
            for n in range(len(source.params))
        )
    )
    return _UNIT.format(
        name=source.name, functions=_FUNCTIONS[target].format(name=source.name, count=len(source.params)),
        inputs=len(operator.inputs), outputs=len(made), dims=len(said),
        names=", ".join(map(literal, said)), lines=indented([f"    {line}" for line in body]), after=after,
    )  # fmt: skip
