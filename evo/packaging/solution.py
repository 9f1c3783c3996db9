"""Writes a kernel as a solution of the task that its operator was imported from, in that task's own format.

A solution is the kernel, its C++ launcher and a binding for torch, compiled where it runs: it needs nothing of ours.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.packaging import binding
from evo.packaging.cpp import Source, indented
from evo.packaging.cpp_files import OF_TARGET, STATIC, launcher_files
from evo.packaging.package import CompiledCode, Subject, launcher, write_folder
from evo.version import engine_version
from fitness.cpu.build import FLAGS, LIBRARIES
from operators.definition.spec import Operator, Tensor
from operators.errors import UserError, unknown
from operators.files import read_text
from operators.identity import short
from operators.importing.folder import CALL, ORIGIN, call_of
from operators.importing.needed import HERE
from operators.importing.randomness import MADE, RANDOM

FORMATS = {
    "kernelbench": "KernelBench", "flashinfer": "FlashInfer Trace", "sol": "SOL-ExecBench", "gpumode": "GPU MODE",
}  # fmt: skip
"""Formats of tasks by the names that `evo best --as` takes."""
NAMESPACE = "evolved"
NOT_WITH_TORCH = ("-std", "-fno-rtti", "-fno-exceptions", "-fvisibility", "-fmax-errors", "-fdiagnostics", "-pipe")
"""Flags of kernels that torch's own headers cannot be compiled with, or that change no code."""
CPU_FLAGS = [flag for flag in FLAGS if not flag.startswith(NOT_WITH_TORCH)]
CUDA_FLAGS = ["-O3", "--expt-relaxed-constexpr", "-w"]
HALVES = "".join(
    f"#undef __CUDA_NO_{name}__\n"
    for name in ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
)
"""torch's own flags take operators of 16-bit types away, which kernels were judged with."""


def write_solution(subject: Subject, wanted: str, folder: Path) -> int:
    """Write a solution, by a format's name in `FORMATS`, into a folder that is not there yet, or is empty.

    Return the number of its Trace lines: workloads of the task that the run timed. It raises UserError.
    """
    if wanted not in FORMATS:
        raise UserError(unknown("format", wanted, FORMATS))
    call = _call(subject.operator, FORMATS[wanted])
    defined = wanted in ("flashinfer", "sol")
    traces = list(_traces(subject, call)) if defined else []

    def files(scratch: Path) -> Mapping[str, str | bytes]:
        source, made, head = launcher(subject, scratch, NAMESPACE)
        sources = _sources(source, made, head, _binding(source, call, defined=defined))
        if not defined:
            name, rest = {"kernelbench": ("model_new.py", _model), "gpumode": ("submission.py", _submission)}[wanted]
            return {name: _python(subject, sources, source) + rest(subject.operator, call)}
        text = json.dumps(_solution(subject, wanted, call, sources, source, made), indent=1) + "\n"
        lines = "".join(json.dumps(trace) + "\n" for trace in traces)
        return {"solution.json": text} | ({"traces.jsonl": lines} if lines else {})

    write_folder(folder, files)
    return len(traces)


def _call(operator: Operator, wanted: str) -> dict[str, Any]:
    """The way from the task's arguments to the operator's tensors, as `evo import` kept it."""
    if not (call := call_of(operator)):
        raise UserError(f"operator {operator.name} was not made by evo import, and has no format to be written in")
    if call["format"] != wanted:
        known = next((name for name, title in FORMATS.items() if title == call["format"]), None)
        said = f"say --as {known}" if known else "there are no solutions in that format"
        raise UserError(f"operator {operator.name} was imported from {call['format']}: {said}")
    if not operator.inputs or call["inputs"].keys() != {tensor.name for tensor in operator.inputs}:
        raise UserError(f"{operator.folder / ORIGIN / CALL}: the operator has other inputs by now: import it anew")
    if operator.inputs[0] not in given_by(operator, call):
        raise UserError(f"operator {operator.name}: no tensor is given to it, to tell where random numbers are drawn")
    return call


