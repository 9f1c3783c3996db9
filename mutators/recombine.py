"""The mutator that makes a child of two parents without a language model: the first, with parts of the second."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from random import Random

from mutators.analysis.cpp_tree import Function, Side, SyntaxTree, declared, read_side
from mutators.analysis.plan_edit import with_tunables
from mutators.analysis.plan_tables import PlanTables
from mutators.analysis.source_text import WORD, Edit, apply_edits
from mutators.analysis.syntax import Node, walk
from mutators.base import Parent, Proposal, Request, worked
from operators.definition.spec import Operator
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.lets import closure
from operators.plan.reading import Zero

DRAWS = 24
"""Number of different mixtures that are looked at before there is said to be none."""
MAX_STATEMENTS = 400
"""Blocks with more statements are taken from one parent as a whole."""


class Recombine:
    """A child of two parents, drawn from the request's seed.

    Params: `part` names what is mixed, any of `PARTS` otherwise. What comes from the second parent brings along what it
    needs: the launches of its functions with their buffers, the functions they call, tunables with their values, and
    what the second parent requires. A child's header parses, every launched function is there, it holds no more syntax
    errors than its parents, and it is neither of them; whether it compiles and is right is for the evaluator to say.
    """

    name = "recombine"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of the operator."""
        return kernel.operator == operator.name

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """A mixture of the first two parents. A failure says why there is none."""
        return worked(self.name, lambda: _child(request, parents, operator), refused="a parent's plan cannot be used")


@dataclass
class _Mixture:
    """A child in the making: the first parent's text with something of the second's in it."""

    text: str
    description: str
    taken: str = ""
    """All text that came from the second parent."""
    values: dict[str, int] = field(default_factory=dict)
    """Settings that are decided already."""


def _child(request: Request, parents: tuple[Parent, ...], operator: Operator) -> tuple[Kernel | None, str]:
    """The child and what it is made of, or None and why there is none."""
    wish = request.params.get("part")
    if wish is not None and wish not in PARTS:
        return None, f"there is no part {wish!r} to mix; there are {', '.join(PARTS)}"
    if len(parents) < 2 or parents[0].kernel.id == parents[1].kernel.id:
        return None, "recombine needs two parents that differ"
    first, second = (read_side(parent.kernel, operator, request.task.dtype) for parent in parents[:2])
    if first is None or second is None:
        return None, "a parent's header is not written table by table"
    random = Random(request.seed)
    for _ in range(DRAWS):  # many mixtures declare a name twice, or are a parent again
        part = wish or random.choice(tuple(PARTS))
        mixture = PARTS[part](first, second, random)
        kernel = _finished(mixture, first, second) if mixture else None
        if mixture and kernel:
            return kernel, f"{part}: {mixture.description}"
    return None, f"no mixture of {wish or 'anything'} was found that is neither parent"


# --- what can be mixed -------------------------------------------------------------------------------------------


def _functions(first: Side, second: Side, random: Random) -> _Mixture | None:
    """Whole functions of the same name, with the launches that call them."""
    shared = [
        f.name
        for f in first.tree.functions
        if (mine := first.function(f.name)) and (other := second.function(f.name)) and _text(mine) != _text(other)
    ]
    if not shared:
        return None
    names = random.sample(shared, random.randint(1, len(shared)))
    needed = _called(second, names)
    edits = [_swap(first, second, name) for name in (*names, *(n for n in needed if first.function(n)))]
    new = [_text(function) for n in needed if not first.function(n) and (function := second.function(n))]
    taken = " ".join((*(edit.text for edit in edits), *new))
    brought = _declarations(first.tree, second.tree, taken)
    text = _applied(first.tree, edits, (*brought, *new))
    tables = PlanTables.read(text, first.tree.plan)
    if tables is None:
        return None
    launched = [name for name in names if name in second.tree.launched]
    for name in launched:
        tables = tables.with_tables("launch", name, second.tables.of("launch", [name]))
    tables = _with_needs(tables, first, second, launched)
    taken = " ".join((taken, *brought, *(table.text for table in second.tables.of("launch", launched))))
    return _Mixture(tables.render(), f"{', '.join(sorted(names))} of {second.kernel.id[:8]}", taken)


