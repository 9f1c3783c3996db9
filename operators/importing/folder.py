"""Writes the folder of an imported operator, from what a look at its problem found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operators.definition.spec import Operator
from operators.dtypes import DTYPES
from operators.errors import OperatorError, UserError
from operators.expression import parse
from operators.files import read_text
from operators.identity import digest
from operators.importing.graphs.graph import Graph, check_name, checked, write_graph
from operators.importing.graphs.inputs import making_of
from operators.importing.graphs.kernels import CPP_TYPES, generate
from operators.importing.readers import FAMILY, ForeignSource

NOTE = "IMPORTED.md"
ORIGIN = "origin"
CALL = "call.json"
MOST_COST = 440
"""Characters of the formulas of operations and of terms."""
MOST_TOLD = 6
"""Tensors that one line of a note names; operator.toml tells of all."""
CUDA = ("fp32", "bf16", "fp16")
FIRST = (("cpu", "naive.cpp"), ("cuda", "naive.cu"))
"""The first kernels, by target."""
REFERENCE = '''"""{name}: what graph.json says, evaluated in fp64. `evo import` wrote it; {note} tells from what."""

from pathlib import Path

{imports}

GRAPH = read_graph(Path(__file__).with_name("graph.json"))
{tables}

def reference({arguments}):
    return evaluate(GRAPH, {values}, {dims}, {dtype})


library = reference
'''
MAGNITUDE = """

def magnitude({arguments}, dtype):
    return {analysis}(reference, dtype)({arguments})
"""
FAINT = """

def faint({arguments}, rng):
    return fainter({values}, FAINT, rng)
"""
INPUTS = """

def inputs(rng, device, {arguments}):
    return {{
{entries}
    }}
"""
MAKING = "inputs.json"
SOURCE = "source.json"
EXECUTED = '''"""{name}: what its source computes in fp64. `evo import` wrote it; {note} tells from what."""

from pathlib import Path

from fitness.oracle.source import ConfinedSource, of_rows

SOURCE = ConfinedSource(Path(__file__).with_name("{file}"))


def reference({arguments}):
    return SOURCE.results({values}, {dims})


def magnitude(outputs):
    return of_rows(outputs)
'''
EXECUTED_INPUTS = """

def inputs(rng, device{arguments}):
    return SOURCE.made({names}, {dims}, rng, device)
