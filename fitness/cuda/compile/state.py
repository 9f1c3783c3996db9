"""State that could last from one call of a kernel to the next, decided from its machine code.

Text tells too little: inline PTX declares variables in scopes and comments that ptxas and a scanner read differently.
In a cubin nothing hides. The only ways to an address that no launch hands over are these: bank 4 of constant memory,
where the loader puts the addresses of variables; relocations of code and constants; and the driver's own words in front
of a kernel's parameters, in bank 0, of which one leads to constant memory and one to the parameters themselves, in
memory of the driver's where marks of one call were found by the next. Code names a bank and an offset in every such
access, and an offset that is computed counts as all of them.

A variable with an initial value is a table: whether it is only read, machine code does not tell, so that it is loaded
into memory that nothing can write to. `__device__ const` tables are such, and those of sin() and its relatives.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fitness.cuda.compile.cubin import INSTRUCTION_BYTES, OPCODE, Cubin, CubinError, ElfSection, Relocation, Symbol
from fitness.cuda.compile.program import ReadOnlyTable

RUNTIME = {
    "malloc": "allocates on the device; declare a [[buffer]]",
    "free": "frees on the device; declare a [[buffer]]",
    "vprintf": "prints; a kernel has nobody to talk to",
    "__assertfail": "asserts; include <cassert>, which makes assert() nothing here, or return instead",
    "cudaLaunchDeviceV2": "launches a kernel from the device; add a [[launch]]",
    "cudaGetParameterBufferV2": "launches a kernel from the device; add a [[launch]]",
}
PROBE = """
__constant__ int evo_constant;
extern "C" __global__ void evo_plain(unsigned long long* y) { y[0] = 1; }
extern "C" __global__ void evo_constant_address(unsigned long long* y) {
    unsigned long long address;
    asm volatile("{.reg .u64 t; mov.u64 t, evo_constant; cvta.const.u64 %0, t;}" : "=l"(address));
    y[0] = address;
}
extern "C" __global__ void evo_parameter_address(unsigned long long* y) {
    unsigned long long address;
    asm volatile("{.reg .u64 t; mov.u64 t, evo_parameter_address_param_0; cvta.param.u64 %0, t;}" : "=l"(address));
    y[0] = address;
}
"""
"""Compiled, it shows where an architecture keeps the addresses of constant memory and of parameters."""
PROBE_KERNELS = ("evo_plain", "evo_constant_address", "evo_parameter_address")
_PARAMETERS, _CONSTANTS, _ADDRESSES = 0, 3, 4
"""Banks of constant memory."""
_WIDTHS = {5: 8, 6: 16}
"""Bytes by the code of an access' size; 4 otherwise."""
_LOADS, _UNIFORM_LOAD = (0xB82, 0x7AC), 0x7AC
"""LDC and LDCU, the latter of compute capability 10: the instructions whose offset may be computed."""
_WIDE_LOADS = frozenset(opcode & OPCODE for opcode in (*_LOADS, 0xAB9))
"""These and ULDC, whatever their operands: what they load may be wider than a word."""
_SPECIAL, _TIMES, _TO_UNIFORM, _RESTORE = 0x805, 0x824, 0x2CA, 0x353
"""CS2R.32, IMAD with a constant in the instruction, R2UR, and RPCMOV to an ordinary register."""
_CLUSTER_SIZE, _CLUSTER_WORDS_BYTES = 0x8A, 0xA0
"""The special register SR_CgaSize, and by how much it moves what is read of the driver's words on clusters."""
_PARAMETERS_BEGIN = 0x380
"""Beginning of the parameters in bank 0, of compute capability 10; the driver's words lie in front of them."""
_ALWAYS = 7
"""The predicate of an instruction that is not skipped."""
_BARRIER = 0xB1D
"""BAR has the form of an instruction with a constant, and has none."""
_ZERO_REGISTER = 0xFF
_SLOT_BYTES = 8
_INITIAL_VALUES = ".nv.global.init"
"""The section of variables in global memory that begin with other values than zeros."""
_SIZE_IN_HEADER = 32
"""Offset of the size in a section's entry in the table of sections."""


@dataclass(frozen=True)
class Reference:
    """The compiler's code for `PROBE` on one architecture."""

    constant_window: frozenset[int]
    """Bytes of bank 0 that hold the address of constant memory."""
    parameter_window: frozenset[int]
    """Bytes of bank 0 that hold the address of the parameters."""


@dataclass(frozen=True)
class _Access:
    """An access to constant memory by an instruction."""

    bank: int
    begin: int
    end: int
    computed: bool
    """Whether the offset is not known."""

    def meets(self, begin: int, size: int) -> bool:
        return self.computed or (self.begin < begin + size and begin < self.end)

    def meets_any(self, places: Iterable[int]) -> bool:
        return any(self.meets(byte, 1) for byte in places)


