"""Transforms of single loads and operations: invariant loads, prefetches, aliasing, values kept instead of computed
twice, cheaper arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree
from mutators.analysis.dataflow import MATH, PURE, effects, loop_effects, resolve
from mutators.analysis.dependence import independent
from mutators.analysis.plan_tables import base_name
from mutators.analysis.polynomial import names_in
from mutators.analysis.source_text import Edit
from mutators.analysis.syntax import Node, field_of, walk
from mutators.transforms.base import Site, transform
from mutators.transforms.loops import fixed_outside

DISTANCES = (16, 4, 8, 32, 64)

_CONDITIONAL = frozenset({"if_statement", "conditional_expression", "switch_statement", "while_statement"})
_CHEAP = frozenset({"T", "ACC", "int", "static_cast", "sizeof"})


@transform("restrict")
def restrict(tree: SyntaxTree) -> Iterator[Site]:
    """Promise the compiler that a launched function's pointers do not overlap."""
    for function in tree.functions:
        if function.name not in tree.launched or not _distinct_arguments(tree, function):
            continue
        names = [name for parameter in function.parameters if (name := _plain_pointer(parameter))]
        places = [(name.start_byte, tree.data[name.start_byte - 1 : name.start_byte].isspace()) for name in names]
        edits = tuple(Edit(at, at, "__restrict__ " if spaced else " __restrict__ ") for at, spaced in places)
        if edits:
            yield Site(f"restrict the pointers of {function.name}", edits)


def _plain_pointer(parameter: Node) -> Node | None:
    """The name in `const T* name`; None for anything else, a pointer that is restricted already included."""
    declarator = parameter.child_by_field_name("declarator")
    if parameter.has_error or declarator is None or declarator.type != "pointer_declarator":
        return None
    name = declarator.children[-1]
    return name if len(declarator.children) == 2 and name.type == "identifier" else None


def _distinct_arguments(tree: SyntaxTree, function: Function) -> bool:
    """Whether every launch of the function passes each object at most once."""
    for launch in tree.plan.launches:
        if base_name(launch.kernel) == function.name:
            objects = [n for a in launch.args for n in a.names if n not in tree.operator.shape_names]
            objects = [n for n in objects if n not in tree.plan.tune and n not in tree.plan.lets]
            if len(objects) != len(set(objects)):
                return False
    return True


@transform("hoist")
def hoist(tree: SyntaxTree) -> Iterator[Site]:
    """Compute what does not change in a loop once, before it."""
    for loop in tree.loops:
        if loop_effects(loop).opaque or loop.within("collapse"):
            continue
        seen = set()
        for node in _invariants(loop, loop.body):
            text = tree.slice(node)
            if text in seen:
                continue
            seen.add(text)
            same = [n for n in walk(loop.body) if n.type == node.type and tree.slice(n) == text]
            name = tree.fresh("fixed")
            edits = tuple(Edit(n.start_byte, n.end_byte, name) for n in same)
            made = tree.before(loop, f"const auto {name} = {text};", inside=edits)
            yield Site(f"hoist `{' '.join(text.split())}` out of {loop.place}", made)


def _invariants(loop: Loop, node: Node) -> Iterator[Node]:
    """The largest invariant subexpressions worth a name, in the order of the text."""
    if node.type in _CONDITIONAL or node.type == "lambda_expression":
        return
    if node.type in ("binary_expression", "call_expression", "subscript_expression") and _invariant(loop, node):
        yield node
        return
    targets = [field_of(node, "left")] if node.type == "assignment_expression" else []
    for child in node.named_children:
        if child in targets and child.type == "subscript_expression":
            yield from _invariants(loop, field_of(child, "indices"))
        elif not (node.type == "call_expression" and child == field_of(node, "function")):
            yield from _invariants(loop, child)


def _invariant(loop: Loop, node: Node) -> bool:
    tree, known = loop.tree, loop_effects(loop)
    inside = effects(loop.function, node)
    if inside.opaque or inside.writes or names_in(loop.function, [tree.slice(node)]) & known.changing:
        return False
    if any(a.array in known.written_arrays for a in inside.accesses):
        return False
    parent = node.parent
    if (parent is not None and parent.type == "update_expression") or not _worth(tree, node):
        return False
    return not any(c.type in ("string_literal", "type_descriptor") and c.parent == node for c in walk(node))