def _statements(first: Side, second: Side, random: Random) -> _Mixture | None:
    """Statements within functions of the same name and parameters, wherever the two differ."""
    shared = []
    for function in first.tree.functions:
        mine, other = first.function(function.name), second.function(function.name)
        if mine and other and _parameters(mine) == _parameters(other) and _text(mine) != _text(other):
            shared.append((mine, other))
    if not shared:
        return None
    mine, other = random.choice(shared)
    blend = _Blend(first.tree, second.tree, random)
    body = blend.block(mine.body, other.body)
    if not (blend.taken and blend.kept) or not _declares(mine, other, body):
        return None
    brought = _declarations(first.tree, second.tree, " ".join(blend.taken))
    begin, end = _whole(mine)
    head = first.tree.data[begin : mine.body.start_byte].decode()
    text = _applied(first.tree, [Edit(begin, end, head + body)], brought)
    tables = PlanTables.read(text, first.tree.plan)
    if tables is None:
        return None
    count = f"{len(blend.taken)} of {len(blend.taken) + blend.kept} differences"
    description = f"{count} in {mine.name} as in {second.kernel.id[:8]}"
    return _Mixture(_with_needs(tables, first, second, ()).render(), description, " ".join((*blend.taken, *brought)))


def _launches(first: Side, second: Side, random: Random) -> _Mixture | None:
    """Launch and buffer tables of the same name, the functions staying as they are.

    Not where tables count in tunables that the first parent lacks: its functions do not, and would be called wrongly.
    """
    tables, changed = first.tables, []
    unknown = set(second.tree.plan.tune) - set(first.tree.plan.tune)
    for kind in ("launch", "buffer"):
        for name in dict.fromkeys(table.name for table in first.tables.tables if table.kind == kind):
            mine, other = first.tables.of(kind, [name]), second.tables.of(kind, [name])
            foreign = any(unknown & set(re.findall(r"\w+", table.text)) for table in other)
            if other and mine != other and not foreign and random.random() < 0.5:
                tables = tables.with_tables(kind, name, other)
                changed.append((f"{kind} {name}", other))
    if not changed:
        return None
    tables = _with_needs(tables, first, second, [t.name for _, other in changed for t in other if t.kind == "launch"])
    taken = " ".join(table.text for _, other in changed for table in other)
    return _Mixture(tables.render(), f"{', '.join(n for n, _ in changed)} of {second.kernel.id[:8]}", taken)


def _tunables(first: Side, second: Side, random: Random) -> _Mixture | None:
    """Values of the tunables that both have."""
    mine, other, tune = first.settings, second.settings, first.tree.plan.tune
    shared = [name for name in mine if other.get(name, mine[name]) != mine[name] and other[name] in tune[name]]
    if not shared:
        return None
    names = random.sample(shared, random.randint(1, len(shared)))
    values = {name: other[name] for name in names}
    text = ", ".join(f"{name} = {value}" for name, value in values.items())
    return _Mixture(first.kernel.source, f"{text} as in {second.kernel.id[:8]}", values=values)


PARTS: Mapping[str, Callable[[Side, Side, Random], _Mixture | None]] = {
    "functions": _functions,
    "statements": _statements,
    "launches": _launches,
    "tunables": _tunables,
}


# --- functions ---------------------------------------------------------------------------------------------------


def _whole(function: Function) -> tuple[int, int]:
    """The bytes of a function with its template head, linkage and qualifiers, which the parser may not know."""
    node = function.node
    while node.parent and node.parent.type in ("template_declaration", "linkage_specification"):
        if node.parent.type == "linkage_specification" and node.parent.child_by_field_name("body") != node:
            break
        node = node.parent
    before = node.prev_sibling
    data = function.tree.data
    begin = before.end_byte if before else node.start_byte
    return begin + len(data[begin:]) - len(data[begin:].lstrip()), node.end_byte