"""
LEFT = """/*! evo
unwritten = ["{name}"]

[[launch]]
kernel = "{name}"
{grid}args = {args}
*/
extern "C" {kind} {name}({parameters}) {{
    // {name} is left to write: {origin}/ holds the source that says what it computes.
}}
"""


@dataclass
class _Reference:
    """The text of a reference.py as it comes together."""

    imports: list[str] = field(default_factory=lambda: ["operators.importing.graphs.graph import evaluate, read_graph"])
    tables: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def add(self, imported: str, function: str, table: str = "") -> None:
        """One more function, with what it needs."""
        self.imports.append(imported)
        self.functions.append(function)
        self.tables += [table] if table else []


def write(source: ForeignSource, found: Mapping[str, Any], folder: Path, name: str) -> list[str]:
    """Write the operator, and return the lines of its note. Raises UserError where the folder is there already."""
    graph = checked(found["graph"], str(source.origin)) if found["graph"] else None
    if found["making"]:
        making_of(found["making"], str(source.origin))
    for each in (*found["dims"], *found["derived"], *(size for sizes in _sizes(found) for size in sizes)):
        check_name(each)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"{folder} is there already; name another folder with --out") from None
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from None
    dims = dict(found["dims"]) or {"whole": 1}
    if graph:
        missing, terms = _computed(graph, found, folder, name)
    else:
        missing, terms = _executed(source, found, folder, name), found["terms"]
    _put(folder / "operator.toml", "\n".join(_toml(source, {**found, "terms": terms}, name, dims)) + "\n")
    (folder / ORIGIN).mkdir()
    for file, text in source.files.items():
        (folder / ORIGIN / file).parent.mkdir(parents=True, exist_ok=True)
        _put(folder / ORIGIN / file, text)
    _put(folder / ORIGIN / CALL, json.dumps(_call(source, found), indent=1) + "\n")
    lines = [*source.notes, *together(found["notes"]), *missing]
    _put(folder / NOTE, _note(source, name, lines, found))
    return lines


def _computed(graph: Graph, found: Mapping[str, Any], folder: Path, name: str) -> tuple[list[str], str]:
    """Write the graph, what evaluates it, and its first kernels; return what is left to write, and the terms of its
    longest sum."""
    write_graph(graph, folder / "graph.json")
    if found["making"]:
        _put(folder / MAKING, json.dumps(found["making"], indent=1) + "\n")
    _put(folder / "reference.py", _reference(found, graph, name))
    missing, terms = list[str](), found["terms"]
    for target, file in FIRST:
        try:
            made = generate(graph, target)
        except (OperatorError, NotImplementedError, ValueError, KeyError, TypeError) as error:
            missing.append(f"{file}: it is left to write: {' '.join(str(error).split())[:200]}")
            continue
        _put(folder / file, made.source)
        missing += [f"{file}: {line}" for line in made.missing]
        terms = made.terms if len(made.terms) <= MOST_COST else terms
    return missing, terms


def _executed(source: ForeignSource, found: Mapping[str, Any], folder: Path, name: str) -> list[str]:
    """Write a source that no graph says, what asks it, and kernels without a body; return what is left to write."""
    inputs = [each for each in found["inputs"] if each["role"] == "in"]
    outputs = [each["name"] for each in found["inputs"] if each["role"] == "out"]
    names, dims = [each["name"] for each in inputs], list(found["dims"])
    sizes = "{" + ", ".join(f'"{knob}": {dim}' for knob, dim in found["knobs"].items()) + "}"
    told = {**found["source"], "files": dict(source.files), "inputs": names, "outputs": outputs}
    _put(folder / SOURCE, json.dumps(told, indent=1) + "\n")
    arguments, drawn = [*names, *dims], [each["name"] for each in inputs if "distribution" not in each]
    text = EXECUTED.format(
        name=name, note=NOTE, file=SOURCE, arguments=", ".join(arguments), values=_table(names), dims=sizes
    )
    if drawn:
        text += EXECUTED_INPUTS.format(
            arguments="".join(f", {dim}" for dim in dims), names=json.dumps(drawn), dims=sizes
        )
    _put(folder / "reference.py", text)
    for target, file in FIRST:
        _put(folder / file, _left(found, name, target))
    files = " and of ".join(file for _, file in FIRST)
    return [f"{name}() of {files} is left to write: {ORIGIN}/ holds the source that says what it computes"]


def _left(found: Mapping[str, Any], name: str, target: str) -> str:
    """A kernel without a body."""
    tensors, dims = found["inputs"], list(found["dims"])
    parameters = [
        f"{'const ' if each['role'] == 'in' else ''}{CPP_TYPES[each['dtype']]}* {each['name']}" for each in tensors
    ]
    return LEFT.format(
        name=name,
        grid='grid = ["1"]\nblock = ["256"]\n' if target == "cuda" else "",
        kind="__global__ void" if target == "cuda" else "void",
        args=json.dumps([*(each["name"] for each in tensors), *dims]),
        parameters=", ".join([*parameters, *(f"int {dim}" for dim in dims)]),
        origin=ORIGIN,
    )


def together(lines: Iterable[str]) -> list[str]:
    """The lines of a note; what is said of several tensors alike, as of the norms of a network, is said once."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        told = re.fullmatch(r"(`\w+`) is (.*)", line)
        alike.setdefault(f" is {told[2]}" if told else line, []).append(told[1] if told else "")
    found = []
    for said, names in alike.items():
        more = f" and {len(names) - MOST_TOLD} others" if len(names) > MOST_TOLD else ""
        if len(names) > 1 and names[0]:
            said = said.replace(" is ", " are ", 1).replace(" its ", " their ")
        found.append(", ".join(names[:MOST_TOLD]) + more + said)
    return found


def _call(source: ForeignSource, found: Mapping[str, Any]) -> dict[str, Any]:
    """The way from the arguments and results of the problem to the operator's tensors."""
    outputs = [tensor["name"] for tensor in found["inputs"] if tensor.get("bool")]
    inputs = {t["name"]: [t["origin"], *t["path"]] for t in found["inputs"] if t["role"] == "in"}
    level = source.origin.resolve().parent.name
    named = f"{source.format} {level}" if re.fullmatch(r"level\d+", level) else source.format
    call = {
        "format": source.format,
        "set": named,
        "inputs": inputs,
        "returned": found["returned"],
        "bool": outputs,
        **source.call,
    }
    return call | {"workloads": list(zip(found["workloads"], source.call.get("workloads", ()), strict=False))}


