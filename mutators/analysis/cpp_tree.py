"""The syntax tree of a kernel file: functions, canonical loops and names.

Only loops of the form `for (type v = start; v < bound; v += step)` become a `Loop`; everything else is opaque to the
transforms. Regions that tree-sitter could not read are left out, so that no transform ever touches them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mutators.analysis.plan_tables import PlanTables, base_name
from mutators.analysis.source_text import INDENT, WORD, Edit, apply_edits, block, reindent
from mutators.analysis.syntax import Node, deeper_than, parsed, walk
from operators.definition.spec import CPP_KEYWORDS, RESERVED, Operator
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan

MAX_DEPTH = 250
"""Files that nest more deeply have no functions here: analyses recurse, and no real kernel does."""
JUMPS = frozenset({"return_statement", "goto_statement", "throw_statement", "labeled_statement", "co_yield_statement"})
"""Statements that lead, or let others lead, out of any loop."""


@dataclass(frozen=True)
class Declaration:
    """A name that a function declares, parameters included."""

    name: str
    type: str
    """Without qualifiers: `ACC`, `int`, `T`."""
    node: Node
    """The declarator's declaration (or parameter)."""
    value: Node | None
    """Its initialiser."""
    pointer: bool = False
    array: bool = False
    reference: bool = False
    in_loop_header: bool = False


@dataclass(eq=False)
class Loop:
    """A canonical for loop. Positions are bytes of the file."""

    tree: SyntaxTree
    node: Node
    function: Function
    variable: str
    type: str
    start: Node
    bound: Node
    inclusive: bool
    """`v <= bound` instead of `v < bound`."""
    step: Node | None
    """None: 1."""
    body: Node
    pragmas: tuple[Node, ...]
    parent: Loop | None = None
    children: list[Loop] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """Where the loop begins, its pragmas included."""
        return self.pragmas[0].start_byte if self.pragmas else self.node.start_byte

    @property
    def end(self) -> int:
        """Where the loop ends, as a byte of the file."""
        return self.node.end_byte

    @property
    def start_text(self) -> str:
        """The expression that the variable starts with, as it is written."""
        return self.tree.slice(self.start)

    @property
    def bound_text(self) -> str:
        """The expression that the variable is compared with, as it is written."""
        return self.tree.slice(self.bound)

    @property
    def step_text(self) -> str:
        """The number that is added to the variable each time; `1` for `v++`."""
        return self.tree.slice(self.step) if self.step else "1"

    @property
    def ends(self) -> tuple[Node, ...]:
        """Start, bound and step, where one is written."""
        return (self.start, self.bound, *((self.step,) if self.step else ()))

    @property
    def header(self) -> str:
        """`for (int i = 0; i < n; i++)`, as it stands."""
        return self.tree.data[self.node.start_byte : self.body.start_byte].decode().rstrip()

    @property
    def signature(self) -> tuple[str, str, str, bool, str]:
        """Equal for loops that run over the same values with the same variable."""
        return self.variable, self.start_text, self.bound_text, self.inclusive, self.step_text

    @property
    def pragma_texts(self) -> tuple[str, ...]:
        """The loop's pragmas in the order of the file, each with its white space reduced to single blanks."""
        return tuple(" ".join(self.tree.slice(p).split()) for p in self.pragmas)

    @property
    def unit_step(self) -> bool:
        """Whether the loop is `v < bound; v++`, the form that can be cut into tiles."""
        return self.step is None and not self.inclusive

    @property
    def indent(self) -> str:
        """White space at the start of the line in which the loop begins."""
        return self.tree.indent_at(self.begin)

    @cached_property
    def statements(self) -> tuple[Node, ...]:
        """The body's statements, pragmas included and comments left out."""
        if self.body.type != "compound_statement":
            return (self.body,)
        return tuple(child for child in self.body.named_children if child.type != "comment")

    @property
    def only_child(self) -> Loop | None:
        """The loop that is all of the body, if this is one half of a perfect nest."""
        if len(self.statements) != 1 or len(self.children) != 1:
            return None
        return self.children[0] if self.statements[0] == self.children[0].node else None

    @property
    def ancestors(self) -> Iterator[Loop]:
        """Enclosing loops, innermost first."""
        loop = self.parent
        while loop:
            yield loop
            loop = loop.parent

    def within(self, name: str) -> bool:
        """Whether a pragma of this loop or of one around it mentions `name`."""
        return any(name in pragma for loop in (self, *self.ancestors) for pragma in loop.pragma_texts)

    @cached_property
    def exits(self) -> bool:
        """Whether control may leave the body other than at its end."""
        return any(node.type in JUMPS | {"break_statement", "continue_statement"} for node in walk(self.body))

    @cached_property
    def abandoned(self) -> bool:
        """Whether control may leave the loop before its last iteration; an iteration may end early (`continue`)."""
        return any(
            node.type in JUMPS or (node.type == "break_statement" and self._owns(node)) for node in walk(self.body)
        )

    def _owns(self, leaving: Node) -> bool:
        """Whether a `break` ends this loop, not one inside it or a `switch`."""
        holders = {"for_statement", "while_statement", "do_statement", "switch_statement", "for_range_loop"}
        node = leaving.parent
        while node is not None and node.type not in holders:
            node = node.parent
        return node == self.node

    @property
    def place(self) -> str:
        """``loop `j` of matrix_mul (line 9)``."""
        return f"loop `{self.variable}` of {self.function.name} (line {self.tree.line(self.node)})"


