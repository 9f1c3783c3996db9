"""Graphs of PyTorch modules for tests, operator folders around them, and their generated kernels called directly."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from operators.catalog import load
from operators.definition.spec import Operator
from operators.importing.graphs.graph import RECURRENCES, TORCH_DTYPES, Graph, aten, checked, write_graph
from operators.importing.graphs.kernels import generate
from operators.plan.reading import parse_plan
from operators.prelude import translation_unit

NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()} | {torch.float32: "T"}
DROPPED = ("device", "pin_memory", "layout", "memory_format", "non_blocking")


def graph_of(module: torch.nn.Module, inputs: Sequence[Any], dims: Mapping[str, int] | None = None) -> Graph:
    """The graph of a module in fp32. Axes whose example size is that of one of `dims` are that dim, and so must be all
    that follow from them; other sizes are numbers. Parameters and buffers are inputs."""
    dims = dict(dims or {})
    by_size = {size: name for name, size in dims.items()}
    moving = [
        {
            axis: torch.export.Dim(by_size[size], min=1, max=2**20)
            for axis, size in enumerate(x.shape)
            if size in by_size
        }
        if isinstance(x, torch.Tensor)
        else None
        for x in inputs
    ]
    with torch.no_grad():
        program = torch.export.export(
            module.eval() if not getattr(module, "training_mode", False) else module.train(),
            tuple(inputs),
            dynamic_shapes=(tuple(moving),) if _variadic(module) else tuple(moving),
        ).run_decompositions(_kept_whole())
    symbols: dict[str, str] = {}
    made: list[dict[str, Any]] = []
    given: list[dict[str, Any]] = []
    signature = program.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    flat = iter(inputs)
    constants = []
    sizes: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            value = node.meta["val"]
            if node.name not in held:
                example = next(flat)
                for axis, size in enumerate(value.shape) if isinstance(value, torch.Tensor) else ():
                    if isinstance(size, torch.SymInt):
                        symbols.setdefault(str(size.node.expr), by_size[int(example.shape[axis])])
                        del axis
            if not isinstance(value, torch.Tensor):
                continue
            tensor = {"name": node.name, "shape": _shape(value, symbols), "dtype": NAMES[value.dtype]}
            if node.name in signature.inputs_to_lifted_tensor_constants:
                held_value = program.constants[signature.inputs_to_lifted_tensor_constants[node.name]]
                constants.append({**tensor, "values": held_value.flatten().tolist()})
            else:
                given.append(tensor)
        elif node.op == "call_function":
            _add(node, symbols, made, sizes)
        elif node.op == "output":
            mutated = set(signature.buffers_to_mutate) | set(signature.user_inputs_to_mutate)
            results = [out for out in node.args[0] if out.name not in mutated]
            outputs = [{"name": "y" if len(results) == 1 else f"y{n}", **_ref(out)} for n, out in enumerate(results)]
    return checked({"dims": list(dims), "inputs": given, "constants": constants, "nodes": made, "outputs": outputs})


def _kept_whole() -> Any:
    """The table of what torch takes apart, without recurrences."""
    table = torch.export.default_decompositions()
    for name in RECURRENCES:
        table.pop(aten(name), None)
    return table


def _variadic(module: torch.nn.Module) -> bool:
    return bool(module.forward.__code__.co_flags & 4)


def _text(expression: object, symbols: Mapping[str, str]) -> str | int:
    text = re.sub(r"\bs\d+\b", lambda m: symbols[m[0]], str(expression))
    text = re.sub(r"FloorDiv\(", "floordiv(", text)
    while found := re.search(r"floordiv\(([^()]*(?:\([^()]*\))?[^()]*), (\w+)\)", text):
        text = text.replace(found[0], f"(({found[1]}) // {found[2]})")
    while found := re.search(r"(?:Mod|PythonMod)\(([^()]*), (\w+)\)", text):
        text = text.replace(found[0], f"(({found[1]}) % {found[2]})")
    text = re.sub(r"\((.+)//(\d+)\)", r"(\1 // \2)", text)
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _size(size: Any, symbols: Mapping[str, str]) -> str | int:
    return _text(size.node.expr, symbols) if isinstance(size, torch.SymInt) else int(size)


def _shape(value: torch.Tensor, symbols: Mapping[str, str]) -> list[str | int]:
    return [_size(size, symbols) for size in value.shape]


def _ref(node: torch.fx.Node) -> dict[str, Any]:
    if node.op == "call_function" and "getitem" in str(node.target):
        return {"ref": node.args[0].name, "index": node.args[1]}
    return {"ref": node.name, "index": 0}


def _add(node: torch.fx.Node, symbols: Mapping[str, str], made: list[dict[str, Any]], sizes: dict[str, str]) -> None:
    value = node.meta["val"]
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) or not str(node.target).startswith("aten."):
        return
    outputs = value if isinstance(value, tuple | list) else [value]
    kwargs = {k: _argument(v, symbols) for k, v in node.kwargs.items() if k not in DROPPED}
    made.append(
        {
            "name": node.name, "op": str(node.target), "args": [_argument(v, symbols) for v in node.args],
            "kwargs": kwargs, "outputs": [{"shape": _shape(v, symbols), "dtype": NAMES[v.dtype]} for v in outputs],
        }
    )  # fmt: skip


def _argument(value: Any, symbols: Mapping[str, str]) -> Any:
    if isinstance(value, torch.fx.Node):
        found = value.meta["val"]
        if isinstance(found, torch.SymInt):
            return {"expr": _text(found.node.expr, symbols)}
        return _ref(value)
    if isinstance(value, list | tuple):
        return [_argument(each, symbols) for each in value]
    if isinstance(value, torch.dtype):
        return NAMES[value]
    if isinstance(value, torch.device | torch.layout | torch.memory_format):
        return None
    return value


# --- folders ----------------------------------------------------------------------------------------------------------

REFERENCE = """from pathlib import Path

