"""Wrong kernels, made of a right one by small changes: what a verification must refuse (mutation testing).

After DeMillo, Lipton and Sayward, "Hints on test data selection" (IEEE Computer 11, 1978). Each change is one that
people and models make: a bound that is off by one, a tail that is left out, a term dropped, an operand swapped, a
constant that is not quite right, a lower precision. Some mutants are equivalent, right in spite of the change; no rule
finds them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from random import Random

from mutators.analysis.cpp_tree import SyntaxTree
from mutators.analysis.source_text import Edit, apply_edits
from mutators.analysis.syntax import Node, walk
from operators.dtypes import ACCUMULATOR, DTYPES
from operators.kernel import Kernel

FLOATING = frozenset({"T", "ACC", "float", "double", "__half", "half", "__nv_bfloat16", "_Float16"})
COMMUTATIVE = frozenset({"max", "min", "fmax", "fmin", "fmaxf", "fminf", "hypot", "hypotf"})
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*"}
ATOMS = frozenset({"identifier", "number_literal", "call_expression", "subscript_expression", "field_expression"})
CLOSED = frozenset({"parenthesized_expression", "argument_list", "subscript_argument_list", "init_declarator"})
"""Nodes that set off an expression by themselves."""
TAIL = 8
"""A loop that is cut to a multiple of so many turns leaves out what vectors of that width would."""
NOT_QUITE = 1.01
"""Factor of a usual floating constant; a very small or large one, such as an epsilon, is doubled."""
USUAL = (1e-3, 1e3)
KEPT_BITS = {"double": (52, 23), "float": (23, 10)}
"""The bits of an accumulator's fraction, and those left of them in a lower precision (fp32, TF32)."""


@dataclass(frozen=True)
class Mutant:
    """A kernel that differs from a right one in one thing."""

    kind: str
    """Kind of the change, in a few words."""
    line: int
    """The line of the file where it was done."""
    kernel: Kernel


@dataclass(frozen=True)
class _Change:
    kind: str
    edits: tuple[Edit, ...]


def mutants(kernel: Kernel, tree: SyntaxTree) -> list[Mutant]:
    """Return all mutants of a kernel, whose `tree` it is, in the order of the text; no two have the same source."""
    found: dict[str, Mutant] = {}
    for change in _Changes(tree).all():
        source = apply_edits(tree.data, change.edits).decode()
        line = tree.data[: change.edits[-1].start].count(b"\n") + 1
        if source != kernel.source:
            found.setdefault(source, Mutant(change.kind, line, Kernel(kernel.operator, kernel.target, source)))
    return sorted(found.values(), key=lambda mutant: mutant.line)


def chosen(found: Sequence[Mutant], most: int, seed: int = 0) -> list[Mutant]:
    """Return at most so many of them, of as many kinds as there are, each drawn from its kind by the seed."""
    kinds: dict[str, list[Mutant]] = {}
    for mutant in found:
        kinds.setdefault(mutant.kind, []).append(mutant)
    random = Random(seed)
    piles = [random.sample(pile, len(pile)) for pile in kinds.values()]
    return [mutant for turn in zip_longest(*piles) for mutant in turn if mutant is not None][:most]