@dataclass(eq=False)
class Function:
    """A function definition that the parser understood at least in parts."""

    tree: SyntaxTree
    node: Node
    name: str
    body: Node
    declarator: Node

    @cached_property
    def declarations(self) -> Mapping[str, tuple[Declaration, ...]]:
        """The function's declarations by name, parameters included; a name may be declared more than once."""
        found: dict[str, list[Declaration]] = {}
        for node in walk(self.node):
            if node.type in ("declaration", "parameter_declaration", "optional_parameter_declaration"):
                for declaration in _declarations(self.tree, node):
                    found.setdefault(declaration.name, []).append(declaration)
        return {name: tuple(all_of_it) for name, all_of_it in found.items()}

    def declared_at(self, node: Node) -> list[Declaration]:
        """The declarations of a declaration or parameter."""
        return [d for all_of_it in self.declarations.values() for d in all_of_it if d.node == node]

    @property
    def outer_loops(self) -> dict[int, Loop]:
        """Loops that are in no other one, by where they begin, pragmas left out."""
        loops = self.tree.loops
        return {loop.node.start_byte: loop for loop in loops if loop.function is self and not loop.parent}

    @cached_property
    def assigned(self) -> frozenset[str]:
        """Names that are assigned, stepped or have their address taken somewhere (array elements do not count)."""
        names = set()
        for node in walk(self.body):
            target = None
            if node.type == "assignment_expression":
                target = node.child_by_field_name("left")
            elif node.type == "update_expression" or (node.type == "pointer_expression" and node.child(0).type == "&"):
                target = node.child_by_field_name("argument")
            if target is not None and target.type == "identifier":
                names.add(self.tree.slice(target))
        return frozenset(names)

    def definition(self, name: str) -> Declaration | None:
        """The one declaration of a name that never changes after it, if its value is known and does not change."""
        return self._definitions.get(name)

    @cached_property
    def _definitions(self) -> Mapping[str, Declaration]:
        # A loop's variable changes too, yet has one value within an iteration, which is all that analyses compare.
        counters = {n for n, listed in self.declarations.items() if all(d.in_loop_header for d in listed)}
        changing = self.assigned - counters
        found = {}
        for name, (only, *others) in self.declarations.items():
            plain = not (others or only.in_loop_header or only.array or only.reference)
            if plain and only.value is not None and name not in self.assigned:
                used = {self.tree.slice(n) for n in walk(only.value) if n.type == "identifier"}
                if not used & changing:
                    found[name] = only
        return found

    def type_of(self, name: str) -> str | None:
        """The declared type of a scalar, where all declarations of the name agree."""
        types = {d.type for d in self.declarations.get(name, ()) if not (d.pointer or d.array)}
        return types.pop() if len(types) == 1 else None

    @cached_property
    def parameters(self) -> tuple[Node, ...]:
        """The declarations of its parameters, in order."""
        listed = self.declarator.child_by_field_name("parameters")
        return tuple(n for n in listed.named_children if n.type.endswith("parameter_declaration")) if listed else ()


