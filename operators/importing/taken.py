"""A function of a user's repository with recorded calls, read as a problem: what it needs of its source, and its calls.

Only text is read here; nothing of the repository is executed.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operators.errors import UserError
from operators.files import python_fault, read_text
from operators.importing.needed import HERE, needed, package_of, source_digest
from operators.importing.readers import MOST_WORKLOADS, PLAIN, ForeignSource, licence, operator_name

RECORD_FORMAT = 1
NO_RECORD = "it is no record of calls, as evo record writes it"


def function_in(named: str) -> tuple[Path, str]:
    """Return file and name of `FILE:NAME`, a function at the top of a Python file. It raises UserError."""
    path, name = file_and_name(named)
    definition(path, name)
    return path, name


def file_and_name(named: str) -> tuple[Path, str]:
    """Return the parts of `FILE:NAME`, whether they are there or not. It raises UserError."""
    place, _, name = named.rpartition(":")
    path = Path(place).expanduser()
    if not re.fullmatch(r"\w+", name) or path.suffix != ".py":
        raise UserError(f"{named}: write FILE.py:FUNCTION")
    return path.absolute(), name


def definition(path: Path, name: str) -> tuple[str, ast.FunctionDef]:
    """Return a file's text and the definition of the function in it. It raises UserError."""
    try:
        text = read_text(path)
        tree = ast.parse(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise UserError(f"{path}: {python_fault(error)}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {' '.join(str(error).split())[:200]}") from None
    found = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    if not found:
        known = ", ".join(each.name for each in tree.body if isinstance(each, ast.FunctionDef)) or "none"
        raise UserError(
            f"{path}: no function {name} stands at its top ({known}); of a class or of an extension, name the Python "
            "function that is called"
        )
    if any("triton" in ast.unparse(each) or ast.unparse(each) == "jit" for each in found[-1].decorator_list):
        raise UserError(f"{path}:{name} is a Triton kernel: name the Python function that launches it")
    return text, found[-1]


def taken(named: str, shapes: Path, reference: str = "") -> ForeignSource:
    """Return the problem that a function and a record of its calls are. It raises UserError with one line.

    `reference`: another FILE:NAME that computes the same in torch, where the function itself launches a kernel.
    """
    path, name = function_in(named)
    source, function = function_in(reference) if reference else (path, name)
    record = _record(shapes)
    where = f"{path}:{name}"
    if Path(record["function"]).as_posix() != where:
        raise UserError(f"{shapes}: it is a record of {record['function']}, not of {where}")
    try:
        calls, notes = _one_kind(record["calls"], where)
        arguments, keyword_only = calls[0]["arguments"], calls[0]["keyword_only"]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{shapes}: {NO_RECORD}") from None
    files = needed(source, function)
    package, _ = package_of(source)
    constants = {key: each for key, each in arguments.items() if "shape" not in each and not _inside(each)}
    request = {
        "kind": "recorded", "file": HERE, "package": package, "function": function, "calls": calls,
        "keyword_only": keyword_only,
    }  # fmt: skip
    call = {"into": where, "source": source_digest(path, name), "arguments": list(arguments), "constants": constants}
    call["workloads"] = calls
    return ForeignSource("recorded calls", operator_name(name), source, request, files, licence(source), notes, call)


def _record(shapes: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_text(shapes, 256 << 20))
        if found["format"] == RECORD_FORMAT and found["calls"]:
            return dict(found)
    except OSError as error:
        raise UserError(f"{shapes}: cannot be read: {error.strerror}; evo record FILE:NAME writes it") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UserError(f"{shapes}: {NO_RECORD}")


def _inside(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The descriptions of tensors in a description."""
    if "shape" in told:
        return [told]
    members = told.get("list") or told.get("tuple") or list(told.get("dict", {}).values())
    return [tensor for each in members for tensor in _inside(each)]


def _tensors(call: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tensor for told in call["arguments"].values() for tensor in _inside(told)]


def _kind(told: Any) -> Any:
    """A description without sizes, strides and values of tensors."""
    if isinstance(told, dict) and "shape" in told:
        return [len(told["shape"]), told["dtype"]]
    if isinstance(told, dict):
        return {key: _kind(each) for key, each in told.items()}
    return [_kind(each) for each in told] if isinstance(told, list) else told


def _fault(call: Mapping[str, Any]) -> str:
    """Why no operator can serve a call; empty where one can."""
    tensors = _tensors(call)
    if '"object"' in json.dumps(call["arguments"]):
        return "have arguments that are neither tensors nor numbers"
    if not tensors or any(not math.prod(tensor["shape"]) for tensor in tensors):
        return "have no tensor, or an empty one"
    strange = {tensor["dtype"] for tensor in tensors} - PLAIN
    return f"have tensors of type {min(strange)}" if strange else ""


def _one_kind(calls: Sequence[Mapping[str, Any]], where: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The calls that one operator serves, the largest first, which work most; and what a user should know of the rest.

    They have the same types, axes and numbers; calls of the same sizes are one, their counts added.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    left: dict[str, int] = {}
    for call in calls:
        if reason := _fault(call):
            left[reason] = left.get(reason, 0) + call["count"]
        else:
            kinds.setdefault(json.dumps(_kind(call["arguments"]), sort_keys=True), []).append(call)
    if not kinds:
        said = "; ".join(f"{count} {reason}" for reason, count in left.items())
        raise UserError(f"{where}: none of the recorded calls can be an operator's: {said}")

    def elements(call: Mapping[str, Any]) -> int:
        return sum(math.prod(tensor["shape"]) for tensor in _tensors(call))

    best, *others = sorted(kinds.values(), key=lambda kind: -sum(elements(c) * c["count"] for c in kind))
    if others:
        left["have other types, axes or numbers than those that work most"] = sum(c["count"] for o in others for c in o)
    sparse = sum(c["count"] for c in best if not all(tensor["dense"] for tensor in _tensors(c)))
    gradients = sum(c["count"] for c in best if c["grad"])
    merged: dict[str, dict[str, Any]] = {}
    for call in best:
        known = merged.setdefault(str([tensor["shape"] for tensor in _tensors(call)]), {**call, "count": 0})
        known["count"] += call["count"]
    kept = sorted(merged.values(), key=lambda call: -elements(call) * call["count"])
    for call in kept[MOST_WORKLOADS:]:
        left[f"are of sizes that work less than {MOST_WORKLOADS} others"] = (
            left.get(f"are of sizes that work less than {MOST_WORKLOADS} others", 0) + call["count"]
        )
    kept = sorted(kept[:MOST_WORKLOADS], key=lambda call: -elements(call))
    notes = [f"{count} of the recorded calls {reason}: they are left out" for reason, count in left.items()]
    if sparse:
        notes.append(f"{sparse} calls have tensors that are not contiguous: kernels are given contiguous ones")
    if gradients:
        notes.append(f"{gradients} calls want gradients, which a kernel has none for: they stay with the function")
    return kept, notes
