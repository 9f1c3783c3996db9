"""The mutator that makes one kernel of two: each is launched at the sizes where it is the faster one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from mutators.analysis.cpp_tree import Side, declared, read_side
from mutators.analysis.plan_edit import with_tunables
from mutators.analysis.plan_tables import PlanTable, PlanTables
from mutators.analysis.source_text import WORD
from mutators.analysis.syntax import Node, walk
from mutators.base import Parent, Proposal, Request, worked
from operators.definition.spec import CPP_KEYWORDS, RESERVED, Operator
from operators.expression import Expression, parse
from operators.kernel import Kernel
from operators.plan.reading import Zero, parse_plan

_SPOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|^[ \t]*#[ \t]*include.*|(?:::|->|\.)\s*[A-Za-z_]\w*|[A-Za-z_]\w*', re.MULTILINE
)
"""Words of C++; and what they are not to be looked for in: texts, included files, members, names of other spaces."""
_KEY = re.compile(r"^[ \t]*[a-z_]+[ \t]*=", re.MULTILINE)
_WHEN = re.compile(r"^[ \t]*when[ \t]*=.*\n?", re.MULTILINE)
_WHERE = re.compile(r"^[ \t]*where[ \t]*=[ \t]*\[[^\]]*\].*\n", re.MULTILINE)
_TUNE = re.compile(r"^[ \t]*\[[ \t]*tune[ \t]*\].*\n", re.MULTILINE)


@dataclass(frozen=True)
class Condition:
    """Sizes that go one way, and the others."""

    holds: str
    fails: str


class Route:
    """A child that runs the second parent where that is faster, and the first elsewhere.

    Params: `gains` are the logs of how many times as fast the second parent is, by workload, of those where that is
    known beyond doubt; `workload_set` is their set. Numbers of the sizes tell the workloads where it is faster from
    those where it is slower, with thresholds midway between the nearest ones. Names of the second parent that the first
    uses too get a number. Whether the child is right and fast at all sizes is for the evaluator to say.
    """

    name = "route"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of the operator."""
        return kernel.operator == operator.name

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """The first parent with a route to the second. A failure says why there is none."""
        return worked(self.name, lambda: _child(request, parents, operator), refused="the two cannot be one file")


def _child(request: Request, parents: tuple[Parent, ...], operator: Operator) -> tuple[Kernel | None, str]:
    """The child and what it is made of, or None and why there is none."""
    if len(parents) < 2 or parents[0].kernel.id == parents[1].kernel.id:
        return None, "a route needs two parents that differ"
    dims = {w.name: w.dims for w in operator.workload_set(request.params["workload_set"])}
    condition = separated(dims, request.params["gains"])
    if condition is None:
        return None, "no size tells where the second parent is the faster one"
    kernel = routed(parents[0].kernel, parents[1].kernel, condition, operator, request.task.dtype)
    if kernel is None:
        return None, "a parent's header cannot be taken apart"
    return kernel, f"{parents[1].kernel.id[:8]} where {condition.holds}"


# --- where ------------------------------------------------------------------------------------------------------------

TERMS = 3
"""Dims that a product which tells sizes apart has at most, beside that of all of them."""


@dataclass(frozen=True)
class _Band:
    """The values of one number of the sizes from above `low` to `high`; None: without an end on that side.

    `gain` is the sum over the workloads within. `gap` is the least ratio of two neighbours that an end lies between, as
    a share of the ratio of the largest value to the smallest, both as logarithms: products are large numbers.
    """

    number: str
    low: int | None
    high: int | None
    gain: float
    gap: float

    @classmethod
    def between(
        cls, number: _Number, below: tuple[int | None, int], above: tuple[int, int | None], gain: float = 0.0
    ) -> _Band:
        """The band whose ends lie midway between the neighbours without and within."""
        (without, first), (last, beyond) = below, above
        low = None if without is None else math.isqrt(without * (first - 1))
        high = None if beyond is None else math.isqrt(last * (beyond - 1))
        pairs = [(a, b) for a, b in ((without, first), (last, beyond)) if a is not None and b is not None]
        gap = min(_growth(*pair) for pair in pairs) / _growth(number.ordered[0][0], number.ordered[-1][0])
        return cls(number.text, low, high, gain, gap)

    def has(self, value: int) -> bool:
        """Whether a value lies in it."""
        return (self.low is None or value > self.low) and (self.high is None or value <= self.high)

    @property
    def holds(self) -> str:
        """The condition as a formula."""
        return " and ".join(self._ends(above=">", below="<="))

    @property
    def fails(self) -> str:
        """Its contrary as a formula."""
        return " or ".join(self._ends(above="<=", below=">"))

    @property
    def ends(self) -> int:
        """The number of ends that it has."""
        return (self.low is not None) + (self.high is not None)

    def _ends(self, above: str, below: str) -> Iterator[str]:
        if self.low is not None:
            yield f"{self.number} {above} {self.low}"
        if self.high is not None:
            yield f"{self.number} {below} {self.high}"