class SyntaxTree:
    """A kernel file, read: its plan and its tree."""

    def __init__(self, text: str, operator: Operator, target: str, dtype: str) -> None:
        """Raises PlanError where the header cannot be used."""
        self.plan: Plan = parse_plan(text, operator, target).for_dtype(dtype)
        self.text = text
        self.data = text.encode()
        self.operator = operator
        self.target = target
        self.dtype = dtype
        self.memo: dict[Any, Any] = {}
        """Earlier results of the analyses of `mutators.analysis.dataflow`."""
        self.root = parsed(self.data, target)
        self.error_count = sum(n.is_error or n.is_missing for n in walk(self.root)) if self.root.has_error else 0
        self.too_deep = deeper_than(self.root, MAX_DEPTH)

    def slice(self, node: Node) -> str:
        """The file's own text of a node."""
        return self.data[node.start_byte : node.end_byte].decode()

    def line(self, node: Node) -> int:
        """The line of the file in which a node begins, counted from 1."""
        return node.start_point.row + 1

    def indent_at(self, position: int) -> str:
        """White space at the start of the line that holds `position`."""
        line = self.data[self.data.rfind(b"\n", 0, position) + 1 : position].decode()
        return line[: len(line) - len(line.lstrip())]

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Every function definition, in the order of the file; none where the file nests too deeply."""
        if self.too_deep:
            return ()
        return tuple(
            f for node in walk(self.root) if node.type == "function_definition" and (f := self._function(node))
        )

    def _function(self, node: Node) -> Function | None:
        body, declarator = node.child_by_field_name("body"), node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            declarator = declarator.child_by_field_name("declarator")
        name = declarator.child_by_field_name("declarator") if declarator else None
        if body is None or declarator is None or name is None:
            return None
        return Function(self, node, self.slice(name).split("<")[0], body, declarator)

    @cached_property
    def launched(self) -> frozenset[str]:
        """Functions that the plan launches, without template arguments or namespaces."""
        return frozenset(base_name(launch.kernel) for launch in self.plan.launches)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every canonical loop, outer before inner, in the order of the file."""
        found: list[Loop] = []
        for function in self.functions:
            self._collect(function.body, function, None, found)
        return tuple(found)

    def _collect(self, node: Node, function: Function, parent: Loop | None, found: list[Loop]) -> None:
        for child in node.named_children:
            loop = _canonical(self, child, function) if child.type == "for_statement" else None
            if loop:
                loop.parent = parent
                found.append(loop)
                if parent:
                    parent.children.append(loop)
            if child.type not in ("lambda_expression", "function_definition"):
                self._collect(child, function, loop or parent, found)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier that the file, the operator or the language uses."""
        words = WORD.findall(self.text)
        return frozenset(words) | self.operator.names | RESERVED | CPP_KEYWORDS

    def fresh(self, base: str, taken: Collection[str] = ()) -> str:
        """`base`, or the first of base_2, base_3, ... that nothing is called yet."""
        name, number = base, 2
        while name in self.names or name in taken:
            name, number = f"{base}_{number}", number + 1
        return name

    def edited(self, begin: int, end: int, edits: Iterable[Edit]) -> str:
        """The text of bytes [begin, end) of the file after edits inside them."""
        moved = [Edit(e.start - begin, e.end - begin, e.text) for e in edits]
        return apply_edits(self.data[begin:end], moved).decode()

    def substitute(self, node: Node | Iterable[Node], texts: Mapping[str, str]) -> str:
        """The text of a node (or of adjacent nodes), with identifiers replaced by name."""
        nodes = (node,) if isinstance(node, Node) else tuple(node)
        edits = [
            Edit(n.start_byte, n.end_byte, texts[self.slice(n)])
            for part in nodes
            for n in walk(part)
            if n.type == "identifier" and self.slice(n) in texts
        ]
        return self.edited(nodes[0].start_byte, nodes[-1].end_byte, edits)

    def before(self, loop: Loop, *lines: str, inside: Iterable[Edit] = ()) -> tuple[Edit, ...]:
        """Insert lines before a loop (and its pragmas), in braces where the grammar needs them.

        `inside` are edits of the loop itself, made at the same time.
        """
        indent = loop.indent
        if loop.node.parent is not None and loop.node.parent.type == "compound_statement":
            text = "".join(f"{line}\n{indent}" for line in lines)
            # A loop that follows a brace on its own line would otherwise drag the new lines behind that brace.
            alone = not self.data[_line_start(self.data, loop.begin) : loop.begin].strip()
            return (Edit(loop.begin, loop.begin, text if alone else f"\n{indent}{text}"), *inside)
        body = reindent(self.edited(loop.begin, loop.end, inside), indent, "")
        return (Edit(loop.begin, loop.end, block("", *lines, body, indent=indent).lstrip()),)

    def first_in(self, loop: Loop, *lines: str, inside: Iterable[Edit] = ()) -> tuple[Edit, ...]:
        """Insert lines at the start of a loop's body; `inside` edits the rest of the body."""
        if loop.body.type == "compound_statement":
            place = loop.body.start_byte + 1
            return (Edit(place, place, "".join(f"\n{loop.indent}{INDENT}{line}" for line in lines)), *inside)
        begin, end = loop.body.start_byte, loop.body.end_byte
        body = reindent(self.edited(begin, end, inside), loop.indent + INDENT, "")
        return (Edit(begin, end, block("", *lines, body, indent=loop.indent).lstrip()),)

    def replace(self, loop: Loop, *lines: str) -> tuple[Edit, ...]:
        """Put statements (written for column 0) in a loop's place, in braces where the grammar needs them."""
        if loop.node.parent is not None and loop.node.parent.type == "compound_statement":
            text = f"\n{loop.indent}".join(reindent(line, "", loop.indent) for line in lines)
        else:
            text = block("", *lines, indent=loop.indent).lstrip()
        return (Edit(loop.begin, loop.end, text),)


