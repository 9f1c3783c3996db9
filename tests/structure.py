"""Figures of the product's shape: how large files, classes and functions are, and how much of it is explained.

    python -m tests.structure

Lines of a body are those that hold code: blank lines, comments and docstrings do not count. A method without a
docstring counts as documented where a method of the same name in another class has one: a base class or protocol says
what it does. Functions of the operators' own Python are left out, as `operators.catalog.FUNCTIONS` describes them.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from operators.catalog import FUNCTIONS
from tests.garbage import no_garbage_collected

ROOT = Path(__file__).parent.parent
PACKAGES = ("operators", "fitness", "mutators", "evo")
SQL = re.compile(r"\b(?:select\b.+?\bfrom|insert\s+into|delete\s+from|update\s+\w+\s+set)\b", re.IGNORECASE | re.DOTALL)
ASKS_STORES = ("evo.store.", "evo.rows")
"""Modules that may hold SQL: these and what is below them."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the product's Python."""

    path: Path
    tree: ast.Module
    text: str

    @cached_property
    def place(self) -> str:
        """Its path from the repository's root."""
        return str(self.path.relative_to(ROOT))

    @cached_property
    def name(self) -> str:
        """The name by which `import` calls it."""
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    @property
    def is_operators_own(self) -> bool:
        """Whether it belongs to one operator, or some share it: it stands in the folder of a family, or in shared/."""
        first, _, rest = self.name.partition(".")
        return first == "operators" and "." in rest and not rest.startswith(("definition.", "plan.", "importing."))

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def comment_lines(self) -> frozenset[int]:
        """Lines that hold a comment which is none for tools (`noqa`, `type: ignore`, `fmt: skip`) alone."""
        tools = ("# noqa", "# type:", "# fmt:")
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return frozenset(t.start[0] for t in tokens if t.type == tokenize.COMMENT and not t.string.startswith(tools))

    @cached_property
    def code_lines(self) -> frozenset[int]:
        """Lines that hold code, those of docstrings left out."""
        empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in empty:
                code.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return frozenset(code)

    def body_lines(self, function: Function) -> int:
        """Lines of code in a function's body."""
        return len(self.code_lines & set(range(function.body[0].lineno, (function.end_lineno or 0) + 1)))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Every function and method, those within others too."""
        return tuple(n for n in self.nodes if isinstance(n, Function))

    @cached_property
    def classes(self) -> tuple[ast.ClassDef, ...]:
        """Every class."""
        return tuple(n for n in self.nodes if isinstance(n, ast.ClassDef))

    @cached_property
    def imported_at_all(self) -> frozenset[tuple[str, str]]:
        """The same as `imported`, of all imports that the file holds."""
        names: set[tuple[str, str]] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names.update((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.update((node.module or "", alias.name) for alias in node.names)
        return frozenset(names)

    @property
    def holds_sql(self) -> bool:
        """Whether a string of it, docstrings left out, is SQL or a part of some."""
        said = {id(n.value) for n in self.nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        strings = (n for n in self.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        return any(SQL.search(str(n.value)) for n in strings if id(n) not in said)

    @property
    def public(self) -> Iterator[tuple[str, Function | ast.ClassDef, bool]]:
        """(name, node, whether it is a method) of what others may use: nothing within functions or `_Classes`."""
        yield from self._public(self.tree, "")

    def _public(self, holder: ast.AST, prefix: str) -> Iterator[tuple[str, Function | ast.ClassDef, bool]]:
        for node in ast.iter_child_nodes(holder):
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_") and not _repeated(node):
                yield f"{prefix}{node.name}", node, isinstance(holder, ast.ClassDef)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from self._public(node, f"{prefix}{node.name}.")

    @property
    def swallowing(self) -> Iterator[int]:
        """Lines of handlers that catch everything and do not raise."""
        for node in self.nodes:
            if (
                isinstance(node, ast.ExceptHandler)
                and _is_broad(node.type)
                and not any(_raises(n) for statement in node.body for n in ast.walk(statement))
            ):
                yield node.lineno

    @cached_property
    def imported(self) -> frozenset[tuple[str, str]]:
        """(module, name) of what is imported when this module is, so not within functions or for type checkers alone.

        The name is empty where the module is imported as a whole.
        """
        names: set[tuple[str, str]] = set()
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                names.update((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.update((node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                waiting += node.orelse
            elif not isinstance(node, Function):
                waiting += ast.iter_child_nodes(node)
        return frozenset(names)


def _repeated(node: Function | ast.ClassDef) -> bool:
    """Whether it is a property's setter or one of the signatures of an overload, whose other half is documented."""
    words = [ast.unparse(d).split(".")[-1] for d in node.decorator_list]
    return "setter" in words or "overload" in words


