"""Recognises problems of others by their files, and describes them for the process that looks at them.

Only data is read here: JSON, YAML, syntax trees. Nothing of a problem is executed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from symtable import symtable
from typing import Any

from operators.errors import UserError, quote
from operators.files import python_fault, read_text
from operators.importing.needed import HERE

FORMATS = (
    "a KernelBench file, a FlashInfer definition (.json), a SOL-ExecBench folder, a GPU MODE folder, or "
    "module.py:function with --inputs module.py:make_inputs"
)
FUNCTION = re.compile(r"\.py:\w+$")
"""The end of a name of a function in a file of Python."""
LICENCES = {"mit": "MIT", "apache": "Apache-2.0", "bsd": "BSD", "researcher reciprocity": "Researcher Reciprocity"}
PLAIN = {"float32", "float16", "bfloat16", "float64", "int64", "int32", "int8", "uint8", "bool"}
MOST_WORKLOADS = 12
FAMILY = "imported"
"""The family of operators that were imported."""
ROUNDED = 1e-6
"""Relative difference of a number that was rounded to fp32 and one that was not."""
EPSILON = 1e-6
"""The small number of a norm that no workload names."""


@dataclass(frozen=True)
class ForeignSource:
    """A problem of others, not yet looked at."""

    format: str
    name: str
    origin: Path
    request: Mapping[str, Any]
    """Description for `operators.importing.looking`."""
    files: Mapping[str, str]
    """Texts by file name: those that it is executed from."""
    licence: str = "not found"
    notes: list[str] = field(default_factory=list)
    call: Mapping[str, Any] = field(default_factory=dict)
    """Facts for a solution in this format: of a definition its name, its arguments and its workloads."""


def read(source: str, inputs: str = "") -> ForeignSource:
    """Read a problem of any format. Raises UserError with one line."""
    place, _, function = source.partition(":") if FUNCTION.search(source) else (source, "", "")
    path = Path(place).expanduser()
    if not path.exists():
        raise UserError(f"{place}: no such file or folder; evo import takes {FORMATS}")
    try:
        if function:
            found = _callable(path, function, inputs)
        elif path.is_dir():
            found = _folder(path)
        elif path.suffix == ".json":
            beside = path.with_name("workload.jsonl")
            found = _definition(path, beside if beside.is_file() else None)
        else:
            found = _module(path, inputs)
    except SyntaxError as error:
        raise UserError(f"{place}: {python_fault(error)}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError, KeyError, TypeError) as error:
        said = f"{type(error).__name__}: " if isinstance(error, KeyError | TypeError) else ""
        raise UserError(f"{place}: cannot be read: {said}{' '.join(str(error).split())[:200]}") from None
    return found


def operator_name(text: str) -> str:
    """Return the name of an operator that is made of a problem's name."""
    name = re.sub(r"\W+", "_", re.sub(r"^\d+_", "", text), flags=re.ASCII).strip("_").lower()
    return name if name[:1].isalpha() else f"imported_{name}"


def licence(path: Path) -> str:
    """Return the licence of the folder that a problem lies in, or of one above it."""
    for folder in (path if path.is_dir() else path.parent, *list(path.resolve().parents)[:6]):
        for name in ("LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING"):
            if (folder / name).is_file():
                text = read_text(folder / name)[:3000].lower()
                return next(
                    (known for word, known in LICENCES.items() if word in text), f"see {name} of its repository"
                )
    return "not found"


def _named(path: Path) -> tuple[str, set[str]]:
    """A module's text, and the names that it gives to something."""
    text = read_text(path)
    return text, {each.get_name() for each in symtable(text, str(path), "exec").get_symbols() if each.is_assigned()}