def separated(dims: Mapping[str, Mapping[str, int]], gains: Mapping[str, float]) -> Condition | None:
    """Return the condition that gains most, of those that hold on no workload where the second parent is slower.

    `dims` are those of all workloads by name, `gains` the logs of how many times as fast the second parent is, of the
    workloads where that is known beyond doubt. One number of the sizes, a dim or a product of dims, lies between two
    ends, of which one may be missing; or it does so on one side of a dim. Among equals it is the condition with the
    fewest ends, then the one with the widest gaps around them. None where there is no such condition, or where nothing
    is slower.
    """
    if not any(gain < 0 for gain in gains.values()):
        return None
    known = {workload: dims[workload] for workload in gains}
    names = [n for n in next(iter(known.values())) if len({sizes[n] for sizes in known.values()}) > 1]
    lengths = sorted({*range(1, TERMS + 1), len(names)})
    numbers = [_Number.of(terms, known) for length in lengths for terms in combinations(names, length)]
    found: list[tuple[_Band, ...]] = [(band,) for number in numbers for band in number.bands(gains)]
    for dim in numbers[: len(names)]:
        for side in dim.sides():
            within = {w: gain for w, gain in gains.items() if side.has(known[w][dim.text])}
            found += [(side, band) for number in numbers if number is not dim for band in number.bands(within)]
    if not found:
        return None
    best = max(found, key=_worth)
    return Condition(" and ".join(band.holds for band in best), " or ".join(band.fails for band in best))


def _worth(bands: tuple[_Band, ...]) -> tuple[float, int, float, int]:
    """The last band's gain is that of all. Where dims grow together, their product says how much there is to do."""
    gap, terms = min(band.gap for band in bands), sum(band.number.count("*") for band in bands)
    return round(bands[-1].gain, 9), -sum(band.ends for band in bands), round(gap, 9), terms


def _growth(low: int, high: int) -> float:
    return math.log(max(high, 1) / max(low, 1)) or 1.0


@dataclass(frozen=True)
class _Number:
    """A number that the sizes of every workload give, as a formula, and the workloads by its value, smallest first."""

    text: str
    ordered: tuple[tuple[int, tuple[str, ...]], ...]

    @classmethod
    def of(cls, terms: Sequence[str], dims: Mapping[str, Mapping[str, int]]) -> _Number:
        """The product of these dims."""
        by_value: dict[int, tuple[str, ...]] = {}
        for workload, sizes in dims.items():
            value = math.prod(sizes[term] for term in terms)
            by_value[value] = (*by_value.get(value, ()), workload)
        return cls(" * ".join(terms), tuple(sorted(by_value.items())))

    def bands(self, gains: Mapping[str, float]) -> Iterator[_Band]:
        """The longest runs of neighbouring values, of the workloads in `gains`, on which nothing is slower."""
        first: int | None = None
        below: int | None = None
        last, total = 0, 0.0
        for value, workloads in (*self.ordered, (None, ())):
            at = [gains[workload] for workload in workloads if workload in gains]
            if value is not None and not at:
                continue
            if value is not None and min(at) > 0:
                first, last, total = value if first is None else first, value, total + sum(at)
                continue
            if first is not None and (below, value) != (None, None):
                yield _Band.between(self, (below, first), (last, value), total)
            first, below, total = None, value, 0.0

    def sides(self) -> Iterator[_Band]:
        """Everything up to each value but the last, and everything above it."""
        for (low, _), (high, _) in pairwise(self.ordered):
            yield _Band.between(self, (None, low), (low, high))
            yield _Band.between(self, (low, high), (high, None))


# --- one file of two --------------------------------------------------------------------------------------------------


def routed(first: Kernel, second: Kernel, condition: Condition, operator: Operator, dtype: str) -> Kernel | None:
    """Return the first kernel with the second one's launches where the condition holds.

    None where a header is not written table by table. It raises PlanError where a header cannot be used, and where that
    of both together cannot.
    """
    mine, other = (read_side(kernel, operator, dtype) for kernel in (first, second))
    if mine is None or other is None:
        return None
    a, b = mine.tree.plan, other.tree.plan
    renew = _renewer(_renamed(mine, other))
    groups = {name: mine.tree.fresh(name, b.groups) for name in b.groups}
    tables = _guarded(mine.tables, condition.fails)
    for kind in ("buffer", "tensor_map", "group", "launch"):
        brought = [
            replace(
                table,
                name=groups[table.name] if kind == "group" else renew(table.name),
                text=_table(table, renew, groups),
            )
            for table in _guarded(other.tables, condition.holds).tables
            if table.kind == kind
        ]
        for name in dict.fromkeys(table.name for table in brought):
            alike = tuple(table for table in brought if table.name == name)
            tables = tables.with_tables(kind, name, (*tables.of(kind, [name]), *alike))
    tables = tables.with_lets({renew(name): renew(let.text) for name, let in b.lets.items()})
    tables = tables.with_top(
        requires=_either(a.requires.text, renew(b.requires.text), condition),
        deterministic=a.deterministic and b.deterministic,
        zero=_cleared(a.zero, [Zero(renew(z.name), z.when and _parsed(renew(z.when.text))) for z in b.zero], condition),
    )
    text = with_tunables(
        f"{tables.render().rstrip()}\n\n{renew(other.tables.after.removeprefix('*/').strip())}\n",
        {renew(name): values for name, values in b.tune.items()},
    )
    if text is None:
        return None
    if b.where:
        text = _restricted(text, [*(c.expression.text for c in a.where), *(renew(c.expression.text) for c in b.where)])
    parse_plan(text, operator, first.target)
    return Kernel(
        first.operator, first.target, text, {**first.values, **{renew(n): v for n, v in second.values.items()}}
    )