def body_text(loop: Loop, texts: Mapping[str, str] | None = None) -> str:
    """The statements of a loop's body for column 0, without the braces."""
    inside = list(loop.body.named_children) if loop.body.type == "compound_statement" else [loop.body]
    if not inside:
        return ";"
    text = loop.tree.substitute(inside, texts or {})
    return reindent(text.strip(), loop.tree.indent_at(inside[0].start_byte), "")


def _declarations(tree: SyntaxTree, node: Node) -> Iterator[Declaration]:
    type_node = node.child_by_field_name("type")
    base = tree.slice(type_node) if type_node else ""
    in_header = node.parent is not None and node.parent.type == "for_statement"
    shared = b"__shared__" in tree.data[_line_start(tree.data, node.start_byte) : node.end_byte]
    for child in node.children_by_field_name("declarator"):
        pointer = array = reference = False
        value = child.child_by_field_name("value") if child.type == "init_declarator" else None
        inner: Node | None = child
        while inner is not None and inner.type != "identifier":
            pointer |= inner.type == "pointer_declarator"
            array |= inner.type == "array_declarator"
            reference |= inner.type == "reference_declarator"
            following = inner.child_by_field_name("declarator")
            if following is None and inner.type == "reference_declarator":
                following = inner.named_children[-1]
            inner = following
        if inner is not None:
            name = tree.slice(inner)
            yield Declaration(name, base, node, value, pointer, array, reference or shared, in_header)


def _line_start(data: bytes, position: int) -> int:
    return data.rfind(b"\n", 0, position) + 1


def _canonical(tree: SyntaxTree, node: Node, function: Function) -> Loop | None:
    """The loop at `node` if it is canonical, fully parsed and leaves its variable alone."""
    parts = [node.child_by_field_name(part) for part in ("initializer", "condition", "update", "body")]
    initializer, condition, update, body = parts
    if node.has_error or not (initializer and condition and update and body) or initializer.type != "declaration":
        return None
    declared = list(_declarations(tree, initializer))
    if len(declared) != 1 or declared[0].value is None or declared[0].pointer or declared[0].type == "auto":
        return None
    variable = declared[0].name
    relation, bound = _condition(tree, condition, variable)
    known, step = _step(tree, update, variable)
    if bound is None or not known or _writes_name(tree, body, variable):
        return None
    pragmas = pragmas_before(node)
    if pragmas and tree.data[: pragmas[0].start_byte].rstrip().endswith(b")"):
        return None  # the body of the loop in the line above, from which the grammar's pragmas part it
    return Loop(
        tree, node, function, variable, declared[0].type, declared[0].value, bound, relation == "<=", step, body,
        pragmas,
    )  # fmt: skip


