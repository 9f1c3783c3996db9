"""The fingerprint of an operator: digests of all in its folder that decides verdicts, checked by a resume."""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from operators.definition.reading import declared
from operators.definition.spec import Operator, sets_of
from operators.errors import OperatorError
from operators.files import read_bytes
from operators.identity import digest
from operators.libraries import LIBRARIES

DECIDING = ("name", "dims", "derived", "data_dims", "tensor", "scalar", "workload", "hidden", "cost", "tolerance")
"""Keys of operator.toml that decide verdicts; the rest is for readers, or says which tasks there are."""
PROSE = {"workload": {"source", "weight"}, "hidden": {"source"}, "cost": {"flops", "bytes"}}
"""Keys of these that reports alone go by."""
MAX_BYTES = 64 << 20
"""The largest file beside reference.py, which may be data, in bytes."""
OTHERS = {".md", ".rst", ".cpp", ".cu", ".cuh", ".hpp", ".h"}
"""Endings of files that decide nothing: notes, and kernels that the search starts from."""


def fingerprint(operator: Operator, *, target: str, workload_set: str) -> dict[str, str]:
    """Digests by `operator.toml: key` or file name: what verdicts on this target and workload set go by.

    Of Python, comments and empty lines do not count; of the naive kernel every character does, for it is another
    kernel then. Raises OperatorError.
    """
    found = {f"operator.toml: {key}": value for key, value in _declared(operator, workload_set)}
    naive = operator.ancestor("naive", target)
    try:
        for path in sorted(operator.folder.iterdir()):
            kept = path == naive or not (path.suffix in OTHERS or path.name.startswith(".") or path.name[-1] == "~")
            if kept and path.is_file() and path.name not in ("operator.toml", LIBRARIES):
                found[path.name] = digest(_code(path) if path.suffix == ".py" else read_bytes(path, MAX_BYTES))
    except OSError as error:
        raise OperatorError(f"{operator.folder}: cannot be read: {error}") from None
    return found


def _declared(operator: Operator, workload_set: str) -> Iterator[tuple[str, str]]:
    table = declared(operator.folder)
    table["workload"] = [entry for entry in table["workload"] if entry["set"] in sets_of(workload_set)]
    for key in DECIDING:
        yield key, digest(json.dumps(_without_prose(table[key], PROSE.get(key, set())), sort_keys=True))


def _without_prose(value: Any, prose: Set[str]) -> Any:
    """The table, or each of a list of tables, without these keys of its own: a dim may have any name."""
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if key not in prose}
    return [_without_prose(inner, prose) for inner in value] if isinstance(value, list) else value


def _code(path: Path) -> bytes:
    """A Python file without its comments and empty lines."""
    content = read_bytes(path)
    try:
        lines = content.decode("utf-8").split("\n")
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (UnicodeDecodeError, tokenize.TokenError, SyntaxError):
        return content
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()