from operators.importing.graphs.graph import evaluate, read_graph
from operators.importing.rounding.running import running

GRAPH = read_graph(Path(__file__).with_name("graph.json"))
DIMS = {dims}


def reference({arguments}):
    return evaluate(GRAPH, {{{values}}}, {{{sizes}}}, {first}.dtype)


def magnitude({arguments}, dtype):
    return running(reference, dtype)({arguments})
"""


def write_folder(
    folder: Path, graph: Graph, *, shapes: Sequence[Mapping[str, int]], distributions: Mapping[str, str] | None = None,
    bound: str = "rounding",
) -> Operator:  # fmt: skip
    """An operator folder around a graph: the first of `shapes` is timed, the others are hidden."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W", "_", folder.name)
    dims = graph.dims or ["unused"]
    tensors = [("in", t) for t in graph.inputs]
    tensors += [("out", graph.value(o.ref, o.index).model_copy(update={"name": o.name})) for o in graph.outputs]
    lines = [f'name = "{name}"', 'family = "imported"', 'formula = "a graph"', f"dims = {dims}".replace("'", '"'),
             "[dtypes]", 'cpu = ["fp32", "fp64"]', 'cuda = ["fp32", "bf16"]']  # fmt: skip
    for role, tensor in tensors:
        own = "uint8" if tensor.dtype == "bool" else tensor.dtype
        tname = getattr(tensor, "name", None) or "y"
        lines += ["[[tensor]]", f'name = "{tname}"', f'role = "{role}"', f'dtype = "{own}"',
                  f"shape = {[str(s) for s in tensor.shape]}".replace("'", '"')]  # fmt: skip
        if role == "in":
            usual = "uniform(-1, 1)" if own in ("T", "ACC") else "integers(0, 1)"
            lines.append(f'distribution = "{(distributions or {}).get(tname, usual)}"')
    lines += ["[cost]", "flops = 1", "[tolerance]", f'bound = "{bound}"', f'terms = "{generate(graph, "cpu").terms}"']
    distinct = [dict(each) for each in {tuple(sorted(shape.items())): shape for shape in shapes}.values()]
    distinct = distinct[:1] + (distinct[1:] or distinct[:1])
    for number, shape in enumerate(distinct):
        table = "workload" if number == 0 else "hidden"
        sizes = ", ".join(f"{dim} = {shape.get(dim, number + 1)}" for dim in dims)
        lines += [f"[[{table}]]", f"dims = {{ {sizes} }}", *(['set = "cpu"'] if number == 0 else ['source = "s"'])]
    (folder / "operator.toml").write_text("\n".join(lines) + "\n")
    write_graph(graph, folder / "graph.json")
    names = [t.name for t in graph.inputs]
    (folder / "reference.py").write_text(
        REFERENCE.format(
            dims=graph.dims,
            arguments=", ".join([*names, *graph.dims]),
            values=", ".join(f'"{n}": {n}' for n in names),
            sizes=", ".join(f'"{d}": {d}' for d in graph.dims),
            first=next(t.name for t in graph.inputs if t.dtype == "T"),
        )
    )
    for target, file in (("cpu", "naive.cpp"), ("cuda", "naive.cu")):
        (folder / file).write_text(generate(graph, target).source)
    return load(str(folder))


def called(operator: Operator, inputs: Mapping[str, torch.Tensor], dims: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """The outputs of the generated cpu kernel in fp32, compiled and called here, without any judge."""
    source = operator.naive("cpu")
    plan = parse_plan(source, operator, "cpu")
    text = translation_unit(source, operator, plan, target="cpu", dtype="fp32", values={})
    file = operator.folder / "kernel.cpp"
    file.write_text(text)
    library = operator.folder / "kernel.so"
    subprocess.run(["g++", "-w", "-O1", "-shared", "-fPIC", "-o", library, file], check=True)
    made = ctypes.CDLL(str(library))
    env = operator.environment({dim: dims.get(dim, 1) for dim in operator.dims})
    memory = {t.name: inputs[t.name].contiguous() for t in operator.inputs}
    dtypes = TORCH_DTYPES | {"T": torch.float32, "ACC": torch.float32}
    memory |= {t.name: _poisoned(t.sizes(env), dtypes[t.dtype]) for t in operator.outputs}
    facts = {"sizeof_T": 4, "sizeof_ACC": 4, "cpu_count": 1, "l2_bytes": 2**20}
    resolved = plan.resolve(operator, dtype="fp32", dims=env, values={}, facts=facts)
    memory |= {b.name: _poisoned(b.shape, dtypes[b.dtype]) for b in resolved.buffers}
    for step in resolved.steps:
        args = [
            ctypes.c_longlong(a.value) if a.kind == "integer" else ctypes.c_void_p(memory[a.name].data_ptr())
            for a in step.args
        ]
        getattr(made, step.kernel)(*args)
    return {t.name: memory[t.name] for t in operator.outputs}


def _poisoned(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.full(tuple(shape), float("nan") if dtype.is_floating_point else 77, dtype=dtype)
