"""A kernel file's header as its tables of text, so that whole tables can be exchanged with comments and layout kept.

`mutators.analysis.plan_edit` says why no TOML library does this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mutators.analysis.plan_edit import HEADER
from operators.plan.reading import Plan, Zero

_TABLE = re.compile(r"^[ \t]*\[(\[?)[ \t]*(\w+)(?:\.(\w+))?[ \t]*\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
_TOP_KEY = re.compile(r"^[ \t]*(?:requires|deterministic|zero)[ \t]*=.*\n?", re.MULTILINE)


@dataclass(frozen=True)
class PlanTable:
    """One table of the header with the lines up to the next."""

    kind: str
    """buffer, launch, tensor_map, group, tune or let."""
    name: str
    """The launch's kernel without template arguments; the buffer's, map's or group's name; empty for tune and let."""
    text: str


@dataclass(frozen=True)
class PlanTables:
    """The header as text."""

    before: str
    top: str
    """Text before the first table."""
    tables: tuple[PlanTable, ...]
    after: str
    """The rest of the file."""

    @classmethod
    def read(cls, text: str, plan: Plan) -> PlanTables | None:
        """Read the header of `text`, whose parsed plan is `plan`; None where it is not written table by table."""
        header = HEADER.search(text)
        if not header:
            return None
        begin, end = header.span(1)
        starts = [*_TABLE.finditer(text, begin, end)]
        names = {
            "launch": [base_name(launch.kernel) for launch in plan.launches],
            "buffer": [buffer.name for buffer in plan.buffers],
            "tensor_map": [tensor_map.name for tensor_map in plan.tensor_maps],
        }
        tables = []
        for start, following in zip(starts, [*(s.start() for s in starts), end][1:], strict=True):
            kind = start[2]
            # Names come from the parsed plan, in order: text alone does not tell how a name is quoted.
            if start[1] and not names.get(kind):
                return None
            name = names[kind].pop(0) if start[1] else start[3] or ""
            tables.append(PlanTable(kind, name, text[start.start() : following]))
        written = {table.name for table in tables if table.kind == "group"}
        kinds = {table.kind for table in tables}
        whole = ("tune" in kinds) == bool(plan.tune) and ("let" in kinds) == bool(plan.lets)
        if any(names.values()) or written != set(plan.groups) or not whole:
            return None
        first = starts[0].start() if starts else end
        return cls(text[:begin], text[begin:first], tuple(tables), text[end:])

    def render(self) -> str:
        """The whole file."""
        parts = [table.text if table.text.endswith("\n") else f"{table.text}\n" for table in self.tables]
        return self.before + self.top + "".join(parts) + self.after

    def of(self, kind: str, names: Iterable[str]) -> tuple[PlanTable, ...]:
        """The tables of a kind with these names, in order."""
        wanted = set(names)
        return tuple(table for table in self.tables if table.kind == kind and table.name in wanted)

    def with_tables(self, kind: str, name: str, tables: tuple[PlanTable, ...]) -> PlanTables:
        """These tables in place of those of one kind and name; at the end of their kind where there were none."""
        old = [at for at, table in enumerate(self.tables) if (table.kind, table.name) == (kind, name)]
        alike = [at for at, table in enumerate(self.tables) if table.kind == kind]
        first_launch = next((at for at, table in enumerate(self.tables) if table.kind == "launch"), len(self.tables))
        place = old[0] if old else alike[-1] + 1 if alike else first_launch
        kept = [table for at, table in enumerate(self.tables) if at not in old]
        return replace(self, tables=(*kept[:place], *tables, *kept[place:]))

    def with_lets(self, lets: Mapping[str, str]) -> PlanTables:
        """The header with these named expressions besides its own."""
        lines = "".join(f'{name} = "{" ".join(text.split())}"\n' for name, text in lets.items())
        old = next((table for table in self.tables if table.kind == "let"), PlanTable("let", "", "[let]\n\n"))
        head, _, rest = old.text.partition("\n")
        return self.with_tables("let", "", (replace(old, text=f"{head}\n{lines}{rest}"),)) if lets else self

    def without_tunables(self, names: Iterable[str]) -> PlanTables:
        """The header without these tunables, and without [tune] where none is left."""
        tables = []
        for table in self.tables:
            text = table.text
            for name in names if table.kind == "tune" else ():
                text = re.sub(rf"^[ \t]*{name}[ \t]*=[ \t]*\[[^\]]*\][^\n]*\n", "", text, flags=re.MULTILINE)
            if table.kind != "tune" or "=" in text:
                tables.append(replace(table, text=text))
        return replace(self, tables=tuple(tables))

    def with_top(self, *, requires: str, deterministic: bool, zero: Iterable[Zero]) -> PlanTables:
        """The header with these values of the keys that stand before the first table."""
        lines = [f'requires = "{requires}"'] if requires not in ("", "1") else []
        lines += [] if deterministic else ["deterministic = false"]
        cleared = ", ".join(map(_cleared, zero))
        lines += [f"zero = [{cleared}]"] if cleared else []
        rest = _TOP_KEY.sub("", self.top)
        rest = rest if rest.startswith("\n") else f"\n{rest}"
        return replace(self, top="\n" + "".join(f"{line}\n" for line in lines) + rest[1:])


def _cleared(zero: Zero) -> str:
    """An entry of `zero` as it is written."""
    if zero.when is None:
        return f'"{zero.name}"'
    return f'{{ name = "{zero.name}", when = "{" ".join(zero.when.text.split())}" }}'


def base_name(kernel: str) -> str:
    """A launch's kernel without namespaces and template arguments."""
    return kernel.split("<")[0].split("::")[-1].strip()