def _sizes(found: Mapping[str, Any]) -> list[Mapping[str, int]]:
    """All that workloads and hidden shapes are told by."""
    return [
        *found["workloads"],
        found["cpu"] or {},
        found["small"] or {},
        *(shape["dims"] or {} for shape in found["hidden"]),
    ]


def call_of(operator: Operator) -> dict[str, Any]:
    """Return the way from a call of the original to the operator's tensors; empty for an operator that has none."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_text(operator.folder / ORIGIN / CALL))
        return found if isinstance(found, dict) else {}
    return {}


def holds(folder: Path, source: ForeignSource) -> bool:
    """Whether a folder was made from this very source."""
    try:
        return digest(*source.files.values()) in read_text(folder / NOTE)
    except OSError:
        return False


def _put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _note(source: ForeignSource, name: str, lines: list[str], found: Mapping[str, Any]) -> str:
    listed = "\n".join(f"- {line}" for line in lines) or "- nothing"
    return (
        f"# {name}\n\nImported from a problem in the format of {source.format}.\n\n"
        f"- origin: {source.origin.name}\n- licence: {source.licence}\n- digest: {digest(*source.files.values())}\n"
        f"{_way(found)}\n\n## Assumed\n\n{listed}\n"
    )


def _way(found: Mapping[str, Any]) -> str:
    """The way from the source to right answers."""
    if not found["graph"]:
        return (
            f"- the source lies in {ORIGIN}/, to be read, and in {SOURCE}: a process without network or other files "
            f"executes it for verdicts\n- it was executed at {len(found['hidden'])} shapes"
        )
    return (
        f"- the source lies in {ORIGIN}/, to be read; nothing runs it: graph.json is the computation\n"
        f"- source and graph agreed at {len(found['hidden'])} shapes"
    )


def _different(workloads: Iterable[Mapping[str, int]]) -> list[dict[str, int]]:
    """The sizes that differ, in their order."""
    seen: list[dict[str, int]] = []
    for sizes in workloads:
        if sizes not in seen:
            seen.append(dict(sizes))
    return seen


def _toml(source: ForeignSource, found: Mapping[str, Any], name: str, dims: Mapping[str, int]) -> Iterator[str]:
    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def table(entries: Mapping[str, Any]) -> str:
        return "{ " + ", ".join(f"{key} = {text(value)}" for key, value in entries.items()) + " }"

    nodes = found["graph"]["nodes"] if found["graph"] else ()
    ops = list(dict.fromkeys(node["op"].split(".")[1] for node in nodes)) or ["its source"]
    yield f"name = {text(name)}"
    yield f'family = "{FAMILY}"'
    yield f"formula = {text(f'{source.format} {source.origin.stem}: ' + ', '.join(ops)[:300])}"
    yield f"dims = {text(list(dims))}"
    yield "partial = true"
    dtype = found["dtype"]
    cuda = list(dict.fromkeys([*([dtype] if dtype in ("fp32", "fp16", "bf16", "fp64") else []), *CUDA]))
    yield f"dtypes = {{ cpu = {text(['fp64' if dtype == 'fp64' else 'fp32'])}, cuda = {text(cuda)} }}"
    if found["derived"]:
        yield "\n[derived]"
        yield from (f"{key} = {text(value)}" for key, value in found["derived"].items())
    for tensor in found["inputs"]:
        yield "\n[[tensor]]"
        for key in ("name", "role", "dtype", "shape", "distribution", "pattern", "bounded", "specials"):
            if key in tensor:
                yield f"{key} = {text(tensor[key])}"
    seen = _different([each for each in found["workloads"] if each] or [dims])
    smaller = {kind: [found[kind] or dict(dims)] for kind in ("cpu", "small")}
    counts = _counts(source, found)
    is_own = dims != found["small"] or any(found["workloads"]) or not found["workloads"]
    recorded = [sizes for sizes in seen if sizes in found.get("quick", ())]
    for kind, shapes in {**smaller, "cpu": recorded or smaller["cpu"], "realistic": seen, "published": seen}.items():
        for sizes in shapes:
            yield f"\n[[workload]]\nset = {text(kind)}\ndims = {table(sizes or dims)}"
            yield f"source = {text(source.format if sizes in seen and is_own else 'its sizes, made smaller')}"
            if count := counts.get(str(sizes)):
                yield f"weight = {count}"
    for shape in found["hidden"][: None if found["dims"] else 1]:
        yield f"\n[[hidden]]\nsource = {text(shape['source'])}\ndims = {table(shape['dims'] or dims)}"
    yield f"\n[cost]\nflops = {text(_cost(found['flops']))}"
    if found["bytes"]:
        yield f"min_bytes = {text(found['bytes'])}"
    exact = all(not _is_float(t["dtype"]) for t in found["inputs"] if t["role"] == "out")
    measured = "exact" if exact else "measured"
    yield f"\n[tolerance]\nbound = {text(measured if found['bound'] == 'measured' else 'rounding')}"
    yield f"terms = {text(found['terms'])}"


def _counts(source: ForeignSource, found: Mapping[str, Any]) -> dict[str, int]:
    """The number of recorded calls of each workload, by the workload as text."""
    counts: dict[str, int] = {}
    for sizes, call in zip(found["workloads"], source.call.get("workloads", ()), strict=False):
        if "count" in call:
            counts[str(sizes)] = counts.get(str(sizes), 0) + call["count"]
    return counts


def _is_float(dtype: str) -> bool:
    return dtype in ("T", "ACC") or (dtype in DTYPES and DTYPES[dtype].is_float)


def _cost(terms: list[str]) -> str:
    made = ""
    for term in terms:
        longer = f"{made} + {term}" if made else term
        if len(longer) > MOST_COST:
            break
        made = longer
    return made or "1"


def _reference(found: Mapping[str, Any], graph: Graph, name: str) -> str:
    tensors = [tensor.name for tensor in graph.inputs]
    floating = [tensor.name for tensor in graph.inputs if _is_float(tensor.dtype)]
    arguments, parts = ", ".join([*tensors, *graph.dims]), _Reference()
    if found["bound"] != "measured":
        text = MAGNITUDE.format(analysis=found["bound"], arguments=arguments)
        parts.add(f"operators.importing.rounding.running import {found['bound']}", text)
    _add_faint(parts, found, tensors)
    _add_inputs(parts, found, tensors)
    text = REFERENCE.format(
        name=name,
        note=NOTE,
        imports="\n".join(f"from {each}" for each in sorted(parts.imports)),
        tables="".join(f"{each}\n" for each in parts.tables),
        arguments=arguments,
        values=_table(tensors),
        dims=_table(graph.dims),
        dtype=f"{floating[0]}.dtype" if floating else "",
    )
    return text + "".join(parts.functions)


def _table(names: Iterable[str]) -> str:
    """Values by name, in Python."""
    return "{" + ", ".join(f'"{each}": {each}' for each in names) + "}"


def _add_faint(parts: _Reference, found: Mapping[str, Any], tensors: Sequence[str]) -> None:
    levels = [
        (tuple(n for n in tensors if n in names), int(power), bool(zeros), int(sign))
        for names, power, zeros, sign in found["faint"]
    ]
    if levels:
        changed = [each for each in tensors if any(each in names for names, *_ in levels)]
        text = FAINT.format(arguments=", ".join(changed), values=_table(changed))
        parts.add("operators.importing.graphs.faint import fainter", text, f"FAINT = {levels}")


def _add_inputs(parts: _Reference, found: Mapping[str, Any], tensors: Sequence[str]) -> None:
    """The function that makes what no distribution does: integers below a size, and what the source makes of numbers
    that are drawn."""
    drawn = [tensor for tensor in found["inputs"] if "integers" in tensor and tensor["name"] in tensors]
    known, entries, more = (*found["dims"], *found["derived"]), [], list[str]()
    if found["making"]:
        dims = _table(found["making"]["graph"]["dims"])
        entries, more = [f"**made_inputs(MAKING, {dims}, rng, device, family, dtype)"], ["family", "dtype"]
        parts.imports.append("operators.importing.graphs.inputs import made_inputs, read_making")
        parts.tables.append(f'MAKING = read_making(Path(__file__).with_name("{MAKING}"))')
    for tensor in drawn:
        shape = "".join(f"{parse(axis, known).text}, " for axis in tensor["shape"])
        low, high = (parse(bound, known).text for bound in tensor["integers"])
        number = f"integers({low}, {high}, ({shape.rstrip()}), rng, device)"
        entries.append(f'"{tensor["name"]}": {number}.to(TORCH_DTYPES["{tensor["dtype"]}"])')
    if drawn:
        parts.imports[0] = "operators.importing.graphs.graph import TORCH_DTYPES, evaluate, read_graph"
        parts.imports.append("operators.drawing import integers")
    if entries:
        listed = "\n".join(f"        {each}," for each in entries)
        parts.functions.append(INPUTS.format(arguments=", ".join([*more, *known]), entries=listed))
