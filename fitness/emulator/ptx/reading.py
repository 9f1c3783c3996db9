"""Reads the text of inline PTX: statements, operands, and what of the C++ around it the operands stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


class NotEmulated(Exception):
    """An instruction that the emulation cannot do; the text names it."""


@dataclass(frozen=True)
class Register:
    """An unsigned variable of C++, whose bits an instruction's type gives a meaning. A width of 1 is a predicate."""

    name: str
    width: int
    constant: bool = False


@dataclass(frozen=True)
class Negated:
    """The contrary of a predicate."""

    register: Register


@dataclass(frozen=True)
class Special:
    """A register that the device sets, `%laneid` or the like."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number as it is written."""

    text: str


@dataclass(frozen=True)
class Address:
    """Text between brackets: a base and a number of bytes."""

    base: Operand
    offset: int = 0


@dataclass(frozen=True)
class Group:
    """Operands that braces hold together, or `|` in a pair of results."""

    members: tuple[Operand, ...]


@dataclass(frozen=True)
class Sink:
    """`_`: a result that is not wanted."""


@dataclass(frozen=True)
class Label:
    """A place to go on at."""

    name: str


Operand = Register | Negated | Special | Immediate | Address | Group | Sink | Label


@dataclass(frozen=True)
class Instruction:
    """One statement with its guard, a predicate in words of C++, or None."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: str | None
    text: str

    @property
    def types(self) -> list[str]:
        """Types among its modifiers, in their order."""
        return [modifier for modifier in self.modifiers if modifier in WIDTHS]

    @property
    def type(self) -> str:
        """Its one type, which comes last."""
        if not self.types:
            raise NotEmulated(self.text)
        return self.types[-1]

    def only(self, *allowed: str, types: int = 1) -> None:
        """Raise NotEmulated where it has another modifier than these and so many types."""
        others = [m for m in self.modifiers if m not in WIDTHS]
        if len(self.types) != types or not set(others) <= set(allowed):
            raise NotEmulated(self.text)

    def has(self, modifier: str) -> bool:
        """Whether it has a modifier."""
        return modifier in self.modifiers


@dataclass(frozen=True)
class Declared:
    """Registers that a block has for itself."""

    registers: tuple[Register, ...]


@dataclass(frozen=True)
class PtxBlock:
    """Text between braces, and the labels that only it knows."""

    statements: tuple[Statement, ...]
    labels: tuple[str, ...]


Statement = Instruction | Declared | Label | PtxBlock

WIDTHS = {
    **{f"{kind}{bits}": bits for kind in "bsu" for bits in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "pred": 1,
}  # fmt: skip
"""Bits of every type that is known."""
MAX_DEPTH = 16
"""Most blocks within blocks."""
_NAME = r"[%$A-Za-z_][\w$%]*"
_PLACE = "\N{SECTION SIGN}"
"""Character in front of an operand's number, where the text of an asm statement has `%`; PTX has no such character."""
MAX_REGISTERS = 4096
"""Most registers that one statement declares."""
_COMMENT = re.compile(r"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?")
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_REG = re.compile(r"\.reg\s*((?:\.\w+\s*)+)(.*)", re.DOTALL)
_DECLARED = re.compile(rf"({_NAME})(?:<(\d{1, 4})>)?")
_INSTRUCTION = re.compile(rf"(?:@(!?)\s*({_PLACE}\d+|{_NAME})\s+)?([a-z]\w*)((?:\s*\.[\w:]+)*)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(
    r"[-+]?(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)"
)
_ADDRESS = re.compile(rf"({_PLACE}\d+|{_NAME})\s*(?:([-+])\s*([-+]?\w+))?")