def _renamed(mine: Side, other: Side) -> dict[str, str]:
    """New names of what the second file declares and the first one uses too, and of what the first one's macros are."""
    theirs = set(WORD.findall(other.kernel.source))
    macros = {name for name, is_macro in _declarations(mine) if is_macro} & theirs
    own = {name for name, _ in _declarations(other)} & mine.tree.names
    own -= RESERVED | CPP_KEYWORDS | mine.tree.operator.names
    found: dict[str, str] = {}
    for name in sorted(own | macros):
        found[name] = mine.tree.fresh(name, theirs | set(found.values()))
    return found


def _declarations(side: Side) -> Iterator[tuple[str, bool]]:
    """Names that a file declares for all of it, those of its header included, and whether each is a macro."""
    plan = side.tree.plan
    yield from ((name, True) for name in plan.tune)
    yield from ((table.name, False) for table in side.tables.tables if table.kind in ("buffer", "tensor_map"))
    yield from ((name, False) for name in plan.lets)
    yield from ((f.name, False) for f in side.tree.functions if not _is_member(f.node))
    for node in walk(side.tree.root):
        if node.type.startswith("preproc") and (name := node.child_by_field_name("name")):
            yield side.tree.slice(name), True
        elif node.parent == side.tree.root or node.type in ("enumerator", "template_declaration"):
            yield from ((name, False) for name in declared(side.tree, node))


def _is_member(function: Node) -> bool:
    """Whether a function's definition stands in that of a class, which keeps its names apart."""
    node = function.parent
    while node and node.type == "template_declaration":
        node = node.parent
    return node is not None and node.type == "field_declaration_list"


def _renewer(renamed: Mapping[str, str]) -> Callable[[str], str]:
    """The function that puts new names into a text of C++ or of formulas."""
    return lambda text: _SPOKEN.sub(lambda match: renamed.get(match[0], match[0]), text)


def _table(table: PlanTable, renew: Callable[[str], str], groups: Mapping[str, str]) -> str:
    """A table of the header with new names in what its keys are set to; groups apart, as dims may have their names."""
    head, _, rest = table.text.partition("\n")
    if table.kind == "group":
        head = f"[group.{groups[table.name]}]"
    lines = []
    for line in rest.splitlines(keepends=True):
        key = _KEY.match(line)
        end = key.end() if key else 0
        if table.kind == "launch" and key and key[0].split("=")[0].strip() == "group":
            lines.append(re.sub(r'"(\w+)"', lambda name: f'"{groups[name[1]]}"', line))
            continue
        # Formulas and names stand in quotes here, which texts of C++ do as well.
        lines.append(line[:end] + re.sub(r"[^\"]+", lambda part: renew(part[0]), line[end:]))
    return f"{head}\n{''.join(lines)}"


def _guarded(tables: PlanTables, condition: str) -> PlanTables:
    """The tables with launches that happen only where the condition holds."""
    guarded = []
    for table in tables.tables:
        if table.kind == "launch":
            found = _WHEN.search(table.text)
            before = re.search(r'"(.*)"', found[0]) if found else None
            when = f"({condition}) and ({before[1]})" if before else condition
            head, _, rest = table.text.partition("\n")
            table = replace(table, text=f'{head}\nwhen = "{when}"\n{_WHEN.sub("", rest)}')
        guarded.append(table)
    return replace(tables, tables=tuple(guarded))


def _either(first: str, second: str, condition: Condition) -> str:
    """The demand of the one that runs."""
    if first == second:
        return first
    return f"({second}) if {condition.holds} else ({first})"


def _cleared(first: tuple[Zero, ...], second: list[Zero], condition: Condition) -> list[Zero]:
    """The buffers that either clears, where it does."""
    found: dict[str, str] = {}
    for zeros, holds in ((first, condition.fails), (second, condition.holds)):
        for zero in zeros:
            when = f"({holds}) and ({zero.when.text})" if zero.when else f"({holds})"
            found[zero.name] = f"{found[zero.name]} or {when}" if zero.name in found else when
    return [Zero(name, _parsed(when)) for name, when in found.items()]


def _restricted(text: str, conditions: list[str]) -> str:
    """The file with these conditions on its settings in place of its own."""
    written = ", ".join(f'"{" ".join(condition.split())}"' for condition in conditions)
    return _TUNE.sub(lambda tune: f"{tune[0]}where = [{written}]\n", _WHERE.sub("", text, count=1), count=1)


def _parsed(text: str) -> Expression:
    return parse(text, set(WORD.findall(text)) - {"and", "or", "not", "if", "else"})