def reference(probe: Cubin) -> Reference:
    """The reference that the cubin of `PROBE` gives. It raises CubinError for another one."""
    read: dict[str, set[int]] = {name: set() for name in PROBE_KERNELS}
    for section in probe.sections:
        name = section.name.removeprefix(".text.")
        if section.is_code and name in read:
            for access in _accesses(section):
                if access.bank == _PARAMETERS and not access.computed:
                    read[name].update(range(access.begin, access.end))
    constant, parameter = (
        frozenset(read[f"evo_{name}_address"] - read["evo_plain"]) for name in ("constant", "parameter")
    )
    if not constant or not parameter:
        raise CubinError("the compiler takes the address of constant memory, or of parameters, in an unknown way")
    return Reference(constant, parameter)


def objection(cubin: Cubin, known: Reference) -> str | None:
    """The forbidden act of the code, in words: it may not call the device's runtime, or have a place to keep anything
    in.

    It raises CubinError for a cubin whose symbols or relocations are broken.
    """
    accesses = _all_accesses(cubin)
    tabled = {relocation.entry_at for relocation in _tabled(cubin, accesses)}
    reached = sorted(_reached(cubin, accesses), key=lambda relocation: relocation.symbol.section != 0)
    for relocation in reached:  # what is called says more than what it is given
        if relocation.entry_at not in tabled and (problem := _problem(cubin, relocation.symbol)):
            return problem
    for access in accesses:
        if access.bank == _PARAMETERS and (problem := _parameter_problem(access, known)):
            return problem
    return None


