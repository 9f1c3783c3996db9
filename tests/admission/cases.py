"""The kernels that decide whether an operator is admitted: mutants that must fail, better variants that must pass.

`common.toml` holds mutants of every operator, `<operator>.toml` the operator's own cases, beside those of the
files of `forms/` that it is `like`. Each is made from the naive kernel by one of

- `body`: another body for its function;
- `after`: the naive function is called, then this runs;
- `edits`: pairs of old and new text, the old one found in the naive file;

with `header`, more lines of the plan; `before`, declarations in front of the functions; `scratch = true`, a buffer
`kept` as large as the output. In `body` and `after`, `out`, `count`, `row`, `like` and `like_count` are the output, its
elements in all and per row, an input and its elements.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.evaluation import Status
from operators.catalog import folders, load
from operators.definition.spec import Operator, Workload
from operators.kernel import Kernel
from tests.operators.sampling import SAMPLE

FOLDER = Path(__file__).parent
FIRST = re.compile(r'^(static |template |extern "C")', re.M)
"""The kernel's first function, behind what it includes."""
FUNCTION = re.compile(r'extern "C" void (?P<name>\w+)\((?P<params>[^)]*)\) \{\n(?P<body>.*)\}\s*$', re.DOTALL)


@dataclass(frozen=True)
class Case:
    """One kernel and the verdict that it deserves."""

    operator: str
    name: str
    status: Status
    dtype: str = "fp32"
    body: str | None = None
    after: str | None = None
    edits: tuple[tuple[str, str], ...] = ()
    header: str = ""
    before: str = ""
    scratch: bool = False
    slow: bool = False
    """Judged only when asked for."""
    names: dict[str, str] = field(default_factory=dict)

    @property
    def is_mutant(self) -> bool:
        return self.status is not Status.CORRECT

    @property
    def id(self) -> str:
        return f"{self.operator}-{self.dtype}-{self.name}".replace(" ", "_")

    def kernel(self) -> Kernel:
        source = load(self.operator).ancestor("naive", "cpu").read_text(encoding="utf-8")
        for old, new in self.edits:
            assert old in source, f"{self.id}: the naive kernel has no `{old}`"
            source = source.replace(old, new)
        if self.body is not None:
            source = self._with_body(source, self.body)
        if self.after is not None:
            source = self._with_after(source, self.after)
        if self.scratch:
            source = self._with_scratch(source)
        source = source.replace("/*! evo\n", f"/*! evo\n{self.header}\n", 1)
        begin = FIRST.search(source)
        assert begin
        return Kernel(self.operator, "cpu", f"{source[: begin.start()]}{self.before}\n{source[begin.start() :]}")

    def _with_body(self, source: str, body: str) -> str:
        found = FUNCTION.search(source)
        assert found
        return source[: found.start("body")] + self._locals() + body + "\n}\n"

    def _with_after(self, source: str, after: str) -> str:
        found = FUNCTION.search(source)
        assert found
        honest = f"static void honest({found['params']}) {{\n{found['body']}}}\n"
        arguments = ", ".join(re.findall(r"(\w+)(?=,|$)", found["params"]))
        body = f"honest({arguments});\n{self._locals()}{after}\n"
        return f'{source[: found.start()]}{honest}extern "C" void {found["name"]}({found["params"]}) {{\n{body}}}\n'

    def _locals(self) -> str:
        n = self.names
        return (
            f"auto* out = {n['out']}; long long count = {n['count']}, row = {n['row']};\n"
            f"auto* like = {n['like']}; long long like_count = {n['like_count']};\n"
        )

    def _with_scratch(self, source: str) -> str:
        tensor = load(self.operator).outputs[0]
        shape = ", ".join(f'"{axis.text}"' for axis in tensor.shape) or '"1"'
        buffer = f'[[buffer]]\nname = "kept"\ndtype = "{tensor.dtype}"\nshape = [{shape}]\n\n[[launch]]'
        source = source.replace("[[launch]]", buffer, 1)
        source = re.sub(r"(args = \[[^\]]*?),?\s*\]", r'\1, "kept"]', source, count=1)
        return re.sub(r'(extern "C" void \w+\([^)]*)\)', rf"\1, {tensor.dtype}* kept)", source, count=1)


BRIEF = 12
"""Cases of the operators in `SAMPLE` to one that runs without --slow, other ones of each."""


def admitted() -> list[str]:
    """Operators that have cases."""
    return [name for name in sorted(folders()) if (FOLDER / f"{name}.toml").is_file()]


def cases(operator: str) -> Iterator[Case]:
    """Every mutant and variant of an operator."""
    first = sorted(SAMPLE).index(operator) % BRIEF if operator in SAMPLE else -1
    for number, case in enumerate(_all(operator)):
        yield replace(case, slow=case.slow or number % BRIEF != first)


def _all(operator: str) -> Iterator[Case]:
    own, common = _read(operator), _read("common")
    for entry in common["mutant"]:
        if entry["name"] not in own["absent"]:
            yield _case(operator, own["names"], entry, Status.WRONG)
    for entry in own["mutant"]:
        yield _case(operator, own["names"], entry, Status.WRONG)
    for entry in (*common["variant"], *own["variant"]):
        yield _case(operator, own["names"], entry, Status.CORRECT)


def absent(operator: str) -> dict[str, str]:
    """Common mutants that an operator has not, and why."""
    return dict(_read(operator)["absent"])


def common_mutants() -> set[str]:
    """Their names."""
    return {entry["name"] for entry in _read("common")["mutant"]}


def small(operator: str) -> Operator:
    """The operator with one workload only, in the set `admission`, so that timing takes no time."""
    return replace(load(operator), workloads=(Workload("admission", _read(operator)["workload"]),))


def _case(operator: str, names: dict[str, str], entry: dict[str, Any], status: Status) -> Case:
    entry = dict(entry)
    status = Status(entry.pop("status", status))
    edits = tuple((old, new) for old, new in entry.pop("edits", ()))
    return Case(operator, entry.pop("name"), status, edits=edits, names=names, **entry)


@lru_cache
def _read(name: str) -> dict[str, Any]:
    raw = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = {"names": {}, "absent": {}, "mutant": [], "variant": []}
    for form in raw.pop("like", ()):
        found = _over(found, tomllib.loads((FOLDER / "forms" / f"{form}.toml").read_text(encoding="utf-8")))
    return _over(found, raw)


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Names and reasons key by key, cases one after the other."""
    joined = {
        key: base[key] | own.get(key, {}) if isinstance(base[key], dict) else base[key] + own.get(key, [])
        for key in ("names", "absent", "mutant", "variant")
    }
    return base | own | joined
