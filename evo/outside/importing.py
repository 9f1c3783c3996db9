"""Problems of others, made operators: they are looked at once, in a jail, and only data comes back."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fitness.sandbox.foreign import MEMORY_BYTES, furnished
from fitness.sandbox.processes import run_confined
from operators.definition.spec import IDENTIFIER
from operators.errors import OperatorError, UserError, quote
from operators.expression import ExpressionError
from operators.files import read_text
from operators.importing.readers import FUNCTION, ForeignSource, read

LOOK_S = 900.0
"""Seconds of wall time that a look at a problem may take."""
RESULT_BYTES = 16 << 20


def import_problem(source: str, *, inputs: str = "", name: str = "", out: Path | None = None) -> tuple[Path, list[str]]:
    """Write the operator that a foreign problem describes; return its folder and what a user should know of it.

    It raises UserError with one line where the problem cannot be read, or is none.
    """
    return made_operator(read(source, inputs), source, name=name, out=out)


def made_operator(
    problem: ForeignSource, source: str, *, name: str = "", out: Path | None = None
) -> tuple[Path, list[str]]:
    """Write the operator of a problem that was read, as `import_problem` does; `source` is the user's word for it."""
    name = name or problem.name
    if not IDENTIFIER.fullmatch(name):
        raise UserError(f"--name {name}: a name has letters, digits and _, a letter first")
    folder = out or Path(name)
    if folder.exists():
        raise UserError(f"{folder} is there already; name another folder with --out")
    from operators.importing.folder import write  # it loads torch, which a run of known operators does without

    found = look(problem)
    try:
        return folder, write(problem, found, folder, name)
    except (OperatorError, ExpressionError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{source}: what a look at it found is no operator: {' '.join(str(error).split())[:200]}"
        ) from None


def operators_of(named: Sequence[str]) -> list[str]:
    """The operators that a user names. Foreign problems are imported first, once each.

    A problem becomes a folder here; those of a pattern, such as `KernelBench/KernelBench/level1/*.py`, folders in
    `imported/`, where one that cannot be read is left out with a line. It raises UserError.
    """
    return [operator for name in named for operator in (_set(name) if "*" in name else [operator_of(name)])]


def _set(pattern: str) -> Iterator[str]:
    path = Path(pattern).expanduser()
    problems = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not problems:
        raise UserError(
            f"{pattern}: no file is there; clone the repository of these problems first, into the folder where you "
            "work, or name the place where they lie"
        )
    for problem in problems:
        try:
            yield operator_of(str(problem), Path("imported", problem.parent.name))
        except UserError as error:
            print(f"{problem}: left out: {error}", file=sys.stderr)


def operator_of(named: str, place: Path = Path()) -> str:
    """The operator that a user names: a foreign problem is imported first, into a folder in `place`, once."""
    path = Path(named).expanduser()
    foreign = path.suffix in (".py", ".json") or any(
        (path / file).is_file() for file in ("task.yml", "definition.json")
    )
    if FUNCTION.search(named):
        raise UserError(
            f"{named}: make an operator of it first: evo import {named} --inputs {named.rpartition(':')[0]}:NAME"
        )
    if not foreign:
        return named
    from operators.importing.folder import holds

    problem = read(named)
    folder = place / problem.name
    if not holds(folder, problem):
        place.mkdir(parents=True, exist_ok=True)
        for line in import_problem(named, out=folder)[1]:
            print(f"{named}: assumed: {line}", file=sys.stderr)
    return f"./{folder}"


def look(problem: ForeignSource) -> Mapping[str, Any]:
    """The description of a problem, by a process of its own without network or files. Raises UserError."""
    with tempfile.TemporaryDirectory(prefix="evo-import-") as place:
        try:
            environment, readable = furnished(place, {**problem.files, "request.json": json.dumps(problem.request)})
        except FileExistsError:
            raise UserError(f"{problem.origin}: its package `operators` has the name of one of ours") from None
        command = [sys.executable, "-m", "operators.importing.looking"]
        outcome = run_confined(
            command, cwd=place, timeout_s=LOOK_S, memory_bytes=MEMORY_BYTES, file_bytes=RESULT_BYTES,
            readable=readable, alone=True, environment=environment,
        )  # fmt: skip
        try:
            found = json.loads(read_text(Path(place, "result.json"), RESULT_BYTES))
        except (OSError, ValueError, RecursionError):
            found = None
    where = problem.origin
    if outcome.timed_out:
        raise UserError(f"{where}: its source takes longer than {LOOK_S:g} s to be looked at")
    if not isinstance(found, dict):
        last = (outcome.output.strip().splitlines() or ["nothing was said"])[-1]
        raise UserError(f"{where}: its source ended the process that looked at it: {quote(last, 160)}")
    if "failed" in found:
        raise UserError(f"{where}: {' '.join(str(found['failed']).split())[:400]}")
    return found
