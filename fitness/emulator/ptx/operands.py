"""Operands of PTX in words of C++: bits, places for results, addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

from fitness.emulator.ptx.reading import (
    WIDTHS,
    Address,
    Group,
    Immediate,
    Instruction,
    Negated,
    NotEmulated,
    Operand,
    Register,
    Sink,
    Special,
)

Emit = Callable[[Instruction], str]
CPP: Mapping[str, str] = {
    **{f"{kind}{bits}": f"std::uint{bits}_t" for kind in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"std::int{bits}_t" for bits in (8, 16, 32, 64)},
    **{name: f"evo::ptx::{name}" for name in ("f16", "bf16", "f16x2", "bf16x2", "tf32", "e4m3", "e5m2")},
    "f32": "float", "f64": "double", "pred": "bool",
}  # fmt: skip
FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")
HALVES = ("f16", "bf16", "f16x2", "bf16x2")
ROUNDING = ("rn", "rz", "rm", "rp", "approx", "full")
"""Modifiers of rounding. Only rounding to nearest is emulated, and what is approximate on a GPU is exact: the last bits
may differ."""
UNSIGNED = {8: "std::uint8_t", 16: "std::uint16_t", 32: "std::uint32_t", 64: "std::uint64_t", 1: "bool"}
SINK = "evo_asm_sink"
LINE = "evo_asm_line"
SHARED = ("shared", "shared::cta")
SPACES = (*SHARED, "global", "const", "local")
SPECIAL: Mapping[str, str] = {
    **{f"%{name}.{axis}": f"{variable}.{axis}" for axis in "xyz" for name, variable in (
        ("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim"))},
    "%laneid": "evo::lane()", "%cluster_ctarank": "evo::block_rank()", "%cluster_nctarank": "evo::resident_blocks()",
    "%clock": "clock64()", "%clock64": "clock64()", "%globaltimer": "clock64()",
    "%lanemask_eq": "(1u << evo::lane())", "%lanemask_lt": "((1u << evo::lane()) - 1)",
    "%lanemask_le": "((2u << evo::lane()) - 1)", "%lanemask_gt": "~((2u << evo::lane()) - 1)",
    "%lanemask_ge": "~((1u << evo::lane()) - 1)",
    "%warpid": "((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32)",
    "%dynamic_smem_size": "evo::launched.shared_bytes",
}  # fmt: skip


def value(operand: Operand, kind: str = "b64") -> str:
    """Return the bits of an operand; those of a number as `kind` has them. Like all here it raises NotEmulated."""
    if isinstance(operand, Register):
        return operand.name
    if isinstance(operand, Negated):
        return f"!{operand.register.name}"
    if isinstance(operand, Special):
        return SPECIAL[operand.name]
    if isinstance(operand, Immediate):
        return f"{bits(operand.text, kind):#x}ull"
    raise NotEmulated("an operand of this kind")


def bits(text: str, kind: str) -> int:
    """Return the bits of a number as it is written in PTX (chapter 4.5)."""
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", text):
        word = bytes.fromhex(match[1] or match[2])
        if WIDTHS[kind] == 8 * len(word):
            return int.from_bytes(word, "big")
        number = struct.unpack(">f" if match[1] else ">d", word)[0]
    elif "." in text:
        number = float(text)
    else:
        return int(text.rstrip("U"), 0) & (1 << 64) - 1
    if kind not in ("f32", "f64"):
        raise NotEmulated(f"the number {text} as {kind}")
    return int.from_bytes(struct.pack("<d" if kind == "f64" else "<f", number), "little")


def to(operand: Operand) -> str:
    """Return where a result goes."""
    if isinstance(operand, Sink):
        return SINK
    if isinstance(operand, Register) and not operand.constant:
        return operand.name
    raise NotEmulated("a result that goes nowhere")


def members(operand: Operand) -> tuple[Operand, ...]:
    """Return the operands that braces or a bar hold together, or the one that there is."""
    return operand.members if isinstance(operand, Group) else (operand,)


def address(operand: Operand) -> str:
    """Return what an address comes to."""
    if not isinstance(operand, Address):
        raise NotEmulated("an operand that is no address")
    return f"static_cast<std::uint64_t>({value(operand.base)}) + static_cast<std::uint64_t>({operand.offset}ll)"


def place(i: Instruction, operand: Operand, size: int) -> str:
    """Return a pointer to so many bytes, aligned to as many."""
    spaces = [m for m in i.modifiers if m in SPACES or m.startswith("shared")]
    if len(spaces) > 1 or not set(spaces) <= set(SPACES):
        raise NotEmulated(i.text)
    how = "shared" if spaces and spaces[0] in SHARED else "generic"
    return f'evo::ptx::{how}({address(operand)}, {size}, "{i.opcode}", {LINE})'


def count(operands: tuple[Operand, ...], *counts: int) -> None:
    """Raise NotEmulated where there are not so many operands."""
    if len(operands) not in counts:
        raise NotEmulated("an instruction with another number of operands")