def _worth(tree: SyntaxTree, node: Node) -> bool:
    """Whether a compiler might not do it by itself: a load, a call that is not a cast, a division."""
    constants = {"T", "ACC", *tree.plan.tune}
    names = (n for n in walk(node) if n.type == "identifier" and n.parent and n.parent.type != "call_expression")
    if all(tree.slice(n) in constants for n in names):
        return False
    for child in walk(node):
        if child.type == "subscript_expression":
            return True
        if child.type == "call_expression":
            name = tree.slice(field_of(child, "function")).split("<")[0]
            if name in PURE - _CHEAP:
                return True
        if child.type == "binary_expression" and field_of(child, "operator").type in ("/", "%"):
            return True
    return False


@transform("prefetch", "cpu")
def prefetch(tree: SyntaxTree) -> Iterator[Site]:
    """Prefetch what an index array leads to, some iterations ahead."""
    for loop in tree.loops:
        if loop.children or not loop.unit_step or loop_effects(loop).opaque or not fixed_outside(loop, loop):
            continue
        if "__builtin_prefetch" in tree.slice(loop.body):
            continue
        ahead = tree.fresh("AHEAD")
        seen = set()
        for node in walk(loop.body):
            address = _indirect(loop, node) if node.type == "subscript_expression" else None
            if not address or address in seen:
                continue
            seen.add(address)
            place = address.replace("@", f"{loop.variable} + {ahead}")
            fetch = f"if ({loop.variable} + {ahead} < {loop.bound_text}) __builtin_prefetch(&{place});"
            yield Site(
                f"prefetch `{tree.slice(node)}` in {loop.place}, {ahead} ahead",
                tree.first_in(loop, fetch),
                {ahead: DISTANCES},
            )


def _indirect(loop: Loop, node: Node) -> str | None:
    """`x[columns[@]]`, where @ is the loop's variable, for an access whose index is itself loaded."""
    tree, function = loop.tree, loop.function
    index = field_of(node, "indices").named_children
    base = field_of(node, "argument")
    if len(index) != 1 or base.type != "identifier" or resolve(function, node) is None:
        return None
    inner = index[0]
    known = function.definition(tree.slice(inner)) if inner.type == "identifier" else None
    if known and known.value is not None and known.node.start_byte >= loop.body.start_byte:
        inner = known.value
    loads = [n for n in walk(inner) if n.type == "subscript_expression"]
    names = {tree.slice(n) for n in walk(inner) if n.type == "identifier"}
    varying = names & loop_effects(loop).changing
    if not loads or varying != {loop.variable} or tree.slice(base) in loop_effects(loop).declared:
        return None
    return f"{tree.slice(base)}[{tree.substitute(inner, {loop.variable: '@'})}]"


@transform("keep_values")
def keep_values(tree: SyntaxTree) -> Iterator[Site]:
    """Store an expensive value in the output where it is first computed, and load it where it is needed again."""
    if tree.dtype not in ("fp32", "fp64"):
        return  # a narrower output would round the value
    for second in tree.loops:
        output = _output(second)
        for first in tree.loops:
            if output and first.signature == second.signature and _precedes(first, second, output):
                for text in _repeated_calls(first, second):
                    if not names_in(first.function, [text]) & _changed(first, second):
                        yield _keep(first, second, output, text)


def _output(loop: Loop) -> Node | None:
    """`out[c]`, for a loop whose only effect is to assign to it."""
    known = loop_effects(loop)
    writes = [a for a in known.accesses if a.write]
    if known.opaque or known.writes or loop.exits or len(writes) != 1 or writes[0].accumulates or not loop.unit_step:
        return None
    only = len(known.touching(writes[0].array)) == 1
    return writes[0].node if only and independent(loop) else None


def _precedes(first: Loop, second: Loop, output: Node) -> bool:
    """Whether `first` runs some statements before `second`, and nothing up to there uses or moves the output."""
    between, node = [], first.node.next_named_sibling
    while node is not None and node.start_byte < second.begin:
        between.append(node)
        node = node.next_named_sibling
    if node is None or node.end_byte > second.end or first.exits or first.parent is not second.parent:
        return False
    array = next(a.array for a in loop_effects(second).accesses if a.write)
    names = names_in(first.function, [first.tree.slice(output)])
    for part in (loop_effects(first), effects(first.function, *between)):
        # Names declared between the loops would not be known in the first.
        if part.opaque or part.touching(array) or part.changing & names - {first.variable}:
            return False
    return True


