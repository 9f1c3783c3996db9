"""Statements that a function of a user's repository refers to there, read as text and never executed.

The folders that `evo put` makes carry this module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from operators.files import read_text
from operators.identity import digest

HERE = "problem.py"
"""The file that holds a problem where it is looked at."""
MARK = "# kernel-evo: "
"""Lines that end with it and a function's name are those by which `evo put` put a kernel in the function's place."""


def needed(path: Path, name: str) -> dict[str, str]:
    """The texts, by file, of all that a function refers to in its repository: statements at the top of its file, and
    of modules that these import from there.

    What else those files hold, such as the compilation of an extension, is left out.
    """
    _, root = package_of(path)
    wanted: dict[Path, set[str] | None] = {path: {name}}
    texts: dict[Path, str] = {}
    while True:
        before = dict(wanted)
        for each, names in before.items():
            texts[each], imported = _statements(each, names, root)
            for module, more in imported:
                known = wanted.get(module, set())
                wanted[module] = None if more is None or known is None else known | more
        if wanted == before:
            return {HERE if each == path else str(each.relative_to(root)): text for each, text in texts.items()}


def source_digest(path: Path, name: str) -> str:
    """Return the digest of a function's definition and of all that it refers to in its repository."""
    return digest(*needed(path, name).values())


def without_marks(text: str, name: str = r"\w+") -> str:
    """Return a file's text without the lines that `evo put` wrote, of one function or of all."""
    return re.sub(rf"^.*{MARK}{name}\r?\n", "", text, flags=re.M)


def package_of(path: Path) -> tuple[str, Path]:
    """Return the package that a file stands in, empty for none, and the folder that its imports begin from."""
    parts, folder = [], path.absolute().parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        parts.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(parts)), folder


Imports = list[tuple[Path, set[str] | None]]
"""Modules of the repository, and the names that are wanted of each; None: all."""


def _statements(path: Path, names: set[str] | None, root: Path) -> tuple[str, Imports]:
    """The statements at the top of a file that these names need, and what they import from the repository."""
    text = without_marks(read_text(path))
    tree, lines = ast.parse(text), text.split("\n")
    kept: set[int] = set()
    waiting = [name for each in tree.body for name in _bound(each)] if names is None else list(names)
    known: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        known.add(name)
        for index, statement in enumerate(tree.body):
            if index not in kept and name in _bound(statement):
                kept.add(index)
                waiting += [each.id for each in ast.walk(statement) if isinstance(each, ast.Name)]
    written, imported = [], []
    for index, statement in enumerate(tree.body):
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if index in kept or future:
            first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
            written.append("\n".join(lines[first - 1 : statement.end_lineno]))
            imported += [found for each in ast.walk(statement) for found in _imported(each, path, root, known)]
    return "\n\n".join(written) + "\n", imported


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives values to, those inside of a function or a class aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.partition(".")[0] for each in statement.names}
    found = {statement.id} if isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store) else set()
    return found.union(*map(_bound, ast.iter_child_nodes(statement)))  # type: ignore[arg-type]


def _imported(node: ast.AST, path: Path, root: Path, known: set[str]) -> Iterator[tuple[Path, set[str] | None]]:
    """The files of the repository that an import statement reads, and the names that it takes from each."""
    if isinstance(node, ast.Import):
        for each in node.names:
            if (each.asname or each.name.partition(".")[0]) in known and (module := _module(root, each.name)):
                yield module, None
    elif isinstance(node, ast.ImportFrom):
        base = path.absolute().parents[node.level - 1] if node.level else root
        module = _module(base, node.module or "")
        for each in node.names:
            if (each.asname or each.name) not in known:
                continue
            if inner := _module(base, ".".join(filter(None, [node.module, each.name]))):
                yield inner, None
            elif module:
                yield module, {each.name}


def _module(base: Path, dotted: str) -> Path | None:
    place = base.joinpath(*dotted.split(".")) if dotted else base
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()), None)