def _text(function: Function) -> str:
    begin, end = _whole(function)
    return function.tree.data[begin:end].decode()


def _swap(first: Side, second: Side, name: str) -> Edit:
    mine, other = first.function(name), second.function(name)
    assert mine and other
    return Edit(*_whole(mine), _text(other))


def _parameters(function: Function) -> tuple[str, ...]:
    """The names of its parameters, in order; nothing of their types, which two parents may qualify differently."""
    return tuple(name for name, ds in function.declarations.items() if any(d.node in function.parameters for d in ds))


def _called(side: Side, names: Iterable[str]) -> tuple[str, ...]:
    """Further functions of the file that those named need, in the file's order, launched ones aside."""
    known = {f.name for f in side.tree.functions if side.function(f.name)}
    needed, waiting = set(names), list(names)
    while waiting:
        function = side.function(waiting.pop())
        for name in (set(WORD.findall(_text(function))) & known) - needed if function else ():
            needed.add(name)
            waiting.append(name)
    more = needed - set(names) - side.tree.launched
    return tuple(f.name for f in side.tree.functions if f.name in more)


# --- statements --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """A statement with the pragmas and comments before it."""

    lead: str
    node: Node | None
    """None: only comments or pragmas, at the end of a block."""
    words: tuple[str, ...]
    key: tuple[str, ...]
    """The same without pragmas, and of loops and blocks only what stands before the braces: equal keys match."""


@dataclass
class _Blend:
    """Two blocks of statements made one: what is equal stays, what differs comes from a random side."""

    first: SyntaxTree
    second: SyntaxTree
    random: Random
    taken: list[str] = field(default_factory=list)
    """Texts that came from the second."""
    kept: int = 0
    """Number of times that the first won."""

    def block(self, mine: Node, other: Node) -> str:
        """The blend of two compound statements, braces included."""
        a, b = _units(self.first, mine), _units(self.second, other)
        if max(len(a), len(b)) > MAX_STATEMENTS:
            return self._either(self.first.slice(mine), self.second.slice(other))
        # Statements are aligned as in a diff, loops by their heads alone, so that their bodies can be blended in turn.
        matcher = SequenceMatcher(None, [unit.key for unit in a], [unit.key for unit in b], autojunk=False)
        parts = ["{"]
        for _, begin, end, start, stop in matcher.get_opcodes():
            if end - begin == stop - start:
                parts += [self._pair(x, y) for x, y in zip(a[begin:end], b[start:stop], strict=True)]
            else:
                texts = (self._whole(self.first, u) for u in a[begin:end])
                parts.append(self._either("".join(texts), "".join(self._whole(self.second, u) for u in b[start:stop])))
        tail = self.first.data[mine.start_byte : mine.end_byte].decode()
        return "".join(parts) + tail[len(tail[:-1].rstrip()) :]

    def _pair(self, mine: _Unit, other: _Unit) -> str:
        """Two statements in the same place; loops and blocks with the same head are blended inside."""
        if mine.words == other.words:
            return self._whole(self.first, mine)
        if not (mine.node and other.node and mine.key == other.key):
            return self._either(self._whole(self.first, mine), self._whole(self.second, other))
        same = _words_of(mine.lead) == _words_of(other.lead)
        lead = mine.lead if same else self._either(mine.lead, other.lead)
        bodies = _body(mine.node), _body(other.node)
        if not (bodies[0] and bodies[1]):
            return lead + self.first.slice(mine.node)
        head = self.first.data[mine.node.start_byte : bodies[0].start_byte].decode()
        tail = self.first.data[bodies[0].end_byte : mine.node.end_byte].decode()
        return lead + head + self.block(bodies[0], bodies[1]) + tail

    def _either(self, mine: str, other: str) -> str:
        if self.random.random() < 0.5:
            self.kept += 1
            return mine
        self.taken.append(other)
        return other

    @staticmethod
    def _whole(tree: SyntaxTree, unit: _Unit) -> str:
        return unit.lead + (tree.slice(unit.node) if unit.node else "")


