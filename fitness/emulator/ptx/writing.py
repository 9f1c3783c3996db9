"""Writes statements of PTX as statements of C++, which call what ../ptx.hpp defines."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fitness.emulator.ptx.arithmetic import ARITHMETIC
from fitness.emulator.ptx.memory import MEMORY
from fitness.emulator.ptx.operands import LINE, UNSIGNED, Emit
from fitness.emulator.ptx.reading import Declared, Instruction, Label, NotEmulated, PtxBlock, Statement
from fitness.emulator.ptx.warps import WARPS

_UNQUOTABLE = re.compile(r'[^ -~]|["\\]')


def written(block: PtxBlock) -> str:
    """Return a block of C++ that does what a block of PTX says.

    What is not emulated ends the call where it is come to, with its name: other routes of a kernel may do without.
    """
    parts = ["{"]
    if block.labels:
        parts.append(f"__label__ {', '.join(f'evo_asm_to_{name}' for name in block.labels)};")
    parts += map(_statement, block.statements)
    return " ".join([*parts, "}"])


def lack(what: str) -> str:
    """Return a statement that ends the call, since `what` is not emulated."""
    return f'evo::not_emulated("not emulated: {_UNQUOTABLE.sub("?", what)}", {LINE});'


def _statement(statement: Statement) -> str:
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