def _module(path: Path, inputs: str) -> ForeignSource:
    text, names = _named(path)
    wanted = {"Model", "get_inputs"}
    if not wanted <= names:
        lacking = ", ".join(sorted(wanted - names))
        raise UserError(
            f"{path}: it defines no {lacking}, as a KernelBench problem does; for a function of your own write "
            f"{path}:FUNCTION --inputs {path}:MAKE_INPUTS"
        )
    if inputs:
        raise UserError("--inputs goes with module.py:function; a KernelBench problem has get_inputs()")
    if "get_init_inputs" not in names:
        text += "\n\ndef get_init_inputs():\n    return []\n"
    return ForeignSource(
        "KernelBench", operator_name(path.stem), path, {"kind": "module", "file": HERE}, {HERE: text}, licence(path)
    )


def _callable(path: Path, function: str, inputs: str) -> ForeignSource:
    text, names = _named(path)
    file, _, maker = inputs.rpartition(":")
    if not maker:
        raise UserError(f"{path}:{function}: say what makes its arguments: --inputs {path}:make_inputs")
    if file and Path(file).expanduser().resolve() != path.resolve():
        raise UserError(f"--inputs {inputs}: the function must stand in {path}, beside {function}")
    for name in (function, maker):
        if name not in names:
            raise UserError(f"{path}: it defines no {quote(name)}; it defines {', '.join(sorted(names)) or 'nothing'}")
    request = {"kind": "callable", "file": HERE, "function": function, "inputs": maker}
    return ForeignSource("PyTorch function", operator_name(function), path, request, {HERE: text}, licence(path))


def _folder(path: Path) -> ForeignSource:
    if (path / "definition.json").is_file():
        return _definition(path / "definition.json", path / "workload.jsonl")
    if (path / "task.yml").is_file() and (path / "reference.py").is_file():
        return _task(path)
    raise UserError(f"{path}: no problem is recognised in this folder; evo import takes {FORMATS}")


# --- definitions with axes ------------------------------------------------------------------------------------------


def _definition(path: Path, beside: Path | None) -> ForeignSource:
    raw = json.loads(read_text(path))
    if not isinstance(raw, dict) or not {"name", "axes", "inputs", "outputs", "reference"} <= raw.keys():
        raise UserError(f"{path}: no definition; it needs name, axes, inputs, outputs and reference")
    strange = sorted(
        {e["dtype"] for e in (*raw["inputs"].values(), *raw["outputs"].values()) if e["dtype"] not in PLAIN}
    )
    if strange:
        raise UserError(f"{path}: it has tensors of type {', '.join(strange)}, which there is no element type for yet")
    every = _workloads(path, raw, beside)
    lines = _spread(every)
    notes = [*_in_files(path.parent if beside else _above(path), every), *_differing(every)]
    if len(lines) < len(every):
        notes.append(f"{len(lines)} of {len(every)} workloads are taken, from the smallest to the largest")
    axes = raw["axes"]
    constants = {name: axis["value"] for name, axis in axes.items() if axis["type"] == "const"}
    first = lines[-1] if lines else None
    variable = [name for name, axis in axes.items() if axis["type"] == "var"]
    base = {name: first["axes"][name] if first else 64 for name in variable}
    entries = _entries(path, raw, first["inputs"] if first else {}, notes)
    derived = {name: axis["expression"] for name, axis in axes.items() if axis["type"] == "expr"}
    offsets = _offsets(raw)
    derived |= _told_by_others(raw, offsets)
    variable = [name for name in variable if name not in derived]
    for expression in derived.values():
        if not re.fullmatch(r"[\w\s+*/%()-]*", expression):
            raise UserError(f"{path}: the axis expression {quote(expression)} is no arithmetic")
    workloads = [{**constants, **line["axes"]} for line in lines] or [{**constants, **base}]
    sizes = {name: (constants | base)[name] for name in axes if name not in derived}
    request = {
        "kind": "axes", "file": HERE, "sizes": sizes, "constants": list(constants), "derived": derived,
        "chosen": [] if lines else variable, "rows": variable,
        "inputs": entries, "offsets": offsets, "custom": raw.get("custom_inputs_entrypoint"), "workloads": workloads,
    }  # fmt: skip
    name = "SOL-ExecBench" if beside else "FlashInfer Trace"
    call = {
        "definition": raw["name"],
        "arguments": list(raw["inputs"]),
        "outputs": list(raw["outputs"]),
        "workloads": lines,
    }
    files = {HERE: raw["reference"]}
    return ForeignSource(name, operator_name(raw["name"]), path, request, files, licence(path), notes, call)