def pragmas_before(node: Node) -> tuple[Node, ...]:
    """The pragmas of a statement, in the order of the text."""
    found: list[Node] = []
    previous = node.prev_named_sibling
    while previous is not None and previous.type == "preproc_call":
        found.insert(0, previous)
        previous = previous.prev_named_sibling
    return tuple(found)


def _condition(tree: SyntaxTree, node: Node, variable: str) -> tuple[str, Node | None]:
    operator = node.child_by_field_name("operator")
    if node.type != "binary_expression" or operator is None or operator.type not in ("<", "<="):
        return "", None
    left = node.child_by_field_name("left")
    matches = left is not None and left.type == "identifier" and tree.slice(left) == variable
    return operator.type, node.child_by_field_name("right") if matches else None


def _step(tree: SyntaxTree, node: Node, variable: str) -> tuple[bool, Node | None]:
    """Whether the update steps the variable upwards, and by what (None: 1)."""
    if node.type == "update_expression":
        argument = node.child_by_field_name("argument")
        upwards = any(child.type == "++" for child in node.children)
        return upwards and argument is not None and tree.slice(argument) == variable, None
    if node.type == "assignment_expression":
        operator, left = node.child_by_field_name("operator"), node.child_by_field_name("left")
        if operator is not None and operator.type == "+=" and left is not None and tree.slice(left) == variable:
            step = node.child_by_field_name("right")
            return True, None if step is not None and tree.slice(step) == "1" else step
    return False, None


def _writes_name(tree: SyntaxTree, node: Node, name: str) -> bool:
    for child in walk(node):
        if child.type in ("assignment_expression", "update_expression"):
            target = child.child_by_field_name("left") or child.child_by_field_name("argument")
            if target is not None and target.type == "identifier" and tree.slice(target) == name:
                return True
        if child.type == "pointer_expression" and tree.slice(child) == f"&{name}":
            return True
    return False


# --- a kernel file that may be mixed with another ---------------------------------------------------------------------


@dataclass
class Side:
    """A kernel file that may be mixed with another, read."""

    kernel: Kernel
    tree: SyntaxTree
    tables: PlanTables

    @property
    def settings(self) -> dict[str, int]:
        """Every tunable's value."""
        known = {n: v for n, v in self.kernel.values.items() if v in self.tree.plan.tune.get(n, ())}
        return self.tree.plan.settings(known)

    def function(self, name: str) -> Function | None:
        """The one function of that name; None where there is none, or several."""
        found = [f for f in self.tree.functions if f.name == name]
        return found[0] if len(found) == 1 else None


def read_side(kernel: Kernel, operator: Operator, dtype: str) -> Side | None:
    """Return a kernel file, read; None where its header is not written table by table. It raises PlanError."""
    tree = SyntaxTree(kernel.source, operator, kernel.target, dtype)
    tables = PlanTables.read(kernel.source, tree.plan)
    return Side(kernel, tree, tables) if tables else None


def declared(tree: SyntaxTree, node: Node) -> set[str]:
    """Return the names that a declaration outside functions declares; nothing for functions' definitions."""
    while node.type == "template_declaration":
        node = node.named_children[-1]
    kinds = ("declaration", "struct_specifier", "alias_declaration", "type_definition", "preproc_def",
             "preproc_function_def", "enum_specifier", "class_specifier")  # fmt: skip
    if node.type not in kinds:
        return set()
    named = [node.child_by_field_name("name"), *node.children_by_field_name("declarator")]
    named += [n.child_by_field_name("name") for n in node.named_children if n.type.endswith("_specifier")]
    return {word for n in named if n is not None for word in WORD.findall(tree.slice(_named(n)))}


def _named(declarator: Node) -> Node:
    """The part of a declarator that is the name."""
    while inner := declarator.child_by_field_name("declarator"):
        declarator = inner
    return declarator