def parse(template: str, operands: Sequence[Register], names: Sequence[str | None]) -> PtxBlock:
    """Return what the text of an asm statement says. It raises NotEmulated for what is no PTX that it knows.

    `operands` are those of the statement, in their order, and `names` those of them that have one.
    """

    numbers = {name: number for number, name in reversed(list(enumerate(names))) if name is not None}

    def place(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match["name"] is not None and match["name"] not in numbers:
            raise NotEmulated(f"an operand that is not there: {match[0]}")
        number = numbers[match["name"]] if match["name"] is not None else int(match["number"])
        if number >= len(operands):
            raise NotEmulated(f"an operand that is not there: {match[0]}")
        return f"{_PLACE}{number}"

    text = _COMMENT.sub(" ", template.replace(_PLACE, "?"))
    text = re.sub(r"%%|%(?P<number>\d{1,4})|%\[(?P<name>\w+)\]", place, text)
    return _Reader(text, operands).block(outermost=True)


class _Reader:
    def __init__(self, text: str, operands: Sequence[Register]) -> None:
        self._text = text
        self._operands = operands
        self._at = 0
        self._scopes: list[dict[str, Register]] = []
        self._declared = 0

    def block(self, *, outermost: bool = False) -> PtxBlock:
        if len(self._scopes) > MAX_DEPTH:
            raise NotEmulated("blocks in blocks")
        self._scopes.append({})
        statements: list[Statement] = []
        while True:
            while self._text[self._at : self._at + 1].isspace():
                self._at += 1
            if self._at >= len(self._text) and outermost:
                break
            if self._text.startswith("}", self._at) and not outermost:
                self._at += 1
                break
            if self._at >= len(self._text):
                raise NotEmulated("a block that nothing ends")
            statements += self._statement()
        self._scopes.pop()
        return PtxBlock(tuple(statements), tuple(s.name for s in statements if isinstance(s, Label)))

    def _statement(self) -> Iterator[Statement]:
        if self._text.startswith("{", self._at):
            self._at += 1
            yield self.block()
        elif self._text.startswith(";", self._at):
            self._at += 1
        elif label := _LABEL.match(self._text, self._at):
            self._at = label.end()
            yield Label(_plain(label[1]))
        else:
            end = self._text.find(";", self._at)
            text = self._text[self._at : end if end >= 0 else None].strip()
            if end < 0:
                raise NotEmulated(f"{_shown(text)} without its semicolon")
            self._at = end + 1
            yield self._declaration(text) if text.startswith(".") else self._instruction(text)

    def _declaration(self, text: str) -> Declared:
        match = _REG.fullmatch(text)
        if not match:
            raise NotEmulated(_shown(text))
        kind = match[1].replace(".", " ").split()[-1]
        if kind not in WIDTHS:
            raise NotEmulated(_shown(text))
        registers = []
        for part in match[2].split(","):
            found = _DECLARED.fullmatch(part.strip())
            if not found or self._declared + int(found[2] or 1) > MAX_REGISTERS:
                raise NotEmulated(_shown(text))
            for name in [f"{found[1]}{i}" for i in range(int(found[2]))] if found[2] else [found[1]]:
                register = Register(f"evo_asm_{_plain(name)}_{self._declared}", WIDTHS[kind])
                self._declared += 1
                self._scopes[-1][name] = register
                registers.append(register)
        return Declared(tuple(registers))

    def _instruction(self, text: str) -> Instruction:
        match = _INSTRUCTION.fullmatch(text)
        if not match:
            raise NotEmulated(_shown(text))
        negated, guard, opcode, modifiers, rest = match.groups()
        if guard:
            guard = f"{negated}{self._named(guard, text).name}"
        parts = tuple(re.sub(r"\s", "", modifiers).split(".")[1:])
        shown = _shown(f"{opcode}{''.join(f'.{part}' for part in parts)}")
        operands = tuple(self._operand(part, opcode, shown) for part in _split(rest)) if rest.strip() else ()
        return Instruction(opcode, parts, operands, guard, shown)

    def _operand(self, text: str, opcode: str, shown: str) -> Operand:
        text = text.strip()
        if text == "_":
            return Sink()
        if text.startswith("{") and text.endswith("}") and "{" not in text[1:]:
            return Group(tuple(self._operand(part, opcode, shown) for part in _split(text[1:-1])))
        if text.startswith("[") and text.endswith("]"):
            return self._address(text[1:-1].strip(), shown)
        if "|" in text:
            return Group(tuple(self._operand(part, opcode, shown) for part in text.split("|")))
        if text.startswith("!"):
            return Negated(self._named(text[1:].strip(), shown))
        if _NUMBER.fullmatch(text):
            return Immediate(text)
        if opcode == "bra":
            return Label(_plain(text))
        if text.startswith("%") and self._find(text) is None:
            return Special(text)
        return self._named(text, shown)

    def _address(self, text: str, shown: str) -> Address:
        match = _ADDRESS.fullmatch(text)
        if not match:
            raise NotEmulated(f"{shown} of the address [{_shown(text)}]")
        try:
            offset = int(match[3] or "0", 0) * (-1 if match[2] == "-" else 1)
        except ValueError:
            raise NotEmulated(f"{shown} of the address [{_shown(text)}]") from None
        return Address(self._named(match[1], shown), offset)

    def _find(self, name: str) -> Register | None:
        place = name.removeprefix(_PLACE)
        if place != name and place.isdecimal() and int(place) < len(self._operands):  # whatever stands beside it
            return self._operands[int(place)]
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _named(self, name: str, shown: str) -> Register:
        found = self._find(name)
        if found is None:
            raise NotEmulated(f"{_shown(shown)} of `{_shown(name)}`")
        return found


def _split(text: str) -> Iterator[str]:
    """Operands, which commas outside of braces and brackets separate."""
    depth, begin = 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _plain(name: str) -> str:
    """A name as C++ can have it."""
    return re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", name)


def _shown(text: str) -> str:
    """On one line, not too long, in ASCII."""
    return ascii(" ".join(text.split()))[1:-1][:100]