class _Changes:
    """The changes of one file. Nodes near syntax errors have none."""

    def __init__(self, tree: SyntaxTree) -> None:
        self._tree = tree

    def all(self) -> Iterator[_Change]:
        yield from self._plan()
        yield from self._precision()
        for function in self._tree.functions:
            for node in walk(function.body):
                if not node.has_error:
                    yield from self._of(node)

    def _of(self, node: Node) -> Iterator[_Change]:
        match node.type:
            case "for_statement":
                yield from self._loop(node)
            case "binary_expression":
                yield from self._binary(node)
            case "assignment_expression":
                yield from self._assignment(node)
            case "expression_statement":
                yield self._put("a statement left out", node, ";")
            case "number_literal":
                yield from self._constant(node)
            case "call_expression":
                yield from self._call(node)
            case "subscript_expression":
                yield from self._subscript(node)
            case "conditional_expression":
                yield from self._choice(node)

    # --- what nodes say ---------------------------------------------------------------------------------------------

    def _text(self, node: Node) -> str:
        return self._tree.slice(node)

    def _put(self, kind: str, node: Node, text: str) -> _Change:
        return _Change(kind, (Edit(node.start_byte, node.end_byte, text),))

    def _put_in(self, kind: str, node: Node, text: str) -> _Change:
        """The same for an expression that may stand in a larger one."""
        alone = node.parent is not None and node.parent.type in CLOSED
        return self._put(kind, node, text if alone else f"({text})")

    def _grouped(self, node: Node) -> str:
        """The text of an expression, to stand before any operator."""
        return self._text(node) if node.type in ATOMS else f"({self._text(node)})"

    @cached_property
    def _types(self) -> dict[str, str]:
        """The last type of every name that functions declare, pointers and arrays by what they hold."""
        listed = (d for f in self._tree.functions for all_of_it in f.declarations.values() for d in all_of_it)
        return {d.name: d.type for d in listed}

    def _is_floating(self, node: Node) -> bool:
        """Whether a value of a floating type has a part in it, as far as the text tells."""
        for inner in walk(node):
            if inner.type == "identifier" and self._types.get(self._text(inner)) in FLOATING:
                return True
            if inner.type == "number_literal" and _is_decimal(self._text(inner)):
                return True
        return False

    @staticmethod
    def _within(node: Node, *kinds: str) -> bool:
        """Whether it is a part of an index, of a declaration's array size or the like."""
        above = node.parent
        while above is not None and not above.type.endswith("statement"):
            if above.type in kinds:
                return True
            above = above.parent
        return False

    # --- loops, conditions ------------------------------------------------------------------------------------------

    def _loop(self, node: Node) -> Iterator[_Change]:
        condition, initializer = (node.child_by_field_name(name) for name in ("condition", "initializer"))
        if condition is None or condition.type != "binary_expression":
            return
        left, sign, right = _sides(condition)
        if sign in ("<", "<=", ">", ">="):
            upwards = sign in ("<", "<=")
            bound = self._grouped(right)
            nearer = f"{bound} - 1" if upwards else f"{bound} + 1"
            yield self._put("the last turn of a loop left out", right, nearer)
            further = {"<": "<=", ">": ">=", "<=": "<", ">=": ">"}[sign]
            kind = "one turn too many" if len(further) > len(sign) else "the last turn of a loop left out"
            yield self._put(kind, condition, f"{self._text(left)} {further} {self._text(right)}")
            if sign == "<":
                yield self._put("the tail of a loop left out", right, f"{bound} / {TAIL} * {TAIL}")
            declared = initializer and initializer.child_by_field_name("declarator")
            start = declared and declared.child_by_field_name("value")
            if start:
                moved = f"{self._grouped(start)} {'+' if upwards else '-'} 1"
                yield self._put("the first turn of a loop left out", start, moved)

    def _binary(self, node: Node) -> Iterator[_Change]:
        left, sign, right = _sides(node)
        a, b = self._text(left), self._text(right)
        above = _statement_of(node)
        in_header = above is not None and above.type == "for_statement"
        if sign in ("<", "<=", ">", ">=") and not in_header:
            if self._is_floating(node):
                turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[sign]
                yield self._put("a comparison turned round", node, f"{a} {turned} {b}")
            else:
                other = sign[:1] if len(sign) == 2 else f"{sign}="
                yield self._put("a bound off by one", node, f"{a} {other} {b}")
                yield self._put("a bound off by one", right, f"{self._grouped(right)} - 1")
        elif sign in ("==", "!="):
            yield self._put("a comparison turned round", node, f"{a} {'!=' if sign == '==' else '=='} {b}")
        elif sign in ("&&", "||"):
            yield self._put("half of a condition dropped", node, a)
            yield self._put("half of a condition dropped", node, b)
        elif sign in ARITHMETIC:
            yield from self._sum_or_product(node)

    def _sum_or_product(self, node: Node) -> Iterator[_Change]:
        left, sign, right = _sides(node)
        a, b = self._text(left), self._text(right)
        in_index = self._within(node, "subscript_argument_list") or not self._is_floating(node)
        if in_index:
            yield self._put_in("another index", node, f"{a} {'-' if sign == '+' else '+'} {b}")
            return
        yield self._put_in("another operator", node, f"{a} {ARITHMETIC[sign]} {b}")
        what = "a factor dropped" if sign in "*/" else "a term dropped"
        yield self._put(what, node, a)
        if sign in "+*":
            yield self._put(what, node, b)
        else:
            yield self._put_in("operands swapped", node, f"{b} {sign} {a}")

    def _choice(self, node: Node) -> Iterator[_Change]:
        yes, no = (node.child_by_field_name(name) for name in ("consequence", "alternative"))
        if yes and no:
            yield self._put_in("one branch for both", node, self._text(yes))
            yield self._put_in("one branch for both", node, self._text(no))

    # --- values -----------------------------------------------------------------------------------------------------

    def _assignment(self, node: Node) -> Iterator[_Change]:
        left, sign, right = _sides(node)
        if sign in ("+=", "-=", "*=", "/=") and self._is_floating(left):
            a, b = self._text(left), self._text(right)
            yield self._put("the last term alone", node, f"{a} = {b}")
            if sign in ("+=", "-="):
                yield self._put("another operator", node, f"{a} {'-=' if sign == '+=' else '+='} {b}")

    def _constant(self, node: Node) -> Iterator[_Change]:
        text = self._text(node)
        above = _statement_of(node)
        in_header = above is not None and above.type in ("for_statement", "case_statement")
        if in_header or self._within(node, "template_argument_list", "array_declarator"):
            return
        suffix = text[len(text.rstrip("fFlLuU")) :] if not text.lower().startswith("0x") else ""
        try:
            value = float(text[: len(text) - len(suffix)]) if _is_decimal(text) else int(text, 0)
        except ValueError:
            return
        if isinstance(value, int):
            yield self._put("another constant", node, f"{value + 1}")
        elif value:
            factor = NOT_QUITE if USUAL[0] <= abs(value) <= USUAL[1] else 2.0
            yield self._put("another constant", node, f"{value * factor!r}{suffix}")

    def _call(self, node: Node) -> Iterator[_Change]:
        name, listed = (node.child_by_field_name(part) for part in ("function", "arguments"))
        if name is None or listed is None:
            return
        called, given = self._text(name).removeprefix("std::"), listed.named_children
        if len(given) == 2 and called not in COMMUTATIVE and not called.startswith(("atomic", "__")):
            swapped = f"({self._text(given[1])}, {self._text(given[0])})"
            yield self._put("operands swapped", listed, swapped)
        elif len(given) == 1 and called not in ("load", "store", *FLOATING, "int") and self._is_floating(node):
            yield self._put("a function left out", node, f"({self._text(given[0])})")

    def _subscript(self, node: Node) -> Iterator[_Change]:
        """An input that is read in another's place, or one element too early."""
        base, index = node.child_by_field_name("argument"), node.child_by_field_name("indices")
        if base is None or index is None or not index.named_children:
            return
        inputs = {t.name: t.dtype for t in self._tree.operator.tensors if t.role == "in"}
        name = self._text(base)
        if name in inputs:
            at = self._grouped(index.named_children[0])
            early = f"{name}[{at} > 0 ? {at} - 1 : 0]"
            yield self._put("the element before read", node, early)
        rivals = [n for n, dtype in inputs.items() if n != name and dtype == inputs.get(name)]
        for rival in rivals[:1]:
            yield self._put("another input read", base, rival)

    # --- precision --------------------------------------------------------------------------------------------------

    def _precision(self) -> Iterator[_Change]:
        """Inputs, results and sums in a lower precision, wherever they are."""
        calls = [n for f in self._tree.functions for n in walk(f.body) if n.type == "call_expression"]
        loads = [n for n in calls if self._text(n).startswith("load(")]
        stored = [n for n in calls if self._text(n).startswith("store(")]
        sums = [
            node
            for f in self._tree.functions
            for node in walk(f.body)
            if node.type == "assignment_expression" and _sides(node)[1] == "+=" and self._is_floating(_sides(node)[0])
        ]
        narrow = DTYPES[self._tree.dtype].size < 4
        if loads and not narrow:
            yield self._lowered("inputs in a lower precision", (self._coarse(n) for n in loads))
        if stored and not narrow:
            inner = (n.child_by_field_name("arguments") for n in stored)
            yield self._lowered("results in a lower precision", (self._coarse(n) for n in inner if n))
        if sums:
            yield self._lowered("sums in a lower precision", (self._coarse_sum(n) for n in sums))

    def _coarse(self, node: Node) -> Edit:
        text = self._text(node)
        return Edit(node.start_byte, node.end_byte, f"(evo_coarse{text})" if text[0] == "(" else f"evo_coarse({text})")

    def _coarse_sum(self, node: Node) -> Edit:
        left, _, right = _sides(node)
        a, b = self._text(left), self._text(right)
        return Edit(node.start_byte, node.end_byte, f"{a} = evo_coarse({a} + ({b}))")

    def _lowered(self, kind: str, edits: Iterable[Edit]) -> _Change:
        """The edits, outermost first where one lies in another, and the function that rounds, before all functions."""
        kept: list[Edit] = []
        for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
            if not kept or edit.start >= kept[-1].end:
                kept.append(edit)
        start = min(_outermost(f.node).start_byte for f in self._tree.functions)
        start = self._tree.data.rfind(b"\n", 0, start) + 1
        return _Change(kind, (Edit(start, start, self._rounding()), *kept))

    def _rounding(self) -> str:
        """A line with a function that keeps fewer bits of an accumulator's fraction."""
        is_double = DTYPES[ACCUMULATOR[self._tree.dtype]].cuda == "double"
        bits, kept = KEPT_BITS["double" if is_double else "float"]
        word, one, cut = ("unsigned long long", "1ull", bits - kept) if is_double else ("unsigned", "1u", bits - kept)
        where = "__device__" if self._tree.target == "cuda" else "static"
        return (
            f"{where} inline ACC evo_coarse(ACC value) {{ "
            f"union {{ ACC number; {word} bits; }} both; both.number = value; "
            f"both.bits = (both.bits + ({one} << {cut - 1})) & ~(({one} << {cut}) - 1); return both.number; }}\n"
        )

    # --- the plan ---------------------------------------------------------------------------------------------------

    def _plan(self) -> Iterator[_Change]:
        """A grid without its last, partial block, and outputs that are not cleared."""
        end = self._tree.text.find("*/")
        head = self._tree.text[: max(end, 0)]
        for found in re.finditer(r"^[ \t]*grid[ \t]*=.*$", head, re.MULTILINE):
            for call in re.finditer(r"ceil_div\(([^(),]+), ([^(),]+)\)", found[0]):
                begin = len(head[: found.start() + call.start()].encode())
                text = f"max(({call[1]}) // ({call[2]}), 1)"
                edit = Edit(begin, begin + len(call[0].encode()), text)
                yield _Change("the last block not launched", (edit,))
        for found in re.finditer(r"^[ \t]*zero[ \t]*=.*\n", head, re.MULTILINE):
            begin = len(head[: found.start()].encode())
            yield _Change("outputs not cleared", (Edit(begin, begin + len(found[0].encode()), "\n"),))


def _sides(node: Node) -> tuple[Node, str, Node]:
    """The two sides of a binary expression or an assignment, and the sign between them."""
    left, sign, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
    assert left is not None and sign is not None and right is not None
    return left, sign.type, right


def _statement_of(node: Node) -> Node | None:
    """The innermost statement around it; what stands in a loop's header belongs to the loop."""
    above = node.parent
    while above is not None and not above.type.endswith("statement"):
        above = above.parent
    return above


def _outermost(node: Node) -> Node:
    """A definition with what stands around it: `extern "C"`, `template <...>`, a namespace."""
    while node.parent is not None and node.parent.type != "translation_unit":
        node = node.parent
    return node


def _is_decimal(text: str) -> bool:
    """Whether a literal is a floating one."""
    return not text.lower().startswith("0x") and bool(re.search(r"[.eE]", text) or text[-1] in "fF")