def _raises(node: ast.AST) -> bool:
    """Whether it is a `raise`, or a call of `sys.exit`, which is one."""
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "sys.exit")


def _is_broad(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(ast.unparse(k) in ("Exception", "BaseException") for k in kinds)


@dataclass(frozen=True)
class Structure:
    """The modules of some packages."""

    modules: tuple[Module, ...]

    @classmethod
    def read(cls, packages: Sequence[str] = PACKAGES) -> Structure:
        """The modules as they stand in this checkout."""
        paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
        texts = [(path, path.read_text(encoding="utf-8")) for path in paths]
        with no_garbage_collected():
            return cls(tuple(Module(path, ast.parse(text), text) for path, text in texts))

    @property
    def file_lines(self) -> dict[str, int]:
        """Lines of each file."""
        return {module.place: module.lines for module in self.modules}

    @property
    def class_lines(self) -> dict[str, int]:
        """Lines of each class, docstrings and comments included."""
        return {
            f"{module.place}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
            for module in self.modules
            for node in module.classes
        }

    @property
    def body_lines(self) -> dict[str, int]:
        """Lines of code of each function's body."""
        return {
            f"{module.place}:{function.lineno}:{function.name}": module.body_lines(function)
            for module in self.modules
            for function in module.functions
        }

    @property
    def swallowing(self) -> list[str]:
        """Places of handlers that catch everything and do not raise."""
        return [f"{module.place}:{line}" for module in self.modules for line in module.swallowing]

    @property
    def public(self) -> dict[str, bool]:
        """Public functions, methods and classes by place, and whether they are documented."""
        described = {
            node.name
            for module in self.modules
            for holder in module.classes
            for node in holder.body
            if isinstance(node, Function) and ast.get_docstring(node)
        }
        return {
            f"{module.place}:{node.lineno}:{name}": bool(ast.get_docstring(node)) or (method and node.name in described)
            for module in self.modules
            for name, node, method in module.public
            if not (name in FUNCTIONS and module.is_operators_own)
        }

    @property
    def comments(self) -> float:
        """Lines with a comment, per 100 lines of code."""
        code = sum(len(module.code_lines) for module in self.modules)
        return 100 * sum(len(module.comment_lines) for module in self.modules) / max(code, 1)

    @cached_property
    def names(self) -> dict[str, Module]:
        """Every module, by what `import` calls it."""
        return {module.name: module for module in self.modules}

    def _known(self, imported: frozenset[tuple[str, str]]) -> set[str]:
        return {f"{m}.{n}" if f"{m}.{n}" in self.names else m for m, n in imported} & self.names.keys()

    @property
    def cycles(self) -> list[tuple[str, ...]]:
        """Modules that import each other in a circle, one circle each time one is closed."""
        return circles({name: sorted(self._known(module.imported)) for name, module in self.names.items()})

    def room(self, name: str) -> str:
        """The package that a module stands in; one that stands directly in one of PACKAGES is a room of its own."""
        is_package = name in self.names and self.names[name].path.name == "__init__.py"
        return name if is_package or name.count(".") < 2 else name.rpartition(".")[0]

    @property
    def rooms(self) -> dict[str, dict[str, list[str]]]:
        """Which rooms each room imports from, at load time or later, and which modules do; operators' own left out."""
        found: dict[str, dict[str, list[str]]] = {}
        for name, module in self.names.items():
            if not module.is_operators_own:
                arrows = found.setdefault(self.room(name), {})
                for other in self._known(module.imported_at_all):
                    if self.room(other) != self.room(name):
                        arrows.setdefault(self.room(other), []).append(name)
        return found

    @property
    def room_cycles(self) -> list[tuple[str, ...]]:
        """Rooms that import each other in a circle."""
        return circles({room: sorted(arrows) for room, arrows in self.rooms.items()})

    @property
    def folders(self) -> Counter[str]:
        """Modules in each folder, `__init__.py` and `__main__.py` left out."""
        return Counter(
            str(module.path.parent.relative_to(ROOT))
            for module in self.modules
            if not module.path.stem.startswith("__") and not module.is_operators_own
        )

    @property
    def single(self) -> dict[str, bool]:
        """Modules, packages and operators' own left out, and whether exactly one other module imports each."""
        importers: dict[str, set[str]] = defaultdict(set)
        for name, module in self.names.items():
            for other in self._known(module.imported_at_all) - {name}:
                importers[other].add(name)
        return {
            module.place: len(importers[name]) == 1
            for name, module in self.names.items()
            if not module.path.stem.startswith("__") and not module.is_operators_own
        }

    @property
    def namesakes(self) -> dict[str, list[str]]:
        """Names that several public classes have, with the modules of these."""
        found: dict[str, list[str]] = defaultdict(list)
        for module in self.modules:
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not module.is_operators_own:
                    found[node.name].append(module.place)
        return {name: places for name, places in sorted(found.items()) if len(places) > 1}

    @property
    def with_sql(self) -> list[str]:
        """Modules that hold SQL and are none of those that ask stores."""
        asks = tuple(ASKS_STORES)
        return [m.place for m in self.modules if m.holds_sql and not f"{m.name}.".startswith(asks)]


def circles(graph: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Circles of a graph, one each time one is closed."""
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    for name in graph:
        _search(name, (), graph, done, found)
    return found


def _search(
    name: str, trail: tuple[str, ...], graph: Mapping[str, Sequence[str]], done: set[str], found: list[tuple[str, ...]]
) -> None:
    if name in trail:
        found.append((*trail[trail.index(name) :], name))
    elif name not in done:
        for other in graph.get(name, ()):
            _search(other, (*trail, name), graph, done, found)
        done.add(name)


def share(marks: Mapping[str, bool]) -> float:
    """Percent of them that hold."""
    return 100 * sum(marks.values()) / max(len(marks), 1)


def percentile(values: Sequence[int], percent: float) -> int:
    """The smallest value that at least so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def table() -> list[tuple[str, ...]]:
    """Rows of figures, a column for each package and one for all."""
    parts = [Structure.read((package,)) for package in PACKAGES] + [Structure.read()]
    rows: list[tuple[str, Sequence[object]]] = [
        ("modules", [len(part.modules) for part in parts]),
        ("lines", [sum(part.file_lines.values()) for part in parts]),
        ("lines of code", [sum(len(module.code_lines) for module in part.modules) for part in parts]),
        ("largest file", [max(part.file_lines.values()) for part in parts]),
        ("largest class", [max(part.class_lines.values()) for part in parts]),
        ("body p95", [percentile(list(part.body_lines.values()), 95) for part in parts]),
        ("body max", [max(part.body_lines.values()) for part in parts]),
        ("broad handlers that do not raise", [len(part.swallowing) for part in parts]),
        ("public with docstring, %", [f"{share(part.public):.1f}" for part in parts]),
        ("comments per 100 code lines", [f"{part.comments:.1f}" for part in parts]),
        ("import cycles", [len(part.cycles) for part in parts]),
        ("import cycles of packages", [len(part.room_cycles) for part in parts]),
        ("modules with one importer, %", [f"{share(part.single):.1f}" for part in parts]),
        ("modules in the fullest folder", [max(part.folders.values()) for part in parts]),
        ("class names used twice", [len(part.namesakes) for part in parts]),
        ("modules with SQL beside the store", [len(part.with_sql) for part in parts]),
    ]
    return [("", *PACKAGES, "all"), *((name, *map(str, values)) for name, values in rows)]


def main() -> None:
    """Print the table, then what is largest and what lacks words."""
    for name, *cells in table():
        print(f"{name:34}" + "".join(f"{cell:>12}" for cell in cells))
    print(f"{'lines of README.md':34}{(ROOT / 'README.md').read_text(encoding='utf-8').count(chr(10)):>12}")
    whole = Structure.read()
    for title, sizes, limit in (
        ("files over 900 lines", whole.file_lines, 900),
        ("classes over 500 lines", whole.class_lines, 500),
        ("bodies over 40 lines", whole.body_lines, 40),
    ):
        print(f"\n{title}:", *(f"  {size:5} {place}" for place, size in sizes.items() if size > limit), sep="\n")
    print(
        "\nfolders:", *(f"  {count:5} {place}" for place, count in whole.folders.most_common() if count > 9), sep="\n"
    )
    print("\ncircles of packages:", *(f"  {' -> '.join(circle)}" for circle in whole.room_cycles), sep="\n")
    print("\nclass names used twice:", *(f"  {n}: {', '.join(p)}" for n, p in whole.namesakes.items()), sep="\n")
    print("\nSQL beside the store:", *(f"  {place}" for place in whole.with_sql), sep="\n")
    print("\nbroad handlers that do not raise:", *(f"  {place}" for place in whole.swallowing), sep="\n")
    print("\npublic without docstring:", *(f"  {place}" for place, told in whole.public.items() if not told), sep="\n")


if __name__ == "__main__":
    main()