def detached(code: bytes, cubin: Cubin) -> tuple[bytes, tuple[ReadOnlyTable, ...]]:
    """The cubin without relocations that refer to tables, and the places that want their addresses.

    A module's own memory can be written to; where it is loaded, the tables are put into memory that cannot.
    """
    gone = list(_tabled(cubin, _all_accesses(cubin)))
    slots = [ReadOnlyTable(cubin.sections[r.section].offset + r.offset, _bytes(cubin, r.symbol)) for r in gone]
    image = bytearray(code)
    entries_gone = {r.entry_at for r in gone}
    for section in cubin.sections:
        size = {4: 24, 9: 16}.get(section.type)
        if size is None or not any(section.offset <= at < section.offset + len(section.data) for at in entries_gone):
            continue
        places = range(section.offset, section.offset + len(section.data) // size * size, size)
        kept = b"".join(code[at : at + size] for at in places if at not in entries_gone)
        image[section.offset : section.offset + len(kept)] = kept
        struct.pack_into("<Q", image, section.header_at + _SIZE_IN_HEADER, len(kept))
    return bytes(image), tuple(slots)


def _parameter_problem(access: _Access, known: Reference) -> str | None:
    """The fault of code that reads this of its parameters' bank."""
    if access.computed:
        return "it computes which of its parameters it reads; pass an array in a [[buffer]]"
    if access.meets_any(known.constant_window):
        return (
            "it takes the address of a __constant__ variable, by which it could be written to; index the variable "
            "itself, in functions that are inlined"
        )
    if access.meets_any(known.parameter_window):
        return "it takes the address of a parameter, by which it could be written to; copy it to a variable"
    return None


def tables(cubin: Cubin) -> frozenset[str]:
    """The symbols of all tables."""
    return frozenset(relocation.symbol.name for relocation in _tabled(cubin, _all_accesses(cubin)))


def _tabled(cubin: Cubin, accesses: list[_Access]) -> Iterator[Relocation]:
    """The relocations by which code comes to know where a table is that holds no address itself."""
    addresses = sorted((relocation.section, relocation.offset) for relocation in cubin.relocations())
    for relocation in _reached(cubin, accesses):
        symbol = relocation.symbol
        if max(relocation.section, symbol.section) >= len(cubin.sections):
            continue
        held, whose = cubin.sections[symbol.section], cubin.sections[relocation.section]
        slot = whose.data[relocation.offset : relocation.offset + _SLOT_BYTES]
        first = bisect_left(addresses, (symbol.section, symbol.value - _SLOT_BYTES + 1))
        end = (symbol.section, symbol.value + symbol.size)
        if (
            held.name.startswith(_INITIAL_VALUES)
            and len(_bytes(cubin, symbol)) == symbol.size > 0
            and whose.name.startswith(f".nv.constant{_ADDRESSES}")
            and (slot, relocation.addend) == (bytes(_SLOT_BYTES), 0)
            and all(place >= end for place in addresses[first : first + 1])
        ):
            yield relocation


def _problem(cubin: Cubin, symbol: Symbol) -> str | None:
    """The fault of code that has the address of a symbol."""
    if symbol.section == 0:
        what = RUNTIME.get(symbol.name, "is not part of it")
        return f"it calls {symbol.name}(), which {what}" if symbol.name else None
    if symbol.section >= len(cubin.sections):
        return None
    section = cubin.sections[symbol.section]
    if section.name.startswith(f".nv.constant{_CONSTANTS}"):
        return f"it takes the address of the __constant__ variable `{symbol.name}`; index the variable itself"
    if not section.is_writable or section.is_code or section.name.startswith(".nv.shared"):
        return None
    if section.name.startswith(_INITIAL_VALUES) and symbol.size:
        return (
            f"it uses the __device__ variable `{symbol.name}`, which holds addresses, such as those of virtual "
            "functions; make it a table of numbers, and choose functions by `switch` or as template arguments"
        )
    return (
        f"it uses the __device__ variable `{symbol.name}`, which would live on between calls; give a table that is "
        "only read its values where it is declared, and declare scratch memory as a [[buffer]]"
    )


def _reached(cubin: Cubin, accesses: list[_Access]) -> Iterator[Relocation]:
    """The relocations by which code comes to know an address; headers leave many others."""
    slots = [access for access in accesses if access.bank == _ADDRESSES]
    every = any(access.computed for access in slots)
    read = {byte for access in slots for byte in range(access.begin, access.end)}
    for relocation in cubin.relocations():
        if relocation.section >= len(cubin.sections):
            raise CubinError("its machine code relocates a section that is not there")
        section = cubin.sections[relocation.section]
        if section.name.startswith(f".nv.constant{_ADDRESSES}"):
            if every or not read.isdisjoint(range(relocation.offset, relocation.offset + _SLOT_BYTES)):
                yield relocation
        elif section.is_code or section.name.startswith(".nv.constant"):
            yield relocation


def _bytes(cubin: Cubin, symbol: Symbol) -> bytes:
    """The initial bytes of a variable."""
    data = cubin.sections[symbol.section].data if symbol.section < len(cubin.sections) else b""
    return data[symbol.value : symbol.value + symbol.size]


def _all_accesses(cubin: Cubin) -> list[_Access]:
    return [access for section in cubin.sections if section.is_code for access in _accesses(section)]


def _accesses(section: ElfSection) -> Iterator[_Access]:
    """All accesses of constant memory, in the encoding of compute capability 7.0 and later.

    Bits 9 to 11 of an instruction say that one operand is a constant; bits 54 to 58 hold its bank, those below its
    offset. An access is wider than a word only where its instruction loads and does nothing else.
    """
    data = section.data[: len(section.data) // INSTRUCTION_BYTES * INSTRUCTION_BYTES]
    words = np.frombuffer(data, dtype="<u8").reshape(-1, 2)
    constant = np.isin(words[:, 0] >> np.uint64(9) & np.uint64(7), (3, 5))
    for at in np.flatnonzero(words[:, 0] & np.uint64(0xFFF) == _UNIFORM_LOAD).tolist():
        constant[at] &= not _is_read_of_cluster(words[max(at - 4, 0) : at + 1].tolist())
    for low, high in np.unique(words[constant], axis=0).tolist():
        opcode = low & 0xFFF
        if opcode == _BARRIER:
            continue
        begin = low >> 37 & 0x1FFFF if opcode == _UNIFORM_LOAD else low >> 38 & 0xFFFF
        width = _WIDTHS.get(high >> 9 & 7, 4) if opcode & OPCODE in _WIDE_LOADS else 4
        computed = opcode in _LOADS and low >> 24 & 0xFF != _ZERO_REGISTER
        yield _Access(low >> 54 & 31, begin, begin + width, computed)


def _is_read_of_cluster(instructions: list[list[int]]) -> bool:
    """Whether these end with what ptxas makes of a cluster's or block's place in the grid, on compute capability 10.

    It loads a word of the driver's, chosen by the cluster's size: CS2R.32 r, SR_CgaSize; IMAD r, r, -0xa0, RZ;
    R2UR u, r; LDCU v, c[0x0][u + place]. What r held before may be restored (RPCMOV) in front of the last one. Any
    other offset that is computed may be of a kernel's own choice.
    """
    *before, (loaded, _) = instructions
    if before and before[-1][0] & 0xFFF == _RESTORE:
        before.pop()
    if len(before) < 3:
        return False
    (special, which), (times, added), (moved, _) = before[-3:]
    register = special >> 16 & 0xFF
    return (
        all(low >> 12 & 0xF == _ALWAYS for low in (special, times, moved))
        and (special & 0xFFF, which >> 8 & 0xFF) == (_SPECIAL, _CLUSTER_SIZE)
        and (times & 0xFFF, times >> 32, added & 0xFF) == (_TIMES, 2**32 - _CLUSTER_WORDS_BYTES, _ZERO_REGISTER)
        and times >> 16 & 0xFF == times >> 24 & 0xFF == register
        and (moved & 0xFFF, moved >> 24 & 0xFF) == (_TO_UNIFORM, register)
        and (loaded >> 54 & 31, loaded >> 24 & 0xFF) == (_PARAMETERS, moved >> 16 & 0xFF)
        and loaded >> 37 & 0x1FFFF < _PARAMETERS_BEGIN
    )