def _entries(
    path: Path, raw: Mapping[str, Any], told: Mapping[str, Any], notes: list[str]
) -> dict[str, dict[str, Any]]:
    """The inputs of a definition by name, with what a workload told of them; `notes` gets what was assumed."""
    entries = {}
    scalars = {name: each["value"] for name, each in told.items() if each["type"] == "scalar"}
    for name, entry in raw["inputs"].items():
        value = scalars.get(name)
        if entry["shape"] is None and name not in scalars:
            if re.search(rf"\b{re.escape(name)} is (not )?None\b", raw["reference"]):
                notes.append(f"`{name}` has no value in a workload: it is None, for which the source has a default")
            elif re.fullmatch(r"eps(ilon)?|\w+_eps", name):
                value = EPSILON
                notes.append(f"`{name}` has no value in a workload: it is {EPSILON:g} here")
            elif default := _default(entry.get("description", ""), raw["axes"]):
                value, said = default
                notes.append(f"`{name}` has no value in a workload: it is {said} here, as its description says")
            else:
                raise UserError(
                    f"{path}: the number {quote(name)} has no value, as no workload gives it one; write a workload "
                    "with it to workload.jsonl beside it"
                )
        is_custom = told.get(name, {}).get("type") == "custom"
        entries[name] = {"shape": entry["shape"], "dtype": entry["dtype"], "value": value, "custom": is_custom}
        if name == "probs" and raw.get("op_type") == "sampling":  # as FlashInfer's own checker draws them
            entries[name]["shares"] = True
    return entries


def _default(description: str, axes: Mapping[str, Any]) -> tuple[float, str] | None:
    """The value that a description tells of a number as `1/sqrt(head_dim)`, and these words; None where it tells
    none."""
    constants = {name: axis["value"] for name, axis in axes.items() if axis["type"] == "const"}
    for told in re.findall(r"1 ?/ ?sqrt\(([\w +]+)\)", description):
        terms = [constants.get(term.strip(), term.strip()) for term in told.split("+")]
        if all(str(term).isdecimal() for term in terms):
            return 1 / math.sqrt(sum(map(int, terms))), f"1/sqrt({' + '.join(map(str, terms))})"
    return None


def _offsets(raw: Mapping[str, Any]) -> dict[str, str]:
    """The inputs that are offsets, and the axis that each ends at, as constraints tell it."""
    told = (re.fullmatch(r"(\w+) == (\w+)\[-1\]\.item\(\)", line) for line in raw.get("constraints") or ())
    return {each[2]: each[1] for each in told if each and each[1] in raw["axes"] and each[2] in raw["inputs"]}


def _told_by_others(raw: Mapping[str, Any], offsets: Mapping[str, str]) -> dict[str, str]:
    """The variable axes that follow from others: by a constraint, or, of offsets, by the description of their axis."""
    variable = {name for name, axis in raw["axes"].items() if axis["type"] == "var"}
    told = [line.split(" == ", 1) for line in raw.get("constraints") or () if " == " in line]
    for name in offsets:
        axis = raw["inputs"][name]["shape"][0]
        told += [[axis, each] for each in re.findall(r"\w+ \+ 1", raw["axes"][axis].get("description", ""))]
    found: dict[str, str] = {}
    for name, expression in told:
        other = re.fullmatch(r"(\w+) \+ \d+", expression)
        if name in variable and other and other[1] in variable - found.keys() - {name}:
            found.setdefault(name, expression)
    return found