def _changed(first: Loop, second: Loop) -> set[str]:
    """The names that need not have the same value in an iteration of `second` as in that of `first`."""
    arrays = loop_effects(first).written_arrays | loop_effects(second).written_arrays
    return (loop_effects(first).changing | loop_effects(second).changing | arrays) - {first.variable}


def _repeated_calls(first: Loop, second: Loop) -> list[str]:
    """Calls that stand in both loops, word for word, and are worth a store and a load."""
    tree = first.tree

    def calls(loop: Loop) -> set[str]:
        nodes = (n for n in walk(loop.body) if n.type == "call_expression")
        names = ((n, tree.slice(field_of(n, "function")).split("<")[0]) for n in nodes)
        return {tree.slice(n) for n, name in names if name in PURE - _CHEAP - {"load", "store"}}

    return sorted(calls(first) & calls(second))


def _keep(first: Loop, second: Loop, output: Node, text: str) -> Site:
    tree = first.tree
    name, target = tree.fresh("kept"), tree.slice(output)

    def replaced(loop: Loop, by: str) -> list[Edit]:
        nodes = [n for n in walk(loop.body) if n.type == "call_expression" and tree.slice(n) == text]
        return [Edit(n.start_byte, n.end_byte, by) for n in nodes]

    lines = (f"const auto {name} = {text};", f"{target} = store({name});")
    edits = tree.first_in(first, *lines, inside=replaced(first, name))
    return Site(f"keep `{text}` of {first.place} in `{target}`", (*edits, *replaced(second, f"load({target})")))


_FLOATS = frozenset({"ACC", "float", "double"})
_SINGLE = frozenset(MATH) - {"rsqrt", "abs"}
_DOUBLE_LITERAL = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@transform("reciprocal")
def reciprocal(tree: SyntaxTree) -> Iterator[Site]:
    """Replace divisions by something fixed by multiplications with its reciprocal."""
    for loop in tree.loops:
        known = loop_effects(loop)
        divisions = [
            n for n in walk(loop.body) if n.type == "binary_expression" and field_of(n, "operator").type == "/"
        ]
        by_name: dict[str, list[Node]] = {}
        for node in divisions:
            right = field_of(node, "right")
            if right.type == "identifier":
                by_name.setdefault(tree.slice(right), []).append(node)
        for name, nodes in by_name.items():
            kind = loop.function.type_of(name)
            if known.opaque or kind not in _FLOATS or name in known.changing or _fixed_further_out(loop, name):
                continue
            inverse = tree.fresh(f"inverse_{name}")
            edits = [e for n in nodes for e in _times(n, inverse)]
            line = f"const {kind} {inverse} = {kind}(1) / {name};"
            if not loop.within("collapse"):
                made = tree.before(loop, line, inside=edits)
                yield Site(f"multiply by 1 / {name} in {loop.place}", made)


def _fixed_further_out(loop: Loop, name: str) -> bool:
    """Whether the loop around this one leaves the name alone too; then that is the better place."""
    outer = loop.parent
    return outer is not None and not loop_effects(outer).opaque and name not in loop_effects(outer).changing


def _times(node: Node, inverse: str) -> tuple[Edit, Edit]:
    sign, right = field_of(node, "operator"), field_of(node, "right")
    return Edit(sign.start_byte, sign.end_byte, "*"), Edit(right.start_byte, right.end_byte, inverse)


@transform("single_precision")
def single_precision(tree: SyntaxTree) -> Iterator[Site]:
    """Compute in float what the kernel computes in double without need."""
    if tree.dtype == "fp64":
        return
    for function in tree.functions:
        if function.node.has_error:
            continue
        edits = tuple(e for node in walk(function.body) if (e := _single(tree, node)))
        if edits:
            yield Site(f"single precision in {function.name}", edits)


def _single(tree: SyntaxTree, node: Node) -> Edit | None:
    text = tree.slice(node)
    parent = node.parent
    if node.type == "primitive_type" and text == "double":
        return Edit(node.start_byte, node.end_byte, "float")
    if node.type == "number_literal" and _DOUBLE_LITERAL.fullmatch(text) and not text.isdigit():
        return Edit(node.end_byte, node.end_byte, "f")
    called = parent is not None and parent.type == "call_expression" and node == field_of(parent, "function")
    if called and node.type == "identifier" and text in _SINGLE:
        return Edit(node.end_byte, node.end_byte, "f")
    return None
