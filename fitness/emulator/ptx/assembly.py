"""Finds asm statements in the text of a kernel file that went through the preprocessor, and says them in C++.

Statements of PTX become statements of C++ that call what ../ptx.hpp defines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fitness.emulator.ptx.instructions import ARITHMETIC, MEMORY, WARPS
from fitness.emulator.ptx.operands import LINE, SINK, UNSIGNED, Emit
from fitness.emulator.ptx.reading import Declared, Instruction, Label, NotEmulated, PtxBlock, Register, Statement, parse
from fitness.sandbox.source import ASSEMBLY, Token, tokenized

_MARKER = re.compile(r'^# \d+ "((?:[^"\\\n]|\\.)*+)"[ \d]*$', re.MULTILINE)
_QUALIFIERS = frozenset(("volatile", "__volatile__", "__volatile", "inline", "__inline__", "goto", "const"))
_WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64, "n": 64}
"""Bits of what a constraint of CUDA C++ stands for (inline PTX assembly in CUDA, chapter 1.1.2)."""


@dataclass(frozen=True)
class _Operand:
    constraint: str
    expression: str
    name: str | None

    @property
    def letter(self) -> str:
        return self.constraint.strip("=+&")


def translated(text: str, file: str) -> str:
    """Return a preprocessed text whose asm statements, as far as they come from `file`, are C++ that does the same.

    Lines stay what they are. Elsewhere, in headers of the system, `asm` only gives functions other names.
    """
    parts: list[str] = []
    done, here = 0, False
    found = list(_outside_markers(text))
    for at, token in enumerate(found):
        if token.begin < done:
            continue
        if token.kind == "hash":
            here = token.text == file
        elif here and token.text in ASSEMBLY:
            statement, end = _statement(text, found, at)
            parts += [text[done : token.begin], statement, _lines(text[token.begin : end])]
            done = end
    return "".join([*parts, text[done:]])


def _outside_markers(text: str) -> Iterator[Token]:
    """Words, and for each line marker one of the kind `hash` whose text is the file."""
    line_start, end = True, 0
    for token in tokenized(text):
        if token.begin < end or token.kind in ("blank", "comment"):
            continue
        if token.kind == "hash" and line_start and (marker := _MARKER.match(text, token.begin)):
            end = marker.end()
            yield Token("hash", marker[1], token.begin, end)
        elif token.kind != "hash":
            yield token
        line_start = token.kind == "newline"


def _lines(statement: str) -> str:
    """The line ends of a statement, the last of its line markers among them."""
    markers = list(_MARKER.finditer(statement))
    if not markers:
        return statement.count("\n") * "\n"
    return f"\n{markers[-1][0]}\n" + statement.count("\n", markers[-1].end() + 1) * "\n"


def _statement(text: str, found: list[Token], at: int) -> tuple[str, int]:
    """C++ for the statement whose first word is number `at`, and where it ends."""
    start = at + 1
    while start < len(found) and (found[start].text in _QUALIFIERS or found[start].kind in ("newline", "hash")):
        start += 1
    if start == len(found) or found[start].text != "(":
        return "evo_no_statement", found[at].end  # which no compiler takes, as that of CUDA does not
    depth, end = 0, start
    for end in range(start, len(found)):
        depth += (found[end].text == "(") - (found[end].text == ")")
        if depth == 0:
            break
    inside = [token for token in found[start + 1 : end] if token.kind != "hash"]
    try:
        return f"({{ {_body(text, inside)} }})", found[end].end
    except NotEmulated as error:
        return f"({{ const int {LINE} = __builtin_LINE(); {lack(str(error))} }})", found[end].end


def _body(text: str, inside: list[Token]) -> str:
    sections = list(_parted(inside, ":"))
    template = _string(sections[0])
    outputs, inputs = (
        [_operand(text, part) for part in _parted(section, ",") if part] for section in (*sections[1:3], [], [])[:2]
    )
    operands = [*outputs, *inputs]
    if any(operand.letter not in _WIDTHS for operand in operands):
        raise NotEmulated(f"asm with the constraint {next(o.constraint for o in operands if o.letter not in _WIDTHS)}")
    registers = [
        Register(f"evo_asm_{number}", _WIDTHS[operand.letter], constant=number >= len(outputs))
        for number, operand in enumerate(operands)
    ]
    block = written(parse(template, registers, [operand.name for operand in operands]))
    before = [f"[[maybe_unused]] const int {LINE} = __builtin_LINE(); [[maybe_unused]] std::uint64_t {SINK};"]
    after = []
    for number, operand in enumerate(operands):
        kind, name, expression = UNSIGNED[registers[number].width], registers[number].name, operand.expression
        if number >= len(outputs):
            before.append(f"[[maybe_unused]] const {kind} {name} = evo::ptx::in<{kind}>({expression});")
            continue
        before.append(f"auto&& evo_asm_to_{number} = ({expression});")
        first = f" = evo::ptx::in<{kind}>(evo_asm_to_{number})" if operand.constraint.startswith("+") else ""
        before.append(f"{kind} {name}{first};")
        after.append(f"evo::ptx::out(evo_asm_to_{number}, {name});")
    return " ".join([*before, block, *after])


def _parted(found: list[Token], separator: str) -> Iterator[list[Token]]:
    """Parts between separators that stand in no parentheses."""
    depth = 0
    part: list[Token] = []
    for token in found:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == separator and depth == 0:
            yield part
            part = []
        elif token.kind != "newline" or depth:
            part.append(token)
    yield part


def _string(found: list[Token]) -> str:
    """The contents of string literals that stand side by side."""
    if not found or any(token.kind != "plain" or not token.text.startswith('"') for token in found):
        raise NotEmulated("asm with something else than a string")
    try:
        return "".join(ast.literal_eval(token.text) for token in found)
    except (SyntaxError, ValueError):
        raise NotEmulated("asm with a string that cannot be read") from None


def _operand(text: str, part: list[Token]) -> _Operand:
    """[name] "constraint" (expression)"""
    name = None
    if len(part) > 3 and part[0].text == "[":
        name, part = part[1].text, part[3:]
    opening = next((n for n, token in enumerate(part) if token.text == "("), None)
    if opening is None or part[-1].text != ")":
        raise NotEmulated("asm with an operand that cannot be read")
    return _Operand(
        _string(part[:opening]), " ".join(_MARKER.sub("", text[part[opening].end : part[-1].begin]).split()), name
    )


_UNQUOTABLE = re.compile(r'[^ -~]|["\\]')


def written(block: PtxBlock) -> str:
    """Return a block of C++ that does what a block of PTX says.

    What is not emulated ends the call where it is come to, with its name: other routes of a kernel may do without.
    """
    parts = ["{"]
    if block.labels:
        parts.append(f"__label__ {', '.join(f'evo_asm_to_{name}' for name in block.labels)};")
    parts += map(_written, block.statements)
    return " ".join([*parts, "}"])


def lack(what: str) -> str:
    """Return a statement that ends the call, since `what` is not emulated."""
    return f'evo::not_emulated("not emulated: {_UNQUOTABLE.sub("?", what)}", {LINE});'


def _written(statement: Statement) -> str:
    if isinstance(statement, PtxBlock):
        return written(statement)
    if isinstance(statement, Label):
        return f"evo_asm_to_{statement.name}:;"
    if isinstance(statement, Declared):
        return " ".join(f"[[maybe_unused]] {UNSIGNED[r.width]} {r.name};" for r in statement.registers)
    try:
        done = _emitter(statement)(statement)
    except (NotEmulated, KeyError, ValueError, IndexError):
        done = lack(statement.text)
    return f"if ({statement.guard}) {{ {done} }}" if statement.guard else f"{{ {done} }}"


def _emitter(i: Instruction) -> Emit:
    """The longest beginning of the opcode that is known decides."""
    parts = (i.opcode, *i.modifiers)
    for length in range(min(len(parts), 3), 0, -1):
        if emit := EMITTERS.get(".".join(parts[:length])):
            return emit
    raise NotEmulated(i.text)


def _jump(i: Instruction) -> str:
    """A thread that goes round may wait for others."""
    i.only("uni", types=0)
    (label,) = i.operands
    if not isinstance(label, Label):
        raise NotEmulated(i.text)
    return f"evo::tick(); goto evo_asm_to_{label.name};"


EMITTERS: Mapping[str, Emit] = {**ARITHMETIC, **MEMORY, **WARPS, "bra": _jump}