def _workloads(path: Path, raw: Mapping[str, Any], beside: Path | None) -> list[dict[str, Any]]:
    """The workloads of a definition: those beside it, or in a data set's folder of its kind."""
    kinds = (str(raw.get("op_type", "")), path.resolve().parent.name)
    there = (_above(path) / "workloads" / kind / f"{raw['name']}.jsonl" for kind in kinds)
    place = next((each for each in ([beside] if beside else there) if each.is_file()), None)
    if place is None:
        return []
    lines = [json.loads(line) for line in read_text(place, 64 << 20).splitlines() if line.strip()]
    return [line.get("workload", line) for line in lines]


def _above(path: Path) -> Path:
    """The folder of the data set that holds a definition in `definitions/KIND/`."""
    above = path.resolve().parents
    return above[min(2, len(above) - 1)]


def _spread(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Workloads of different sizes, at most so many, from the smallest to the largest in even steps."""
    distinct: dict[str, dict[str, Any]] = {}
    for line in lines:
        distinct.setdefault(json.dumps(line["axes"], sort_keys=True), line)
    ordered = sorted(distinct.values(), key=lambda line: math.prod(line["axes"].values()))
    if len(ordered) <= MOST_WORKLOADS:
        return ordered
    return [ordered[step * (len(ordered) - 1) // (MOST_WORKLOADS - 1)] for step in range(MOST_WORKLOADS)]


def _in_files(place: Path, lines: list[dict[str, Any]]) -> Iterator[str]:
    """A line that tells which inputs of workloads lie in files, whose paths begin at `place`."""
    told = [[(n, i["path"]) for n, i in line["inputs"].items() if i["type"] == "safetensors"] for line in lines]
    found = [each for each in told if each]
    if found:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for each in found for name, _ in each))
        first = Path(found[0][0][1])
        why = "not read" if (place / first).exists() else "not here"
        yield (
            f"in {len(found)} of {len(lines)} workloads {names} lie in files of {first.parent}, which are {why}: they "
            "are drawn by distributions instead"
        )


def _differing(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each number that workloads give several values, other than by rounding to fp32."""
    values: dict[str, set[Any]] = {}
    for line in lines:
        for name, given in line["inputs"].items():
            if given["type"] == "scalar":
                values.setdefault(name, set()).add(given["value"])
    for name, found in values.items():
        if max(found) - min(found) > ROUNDED * max(map(abs, found)):
            yield f"workloads give `{name}` {len(found)} values: the one of the largest workload is taken for all"


# --- GPU MODE ---------------------------------------------------------------------------------------------------------


def _task(path: Path) -> ForeignSource:
    specs = _specs(read_text(path / "task.yml"))
    if not specs:
        raise UserError(f"{path / 'task.yml'}: it lists no tests and no benchmarks with arguments")
    files = {HERE: read_text(path / "reference.py")}
    for folder in (path, path.parent):
        for each in ("task.py", "utils.py"):
            if (folder / each).is_file():
                files.setdefault(each, read_text(folder / each))
    smallest = min(specs, key=lambda s: math.prod(v for n, v in s.items() if type(v) is int and n != "seed" and v > 0))
    request = {"kind": "spec", "file": HERE, "spec": smallest, "workloads": specs[-MOST_WORKLOADS:]}
    name = operator_name(re.sub(r"_py$", "", path.name))
    return ForeignSource("GPU MODE", name, path, request, files, licence(path))


def _specs(text: str) -> list[dict[str, Any]]:
    """The arguments of tests and benchmarks: each a JSON table on a line of its own, as all tasks write them."""
    found = []
    for section in ("tests", "benchmarks"):
        match = re.search(rf"^{section}:\s*\n((?:[ \t]+.*\n?|\s*\n)*)", text, re.M)
        for line in match[1].splitlines() if match else ():
            table = re.match(r"\s*-\s*(\{.*\})\s*$", line)
            if table:
                spec = json.loads(
                    re.sub(r"([{,]\s*)(\w+)\s*:", r'\1"\2":', table[1])
                    .replace("True", "true")
                    .replace("False", "false")
                )
                found.append(spec)
    return found