def given_by(operator: Operator, call: Mapping[str, Any]) -> list[Tensor]:
    """The inputs that a task gives; all others are random numbers, which its source draws."""
    return [tensor for tensor in operator.inputs if call["inputs"][tensor.name][0] != RANDOM]


# --- C++ --------------------------------------------------------------------------------------------------------------


def _sources(source: Source, made: CompiledCode, head: str, between: str) -> dict[str, str]:
    """The files of the extension by name, those that are compiled and their headers."""
    kernel = {name: str(text) for name, text in made.files.items() if name in ("kernel.cu", "kernel.cpp")}
    if source.cuda:
        kernel = {name: HALVES + text for name, text in kernel.items()}
    header = OF_TARGET[source.plan.target]
    found = {"plan.hpp": STATIC / "plan.hpp", header: STATIC / source.plan.target / header}
    static = {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    return {**kernel, **launcher_files(source, head), binding.FILE: head + between, **static}


def _binding(source: Source, call: Mapping[str, Any], *, defined: bool) -> str:
    """The C++ between torch's tensors and the launcher.

    It binds `run`, which writes into the arrays behind a definition's arguments, or `compute`, which returns arrays.
    """
    operator, given = source.operator, given_by(source.operator, call)
    first = f"t_{operator.inputs[0].name}"
    body = [f"const c10::cuda::CUDAGuard guard(a_{operator.inputs[0].name}.device());"] if source.cuda else []
    body += [_ready(source, tensor) for tensor in given]
    body += binding.sizes(operator, dict(_dims(operator, given)))
    body += [_check(tensor, f"t_{tensor.name}") for tensor in given]
    body += [_drawn(source, tensor, call) for tensor in operator.inputs if tensor not in given]
    for tensor in operator.outputs:
        made = f"const at::Tensor t_{tensor.name} = {binding.new(source, tensor)};"
        body += [_check(tensor, f"a_{tensor.name}"), _ready(source, tensor)] if defined else [made]
    body += binding.arguments(source)
    body += _LAUNCH[source.plan.target].format(name=source.name, first=first).splitlines()
    outputs = [tensor.name for tensor in operator.outputs]
    if defined:
        body += [f"if (!t_{name}.is_same(a_{name})) a_{name}.copy_(t_{name});" for name in outputs]
    else:
        body.append(f"return {{{', '.join(f't_{name}' for name in outputs)}}};")
    parameters = ", ".join(_parameters(operator, call) if defined else [f"const at::Tensor& a_{t.name}" for t in given])
    name, returned = ("run", "void") if defined else ("compute", "std::vector<at::Tensor>")
    symbols = list(source.symbols)
    order = ", ".join(str(symbols.index(kernel)) for kernel in source.params) if source.cuda else ""
    head = _HEAD[source.plan.target].format(name=source.name, order=order)
    return _UNIT.format(head=head, returned=returned, name=name, parameters=parameters, lines=indented(body))


def _ready(source: Source, tensor: Tensor) -> str:
    return f"const at::Tensor t_{tensor.name} = ready(a_{tensor.name}, {binding.torch_type(source, tensor)});"


def _drawn(source: Source, tensor: Tensor, call: Mapping[str, Any]) -> str:
    """The statement that draws random numbers by the law that the task's source does."""
    law = call["inputs"][tensor.name][1]
    if law not in MADE:
        raise UserError(f"{ORIGIN}/{CALL}: {unknown('law', str(law), MADE)}")
    return f"const at::Tensor t_{tensor.name} = {binding.made(source, tensor, MADE[law].__name__)};"


def _check(tensor: Tensor, named: str) -> str:
    return f'check("{tensor.name}", {named}, {binding.shape(tensor)});'


_UNIT = """#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/utils/pybind.h>

{head}
using Shape = std::vector<int64_t>;

// The tensor where the kernel can read it as it is, else a copy.
at::Tensor ready(const at::Tensor& given, at::ScalarType type) {{
    const at::Tensor made = given.to(type).contiguous();
    return reinterpret_cast<std::uintptr_t>(made.data_ptr()) % 16 == 0 ? made : made.clone();
}}

void check(const char* name, const at::Tensor& tensor, const Shape& shape) {{
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(shape), name, " has the shape ", tensor.sizes(), ", not ",
                at::IntArrayRef(shape));
}}

{returned} {name}({parameters}) {{
{lines}}}

}}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{name}); }}
"""
_HEAD = {
    "cpu": """#include "plan.hpp"
#include "{name}.hpp"

namespace {{

using namespace evo_plan;
""",
    "cuda": """#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "plan.hpp"
#include "{name}.hpp"

extern const void* const evo_kernels[];  // kernel.cu has them

namespace {{

using namespace evo_plan;

// The kernel's code on one GPU.
const {name}::Kernel& on(int device) {{
    static std::mutex mutex;
    static std::map<int, {name}::Kernel> known;
    const std::lock_guard<std::mutex> alone(mutex);
    auto found = known.find(device);
    if (found == known.end()) {{
        std::vector<CUfunction> functions;
        for (const int kernel : {{{order}}}) {{
            cudaFunction_t function = nullptr;
            C10_CUDA_CHECK(cudaGetFuncBySymbol(&function, evo_kernels[kernel]));
            functions.push_back(function);
        }}
        found = known.emplace(device, {name}::Kernel::of_functions(functions)).first;
    }}
    return found->second;
}}
""",
}
_LAUNCH = {
    "cpu": "{name}::run(dims, tensors);",
    "cuda": """const {name}::Kernel& kernel = on({first}.get_device());
const int64_t scratch_bytes = static_cast<int64_t>(kernel.scratch_bytes(dims));
const at::Tensor scratch = at::empty({{scratch_bytes}}, {first}.options().dtype(at::kByte));
kernel.launch(dims, tensors, scratch.data_ptr(), c10::cuda::getCurrentCUDAStream().stream());""",
}


def _dims(operator: Operator, given: Sequence[Tensor]) -> Iterator[tuple[str, str]]:
    """Each dim and the C++ of its size: that of an axis, or the one size that all workloads of the task have."""
    axes = binding.told_by(given)
    for name in (*operator.dims, *operator.data_dims):
        sizes = {workload.dims.get(name) for workload in operator.workload_set("published")}
        if name not in axes and (len(sizes) != 1 or None in sizes):
            raise UserError(f"operator {operator.name}: no axis of an input tells `{name}`, which workloads differ in")
        yield name, axes.get(name, f"{next(iter(sizes))}LL")


def _parameters(operator: Operator, call: Mapping[str, Any]) -> Iterator[str]:
    """The parameters of a definition's function: all its inputs, what is not read included, then its outputs."""
    tensors = {call["inputs"][tensor.name][1]: tensor.name for tensor in given_by(operator, call)}
    for position, _ in enumerate(call["arguments"]):
        yield f"const at::Tensor& a_{tensors[position]}" if position in tensors else "const py::object&"
    results = [tensor.name for tensor in operator.outputs]
    if isinstance(call["returned"], dict) and "dict" in call["returned"]:  # by name, in an order of its own
        named = {result: name for result, name in call["returned"]["dict"] if name in results}
        results = [named[result] for result in call["outputs"] if result in named]
    yield from (f"at::Tensor a_{name}" for name in results)


# --- definitions ------------------------------------------------------------------------------------------------------


def _solution(
    subject: Subject,
    wanted: str,
    call: Mapping[str, Any],
    sources: Mapping[str, str],
    source: Source,
    made: CompiledCode,
) -> dict[str, Any]:
    """A solution.json. SOL-ExecBench compiles it; FlashInfer takes no flags, so that Python compiles there."""
    cuda, files = source.cuda, dict(sources)
    if wanted == "sol":
        arch = str(made.more.get("arch", "")).removeprefix("sm_")
        options: dict[str, Sequence[str]] = {"cflags": [] if cuda else CPU_FLAGS, "ld_flags": _linked(cuda=cuda)}
        options["cuda_cflags"] = [*CUDA_FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}"] if cuda else []
        spec: dict[str, Any] = {
            "languages": ["cuda_cpp"],
            "target_hardware": ["LOCAL"],
            "entry_point": f"{binding.FILE}::run",
        }
        spec |= {"binding": "torch", "compile_options": options}
    else:
        files = {"main.py": _python(subject, sources, source) + "\n\nrun = kernel.run\n"}
        hardware = "cuda" if cuda else "cpu"
        spec = {"language": "python", "target_hardware": [hardware], "entry_point": "main.py::run"}
    return {
        "name": _name(subject), "definition": call["definition"], "author": "kernel-evo",
        "description": f"Kernel {subject.kernel.id} from {subject.origin}.",
        "spec": {**spec, "dependencies": [], "destination_passing_style": True},
        "sources": [{"path": path, "content": text} for path, text in files.items()],
    }  # fmt: skip


def _traces(subject: Subject, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A Trace line for each workload of the task that the verdict has times of.

    Errors are known as shares of what is allowed, not as the format's two numbers, which are left open.
    """
    verdict, seen = subject.verdict, set[str]()
    if verdict is None or verdict.get("status") != "correct":
        return
    worst = max((error["max_ratio"] for error in verdict.get("errors", ())), default=None)
    gpus = subject.conditions.get("gpus") or [subject.conditions.get("processor") or "unknown"]
    libs = {"kernel-evo": engine_version()}
    library = {each["workload"]: each["anchor_latency_us"] for each in verdict.get("library_timings", ())}
    known = {each["workload"]: each["latency_us"] for each in verdict.get("timings", ())}
    for dims, workload in call["workloads"]:
        name = ",".join(f"{dim}={dims[dim]}" for dim in subject.operator.dims if dim in dims)
        if name not in known or name in seen:
            continue
        seen.add(name)
        taken, reference = known[name] / 1000, library.get(name, 0.0) / 1000
        performance = {"latency_ms": taken, "reference_latency_ms": reference, "speedup_factor": reference / taken}
        correctness = {"max_relative_error": "NaN", "max_absolute_error": "NaN", "extra": {"share_of_bound": worst}}
        evaluation = {
            "status": "PASSED", "environment": {"hardware": str(gpus[0]), "libs": libs},
            "timestamp": str(verdict["judged_at"]), "correctness": correctness, "performance": performance,
            "log": f"judged by kernel-evo, level {verdict['level']}",
        }  # fmt: skip
        named = {"definition": call["definition"], "workload": workload, "solution": _name(subject)}
        yield {**named, "evaluation": evaluation}


def _name(subject: Subject) -> str:
    return f"evo_{subject.operator.name}_{subject.task.dtype}_{short(subject.kernel.id)}"


# --- Python -----------------------------------------------------------------------------------------------------------

_COMPILES = '''"""Kernel {id} from {origin}, compiled by torch where it runs."""

import os
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

SOURCES = {{
{sources}}}


def compiled(name):
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions")
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in SOURCES.items():
        place = folder / file
        if not place.exists() or place.read_text() != text:
            place.write_text(text)
    files = [str(folder / file) for file in SOURCES if not file.endswith(".hpp")]
{flags}


kernel = compiled("{name}")
'''
_FLAGS = {
    "cpu": "    return load(name, files, extra_cflags={cflags}, extra_ldflags={linked}, build_directory=str(folder))",
    "cuda": """    major, minor = torch.cuda.get_device_capability()
    arch = f"{{major}}{{minor}}" + ("a" if major >= 9 else "")
    flags = [*{cuda}, f"-gencode=arch=compute_{{arch}},code=sm_{{arch}}"]
    return load(name, files, extra_cuda_cflags=flags, extra_ldflags={linked}, build_directory=str(folder))""",
}


def _linked(*, cuda: bool) -> list[str]:
    return ["-lcuda"] if cuda else ["-fopenmp", "-Wl,-Bsymbolic", *LIBRARIES]


def _python(subject: Subject, sources: Mapping[str, str], source: Source) -> str:
    """Python that compiles the extension and calls it `kernel`."""
    written = "".join(f"    {name!r}: {_quoted(text)},\n" for name, text in sources.items())
    flags = _FLAGS[source.plan.target].format(cflags=CPU_FLAGS, cuda=CUDA_FLAGS, linked=_linked(cuda=source.cuda))
    origin = subject.origin if subject.origin.isprintable() and '"' not in subject.origin else "a file"
    return _COMPILES.format(id=subject.kernel.id, origin=origin, sources=written, flags=flags, name=_name(subject))


def _quoted(text: str) -> str:
    return f"r'''{text}'''" if "'''" not in text and not text.endswith(("'", "\\")) else repr(text)


def _model(operator: Operator, call: Mapping[str, Any]) -> str:
    """The task's own module as `ModelNew`: built as it was, its `forward` one call of the kernel."""
    tree = ast.parse(read_text(operator.folder / ORIGIN / HERE))
    forward = _forward(tree)
    names = [argument.arg for argument in (*forward.args.posonlyargs, *forward.args.args)]

    def argument(path: Sequence[Any]) -> str:
        kind, first, keys = path[0], path[1], path[2:]
        if kind == "input":
            return str(names[1 + first]) + _within(keys)
        first = str(first)
        plain = all(part.isidentifier() for part in first.split("."))
        return f"{names[0]}.{first}" if plain else f"{names[0]}.get_{kind}({first!r})"

    forward.body = ast.parse(_body(operator, call, argument)).body
    left_out = ("get_inputs", "get_init_inputs")
    tree.body = [each for each in tree.body if getattr(each, "name", "") not in left_out]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            node.name = "ModelNew"
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
    return "\n\n" + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _within(keys: Sequence[Any]) -> str:
    """The text that reads a part of an argument, by keys and by fields."""
    return "".join(f".{key['field']}" if isinstance(key, Mapping) else f"[{key!r}]" for key in keys)


def _forward(tree: ast.Module) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "forward":
                    return each
    raise UserError("the task's Model has no forward of its own to put the kernel into")


def _submission(operator: Operator, call: Mapping[str, Any]) -> str:
    def argument(path: Sequence[Any]) -> str:
        return "data" + _within(path[2:])

    lines = _body(operator, call, argument).splitlines()
    return "\n\ndef custom_kernel(data):\n" + "".join(f"    {line}\n" for line in lines)


def _body(operator: Operator, call: Mapping[str, Any], argument: Callable[[Sequence[Any]], str]) -> str:
    """The call of the kernel, and what the task returns."""
    given = ", ".join(argument(call["inputs"][tensor.name]) for tensor in given_by(operator, call))
    names = [tensor.name for tensor in operator.outputs]
    lines = [f"{', '.join(names)}{',' if len(names) == 1 else ''} = kernel.compute({given})"]
    return "\n".join([*lines, f"return {returned_text(call['returned'], set(names), call['bool'])}"])


def returned_text(value: Any, names: set[str], booleans: Sequence[str]) -> str:
    """Return the expression of what a task returns."""

    def inner(each: Any) -> str:
        return returned_text(each, names, booleans)

    match value:
        case None:
            return "None"
        case str() if value in names:
            return f"{value}.bool()" if value in booleans else value
        case {"tuple": [*members]}:
            return f"({''.join(f'{inner(each)}, ' for each in members)})"
        case {"list": [*members]}:
            return f"[{', '.join(map(inner, members))}]"
        case {"dict": [*pairs]}:
            return f"{{{', '.join(f'{key!r}: {inner(each)}' for key, each in pairs)}}}"
    raise UserError(f"{ORIGIN}/{CALL}: what the task returns is not told as evo import tells it: import it anew")
