"""The engine's own modules, as packages of kernels carry them: copied with their imports made relative, else unchanged.

So a package reads, resolves and launches a plan with the code that the engine judged the kernel with.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("operators", "fitness")
ENGINE = "engine"
"""The folder in a package that they lie in."""
_IMPORT = re.compile(rf"^(\s*)from ((?:{'|'.join(OURS)})(?:\.\w+)*) import ", re.MULTILINE)
NOTE = "# A copy of kernel-evo's {module}, its imports made relative; Apache-2.0, see LICENSE.\n"


def vendored(*roots: str) -> dict[str, str]:
    """Return the files, by path in the package, of these modules and of all of ours that they import."""
    files: dict[str, str] = {}
    for module in _closure(roots):
        path = Path(ENGINE, *module.split("."))
        files[f"{path}.py"] = relative(module, _path(module).read_text(encoding="utf-8"), "." * (module.count(".") + 1))
        for folder in path.parents:
            if folder != Path():
                files.setdefault(str(folder / "__init__.py"), '"""Parts of kernel-evo that this kernel needs."""\n')
    return dict(sorted(files.items()))


def relative(module: str, text: str, prefix: str) -> str:
    """Return a module's text with imports of ours relative; `prefix` leads from it to the folder that holds them."""
    return NOTE.format(module=module) + _IMPORT.sub(rf"\1from {prefix}\2 import ", text)


def _closure(roots: tuple[str, ...]) -> Mapping[str, None]:
    found: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += _imported(module)
    return dict.fromkeys(sorted(found))


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(_path(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import) and any(name.name.split(".")[0] in OURS for name in node.names):
            raise ValueError(f"{module} says `import {node.names[0].name}`; packages copy `from ... import ...` alone")
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            inside = [f"{node.module}.{name.name}" for name in node.names]
            yield from [name for name in inside if _path(name).is_file()] or [node.module]


def _path(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")