def _units(tree: SyntaxTree, block: Node) -> list[_Unit]:
    units, begin, pending = [], block.start_byte + 1, False
    for child in block.named_children:
        if child.type in ("comment", "preproc_call"):
            pending = True
            continue
        lead = tree.data[begin : child.start_byte].decode()
        body = _body(child)
        head = tree.data[child.start_byte : body.start_byte].decode() if body else tree.slice(child)
        units.append(_Unit(lead, child, (*_words_of(lead), *_words(child)), _words_of(head)))
        begin, pending = child.end_byte, False
    rest = tree.data[begin : block.end_byte - 1].decode().rstrip()
    return [*units, _Unit(rest, None, _words_of(rest), _words_of(rest))] if pending and rest else units


def _body(node: Node) -> Node | None:
    """The braces that a statement ends in, if it does."""
    body = node if node.type == "compound_statement" else node.child_by_field_name("body")
    if node.type == "if_statement" and node.child_by_field_name("alternative") is None:
        body = node.child_by_field_name("consequence")
    return body if body is not None and body.type == "compound_statement" else None


def _words(node: Node) -> tuple[str, ...]:
    return _words_of((node.text or b"").decode())


def _words_of(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+|[^\w\s]", text))


def _declares(mine: Function, other: Function, body: str) -> bool:
    """Whether the new body still declares every local name that it uses, and none twice in one block."""
    tree = mine.tree
    text = apply_edits(tree.data, [Edit(mine.body.start_byte, mine.body.end_byte, body)]).decode()
    child = next((f for f in SyntaxTree(text, tree.operator, tree.target, tree.dtype).functions
                  if f.name == mine.name), None)  # fmt: skip
    if child is None:
        return False
    local = set(mine.declarations) | set(other.declarations)
    used = {child.tree.slice(node) for node in walk(child.body) if node.type == "identifier"}
    places = [(name, d.node.parent.id) for name, ds in child.declarations.items() for d in ds if d.node.parent]
    return used & local <= set(child.declarations) and len(places) == len(set(places))


# --- what a mixture needs besides --------------------------------------------------------------------------------


def _declarations(first: SyntaxTree, second: SyntaxTree, taken: str) -> tuple[str, ...]:
    """The declarations outside functions of the second parent that `taken` needs and the first lacks; and all its
    #includes."""
    found: list[str] = []
    words, lines = set(WORD.findall(taken)), first.text
    for node in reversed(second.root.named_children):  # what is declared later may need what is declared before
        if node.type == "preproc_include" or declared(second, node) & words:
            words |= set(WORD.findall(second.slice(node)))
            closed = second.data[node.end_byte :].lstrip().startswith(b";")
            text = second.slice(node).strip() + (";" if closed else "")
            if text not in lines:
                found.insert(0, text)
    return tuple(found)


def _applied(tree: SyntaxTree, edits: list[Edit], new: Iterable[str]) -> str:
    """The file after edits, with new declarations before the first of them and new #includes after the header."""
    place, header = min(edit.start for edit in edits), tree.data.index(b"*/") + 2
    includes = [text for text in new if text.startswith("#include")]
    others = [text for text in new if not text.startswith("#include")]
    added = [Edit(header, header, "".join(f"\n{text}" for text in includes)),
             Edit(place, place, "".join(f"{text}\n\n" for text in others))]  # fmt: skip
    return apply_edits(tree.data, [*added, *edits]).decode()


def _with_needs(tables: PlanTables, first: Side, second: Side, launched: Iterable[str]) -> PlanTables:
    """The tables with what launches of the second parent name, of [let] too, and both plans' demands."""
    mine, other = first.tree.plan, second.tree.plan
    words = set(WORD.findall(" ".join(table.text for table in second.tables.of("launch", launched))))
    words |= {m.tensor for m in other.tensor_maps if m.name in words}
    brought = set(words)
    for kind in ("buffer", "tensor_map", "group"):
        for table in second.tables.of(kind, words):
            if not tables.of(kind, [table.name]):
                tables = tables.with_tables(kind, table.name, (table,))
                brought |= set(WORD.findall(table.text))
    asked = (other.requires, *(zero.when for zero in other.zero if zero.when))
    named = closure(brought.union(*(expression.names for expression in asked)), other.lets)
    tables = tables.with_lets({n: let.text for n, let in other.lets.items() if n in named and n not in mine.lets})
    there = {table.name for table in tables.tables if table.kind == "buffer"}
    there |= {tensor.name for tensor in first.tree.operator.outputs}
    demands = list(dict.fromkeys(plan.requires.text for plan in (mine, other) if plan.requires.text != "1"))
    return tables.with_top(
        requires=demands[0] if len(demands) == 1 else " and ".join(f"({demand})" for demand in demands),
        deterministic=mine.deterministic and other.deterministic,
        zero=_cleared(mine.zero, other.zero, there),
    )


def _cleared(mine: Iterable[Zero], other: Iterable[Zero], there: Collection[str]) -> list[Zero]:
    """The buffers there that either plan clears; where one does so always or they differ in when, always."""
    found: dict[str, Zero] = {}
    for zero in (*mine, *other):
        if zero.name in there:
            found[zero.name] = zero if found.get(zero.name, zero) == zero else Zero(zero.name)
    return list(found.values())


def _finished(mixture: _Mixture, first: Side, second: Side) -> Kernel | None:
    """The child, with the tunables that it needs; None where it cannot be used or is one of its parents."""
    words = closure(WORD.findall(mixture.taken), second.tree.plan.lets)
    tune = second.tree.plan.tune
    missing = {name: tune[name] for name in tune if name in words and name not in first.tree.plan.tune}
    text = with_tunables(mixture.text, missing)
    if text is None:
        return None
    settings = first.settings | {n: v for n, v in second.settings.items() if n in words} | mixture.values
    side = _made(text, settings, first)
    # A tunable that nothing uses any more would only multiply settings that are equal.
    unused = [name for name in side.tree.plan.tune if _uses(side, name) == 1] if side else []
    if side and unused:
        side = _made(side.tables.without_tunables(unused).render(), settings, first)
    if side is None or any(_same(side, parent) for parent in (first, second)):
        return None
    errors = max(first.tree.error_count, second.tree.error_count)
    complete = side.tree.launched <= {f.name for f in side.tree.functions}
    return side.kernel if complete and side.tree.error_count <= errors else None


def _made(text: str, settings: Mapping[str, int], first: Side) -> Side | None:
    """A file of the first parent's kind, read, with those of the settings that it declares and that are no defaults."""
    try:
        tree = SyntaxTree(text, first.tree.operator, first.kernel.target, first.tree.dtype)
    except PlanError:
        return None
    tables = PlanTables.read(text, tree.plan)
    tune = tree.plan.tune
    values = {n: settings[n] for n, listed in tune.items() if settings.get(n, listed[0]) in listed[1:]}
    if tree.plan.breach({name: values.get(name, listed[0]) for name, listed in tune.items()}):
        return None
    return Side(Kernel(first.kernel.operator, first.kernel.target, text, values), tree, tables) if tables else None


def _uses(side: Side, name: str) -> int:
    """The number of times that the file names it, comments included."""
    return len(re.findall(rf"\b{name}\b", side.kernel.source))


def _same(child: Side, parent: Side) -> bool:
    """Whether they are one program: the same words with the same settings, but for tunables that nothing uses."""
    return _essence(child) == _essence(parent)


def _essence(side: Side) -> tuple[object, ...]:
    plan = sorted(_words_of(t.text) for t in side.tables.tables if t.kind != "tune")
    used = {name: value for name, value in side.settings.items() if _uses(side, name) > 1}
    return _words_of(side.tables.top), plan, _words_of(side.tables.after), sorted(used.items())
