"""Runs a user's program and records the calls of one of its functions."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evo.repository import recorder
from fitness.install import evo_command
from operators.errors import UserError
from operators.files import read_text, writing
from operators.importing.needed import without_marks
from operators.importing.taken import RECORD_FORMAT, function_in

SEEN_ALONE = {"TORCHDYNAMO_DISABLE": "1"}
"""Settings for the program: what is compiled ahead is called by no Python, so that no call of it would be seen."""


def record(named: str, command: Sequence[str], out: Path) -> tuple[int, list[dict[str, Any]], int]:
    """Run a command and write the calls of `FILE:NAME` in its Python processes to `out`.

    Return the command's exit code, the calls by kind, the most frequent first, and the number of others that were not
    kept. Nothing is written where no call was seen. It raises UserError.
    """
    path, name = function_in(named)
    if without_marks(text := read_text(path), name) != text:
        raise UserError(f"{named}: a kernel serves its calls: {evo_command('put', '--undo', '--into', named)} first")
    if not command:
        raise UserError(f"evo record {named}: write the command after --, such as: -- python train.py")
    with tempfile.TemporaryDirectory(prefix="evo-record-") as place:
        hooks, seen = Path(place, "hooks"), Path(place, "seen")
        hooks.mkdir()
        seen.mkdir()
        shutil.copyfile(recorder.__file__, hooks / "sitecustomize.py")
        told = {"EVO_RECORD_FILE": os.path.realpath(path), "EVO_RECORD_NAME": name, "EVO_RECORD_FOLDER": str(seen)}
        paths = os.pathsep.join([str(hooks), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            done = subprocess.run(
                command, env={**os.environ, **SEEN_ALONE, **told, "PYTHONPATH": paths}, check=False
            )  # the user's own program, as the user
        except OSError as error:
            raise UserError(f"{command[0]}: cannot be run: {error.strerror}") from None
        records = [json.loads(each.read_text(encoding="utf-8")) for each in sorted(seen.glob("*.json"))]
    calls, others = _joined(records), sum(each["others"] for each in records)
    if calls:
        said = {"format": RECORD_FORMAT, "function": f"{path}:{name}", "calls": calls, "others": others}
        with writing(out):
            out.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return done.returncode, calls, others


def _joined(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The calls of all processes, counts of the same kind added."""
    kinds: dict[str, dict[str, Any]] = {}
    for call in (call for record in records for call in record["calls"]):
        key = json.dumps([_bare(call["arguments"]), call["grad"]], sort_keys=True)
        if key in kinds:
            kinds[key]["count"] += call["count"]
        else:
            kinds[key] = call
    return sorted(kinds.values(), key=lambda call: -call["count"])


def _bare(value: Any) -> Any:
    """Descriptions without the ranges of values."""
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items() if key not in ("low", "high", "mean", "std")}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def signature(arguments: Mapping[str, Any]) -> str:
    """A call in one line: `x float32[64, 256], eps=1e-05`."""
    return ", ".join(_told(name, each) for name, each in arguments.items())


def _told(name: str, each: Mapping[str, Any]) -> str:
    if "shape" in each:
        layout = "" if each["dense"] else f", strides {each['stride']}"
        return f"{name} {each['dtype']}{each['shape']}{layout}"
    return f"{name}={ast.unparse(ast.Constant(each['value'])) if 'value' in each else next(iter(each))}"
