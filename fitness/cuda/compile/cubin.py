"""Reads cubins, which are ELF files, without running anything.

A cubin is made of a candidate's source, so that nothing in it is believed: whatever is read of it goes through
`_Reader`, which refuses what does not lie within the file. `read_cubin` checks the whole layout; nothing that a `Cubin`
is asked for afterwards can fail, but for the table of parameters.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from elftools.elf.enums import ENUM_SH_TYPE_BASE

from fitness.judging.signature import MAX_TABLE_BYTES, Param, TableError, parameter_table
from operators.identity import digest

MAX_BYTES = 64 << 20
"""Largest cubin; large kernels have some megabytes."""
MAX_NAME_BYTES = 1 << 20
"""Longest name of a section, which holds that of a kernel with its template arguments."""
MAX_NAMES_BYTES = 64 << 20
"""Most bytes of all names that are read of one table: they may lie over each other."""
INSTRUCTION_BYTES = 16
OPCODE = 0x1FF
"""The bits of an instruction that say what it does; the next three say where its operands come from."""
CLASSES: dict[str, tuple[int, ...]] = {
    "tensor": (0x37, 0x3C, 0x3F, 0x1F0, 0x1F1, 0x1F3),  # IMMA HMMA DMMA HGMMA IGMMA QGMMA
    "fp16": (0x30, 0x31, 0x32),  # HADD2 HFMA2 HMUL2; not HFMA2.MMA, which mostly sets a register to a constant
    "fp32": (0x20, 0x21, 0x23),  # FMUL FADD FFMA
    "fp64": (0x28, 0x29, 0x2B),  # DMUL DADD DFMA
    "special": (0x108,),  # MUFU: reciprocal, exp2, sine and the like
    "global": (0x181, 0x186),  # LDG STG
    "generic": (0x180, 0x185),  # LD ST
    "shared": (0x184, 0x188),  # LDS STS
    "local": (0x183, 0x187),  # LDL STL
    "async": (0x1AE, 0x1B4, 0x1B5, 0x1BA, 0x1BB),  # LDGSTS UTMALDG UTMASTG UBLKCP UBLKRED
    "atomic": (0x18A, 0x18C, 0x18D, 0x18E, 0x1A3, 0x1A6, 0x1A8, 0x1A9),  # ATOM ATOMS REDG ATOMG
    "shuffle": (0x189,),  # SHFL
    "barrier": (0x11D, 0x1A7, 0x1B2, 0x1C7),  # BAR SYNCS UCGABAR
}
"""SASS of compute capability 8.0 to 9.0, checked against nvdisasm: `tests.bench.architectures`."""
BLACKWELL: dict[str, tuple[int, ...]] = {
    "tensor": (0x1EA,),  # UTCHMMA UTCQMMA UTCIMMA: tcgen05.mma
    "fp32": (0x49, 0x4A, 0x4B),  # FFMA2 FMUL2 FADD2
}
"""Additional operation codes of compute capability 10, checked against nvdisasm 13.5; all other codes stayed."""
_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
"""ELF's own, of 64 bits and little-endian; see elf(5)."""
_RELOCATIONS = {4: struct.Struct("<2Qq"), 9: struct.Struct("<2Q")}
"""Entries with an addend and without, by the type of their section: the place, what refers to which symbol."""
_NOTES = ".nv.info."
_NOTE_HEAD = struct.Struct("<2BH")
_NOTE_PARAM = struct.Struct("<I2HI")
_SIZED, _PARAM_NOTE = 4, 0x17
_PARAM_SIZE_SHIFT, _PARAM_SIZES = 18, 1 << 14
"""ptxas' notes on a kernel: a form, a kind and a size or value each. One of the kind EIATTR_KPARAM_INFO tells a
parameter's place, in what follows its offset, and its size, in the upper 14 bits of its last word."""
_WAIT, _WHOLE_OPCODE = 0x82E, 0xFFF
"""ACQBULK, which PTX has as griddepcontrol.wait, and the bits that tell it from all others."""
_HFMA2, _FIRST_OPERAND, _RZ = 0x31, 24, 0xFF
"""Capability 10, which has no HFMA2.MMA, sets registers to constants by HFMA2 with zero, register 255, in front."""
_ANONYMOUS = re.compile(r"(\d\d)(_GLOBAL__N__[0-9a-f]{8}_\d+_kernel_cu_[0-9a-f]{8}_)")
"""Beginnings of the names of anonymous namespaces, behind their length: NVRTC's process ends them."""
_IDENTITY = b"\x7fELF\x02\x01"
_SYMTAB, _STRTAB, _NOTE, _NOBITS = 2, 3, 7, 8
_TYPES = {number: name for name, number in ENUM_SH_TYPE_BASE.items() if isinstance(number, int)}
_EXECUTABLE, _WRITABLE, _MERCURY = 0x6, 0x1, 0x10000000
"""The flags of what is loaded and holds instructions, and of what stands there a second time, from capability 10 on:
for tools that translate a cubin for a later device. Both copies may share their bytes."""


class CubinError(Exception):
    """A cubin that is not laid out as one; in words."""


@dataclass(frozen=True)
class ElfSection:
    """One section; `data` is empty where the file holds none of it."""

    name: str
    type: int
    flags: int
    size: int
    """Size that the section states; more than `data` has where the file holds none of it."""
    link: int
    """The number of the section that this one goes with."""
    info: int
    """Its meaning depends on the type: the section that relocations are for, the registers of a kernel."""
    alignment: int
    """Alignment of its place in memory, in bytes."""
    header_at: int
    """Offset in the file of its entry in the table of sections."""
    offset: int
    """Offset in the file of its data."""
    data: bytes

    @property
    def is_code(self) -> bool:
        """Whether it holds machine code."""
        return self.flags & _EXECUTABLE == _EXECUTABLE

    @property
    def is_writable(self) -> bool:
        """Whether code may write to what is loaded of it."""
        return bool(self.flags & _WRITABLE)


@dataclass(frozen=True)
class Symbol:
    """A name for a place in a section."""

    name: str
    section: int
    """Its number; 0 where the symbol is defined elsewhere."""
    value: int
    size: int


@dataclass(frozen=True)
class Relocation:
    """A place that the loader writes the address of a symbol to."""

    section: int
    """The number of the section that is changed."""
    offset: int
    symbol: Symbol
    addend: int
    """Number that is added to the symbol's address, besides the one at the place."""
    entry_at: int
    """Offset in the file of the entry that says so."""


@dataclass(frozen=True)
class Cubin:
    """The parts of a cubin whose layout was checked."""

    sections: tuple[ElfSection, ...]

    def digest(self) -> bytes:
        """The digest of every section but symbols' names and notes of the tools; relocations with what they refer to.

        NVRTC puts the number of its process into some names: a kernel's of an anonymous namespace, and with it those
        of its sections. Where names lie depends on how many digits that has.
        """
        parts: list[bytes] = []
        hidden = _anonymous(section.name for section in self.sections)
        for section in self.sections:
            if section.type in (0, _STRTAB, _NOTE) or section.name.startswith(".debug"):
                continue
            kind = _TYPES.get(section.type, section.type)
            name = section.name.replace(f"{len(hidden)}{hidden}", "anonymous") if hidden else section.name
            about = (name, kind, section.flags, section.size, section.link, section.info, section.alignment)
            data = _without_names(section.data) if section.type == _SYMTAB else section.data
            parts.append(repr(about).encode() + data)
        return digest(*parts).encode()

    def parameters(self, kernel: str, table: str) -> tuple[Param, ...]:
        """The parameters of one kernel, from the table that the shim in front of its source puts at the symbol `table`.

        Raises TableError where the kernel's source made something else of the shim, such as a table of its own: the
        sizes must be those that ptxas notes of the kernel. Raises CubinError where these notes are cut off.
        """
        params, noted = self._tabled(table), self.noted_sizes(kernel)
        if noted and noted != [param.size % _PARAM_SIZES for param in params]:
            raise TableError("the table of its parameters is not that of the kernel: a specialisation changes the shim")
        return params

    def noted_sizes(self, kernel: str) -> list[int]:
        """Bytes of each parameter, by its place; none where ptxas notes nothing of them."""
        sizes: dict[int, int] = {}
        for data in self._notes.get(kernel, ()):
            notes, offset = _Reader(data), 0
            while offset < len(data):
                form, kind, value = notes.fields(_NOTE_HEAD, offset)
                offset += _NOTE_HEAD.size
                if (form, kind, value) == (_SIZED, _PARAM_NOTE, _NOTE_PARAM.size):
                    _, place, _, packed = notes.fields(_NOTE_PARAM, offset)
                    sizes[place] = packed >> _PARAM_SIZE_SHIFT
                offset += value if form == _SIZED else 0
        return [sizes[place] for place in sorted(sizes)]

    @cached_property
    def _notes(self) -> Mapping[str, list[bytes]]:
        """The notes of ptxas by kernel."""
        notes: dict[str, list[bytes]] = {}
        for section in self.sections:
            if section.name.startswith(_NOTES):
                notes.setdefault(section.name.removeprefix(_NOTES), []).append(section.data)
        return notes

    def _tabled(self, symbol_name: str) -> tuple[Param, ...]:
        for section in self.sections:
            if section.type == _SYMTAB and section.link < len(self.sections):
                for number, value in _symbols(section, self.sections[section.link].data, symbol_name.encode()):
                    return self._table(number, value)
        raise TableError("it lacks the table of its parameters: a macro or a specialisation changes the shim")

    def _table(self, number: int, offset: int) -> tuple[Param, ...]:
        if number >= len(self.sections):
            raise TableError("the table of its parameters is in no section: a specialisation changes the shim")
        section = self.sections[number]
        if section.type == _NOBITS:  # a kernel without parameters
            return ()
        return parameter_table(section.data[offset : offset + MAX_TABLE_BYTES])

    def symbols(self, section: ElfSection) -> list[Symbol]:
        """The symbols of a table. It raises CubinError where a name does not lie within the names."""
        names = _Reader(self.sections[section.link].data if section.link < len(self.sections) else b"")
        whole = len(section.data) // _SYMBOL.size * _SYMBOL.size
        entries = _SYMBOL.iter_unpack(section.data[:whole])
        return [Symbol(names.text(name), number, value, size) for name, _, _, number, value, size in entries]

    def relocations(self) -> list[Relocation]:
        """All of them. It raises CubinError where one refers to a symbol that is not there."""
        found, tables = [], {}
        for section in self.sections:
            layout = _RELOCATIONS.get(section.type)
            if layout is None:
                continue
            if section.link not in tables:
                table = self.sections[section.link] if section.link < len(self.sections) else section
                tables[section.link] = self.symbols(table) if table.type == _SYMTAB else []
            symbols = tables[section.link]
            for at in range(0, len(section.data) // layout.size * layout.size, layout.size):
                offset, packed, *addend = layout.unpack_from(section.data, at)
                if packed >> 32 >= len(symbols):
                    raise CubinError("its machine code refers to a symbol that is not there")
                place = section.offset + at
                found.append(Relocation(section.info, offset, symbols[packed >> 32], sum(addend), place))
        return found

    def code(self, section_name: str) -> bytes | None:
        """The machine code of a section; None where there is none of this name."""
        return next((s.data for s in self.sections if s.name == section_name and s.is_code), None)

    def waits(self, kernel: str) -> bool:
        """Whether a kernel waits for the launches that it depends on.

        Functions that it calls, by pointers too, have their code in the kernel's section.
        """
        code = self.code(f".text.{kernel}") or b""
        words = np.frombuffer(code[: len(code) // INSTRUCTION_BYTES * INSTRUCTION_BYTES], dtype="<u8")[::2]
        return bool((words & _WHOLE_OPCODE == _WAIT).any())

    def code_bytes(self) -> int:
        """The size of the machine code of all kernels and functions."""
        return sum(len(section.data) for section in self.sections if section.is_code)

    def instructions(self, arch: str) -> dict[str, int]:
        """The number of instructions of each of CLASSES in kernels and functions; {} where codes are not known."""
        capability = int("".join(filter(str.isdigit, arch)))
        blackwell = 100 <= capability < 110
        if not (80 <= capability <= 90 or blackwell):
            return {}
        counts = np.zeros(OPCODE + 1, dtype=np.int64)
        for section in self.sections:
            if section.is_code:
                data = section.data[: len(section.data) // INSTRUCTION_BYTES * INSTRUCTION_BYTES]
                words = np.frombuffer(data, dtype="<u8")[::2]
                codes = (words & OPCODE).astype(np.int64)
                if blackwell:
                    codes = codes[(codes != _HFMA2) | (words >> _FIRST_OPERAND & _RZ != _RZ)]
                counts += np.bincount(codes, minlength=OPCODE + 1)
        more = BLACKWELL if blackwell else {}
        return {name: int(counts[[*codes, *more.get(name, ())]].sum()) for name, codes in CLASSES.items()}


def read_cubin(cubin: bytes) -> Cubin:
    """Read the sections of a cubin. Raises CubinError for one whose parts do not lie within it, or over each other."""
    if len(cubin) > MAX_BYTES:
        raise CubinError(f"its machine code takes {len(cubin) >> 20} MiB; at most {MAX_BYTES >> 20} are allowed")
    reader = _Reader(cubin)
    fields = reader.fields(_HEADER, 0)
    table, entry_bytes, count, names_at = fields[6], *fields[11:14]
    if not fields[0].startswith(_IDENTITY) or entry_bytes != _SECTION.size or names_at >= count:
        raise CubinError("its machine code is no ELF file of 64 bits")
    entries = [reader.fields(_SECTION, table + number * entry_bytes) for number in range(count)]
    for mercury in (0, _MERCURY):
        own = (entry[5] for entry in entries if entry[1] != _NOBITS and entry[2] & _MERCURY == mercury)
        if sum(own) > len(cubin):
            raise CubinError("sections of its machine code lie over each other")
    names = _Reader(reader.part(entries[names_at][4], entries[names_at][5]))
    places = range(table, table + count * entry_bytes, entry_bytes)
    return Cubin(tuple(_section(reader, names, entry, at) for entry, at in zip(entries, places, strict=True)))


def _section(reader: _Reader, names: _Reader, entry: tuple[int, ...], header_at: int) -> ElfSection:
    name, kind, flags, _, offset, size, link, info, alignment, _ = entry
    data = b"" if kind in (0, _NOBITS) else reader.part(offset, size)
    return ElfSection(names.text(name), kind, flags, size, link, info, alignment, header_at, offset, data)


def _symbols(section: ElfSection, names: bytes, wanted: bytes) -> Iterator[tuple[int, int]]:
    """Number of the section, and offset in it, of every symbol that is called so."""
    whole = len(section.data) // _SYMBOL.size * _SYMBOL.size
    for name, _, _, number, value, _ in _SYMBOL.iter_unpack(section.data[:whole]):
        if names.startswith(wanted + b"\0", name):
            yield number, value


class _Reader:
    """Reader of bytes from an untrusted author."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._names_bytes = 0

    def part(self, offset: int, size: int) -> bytes:
        """The bytes of this number from there."""
        if offset + size > len(self._data):
            raise CubinError("its machine code is cut off: a part of it lies beyond its end")
        return self._data[offset : offset + size]

    def fields(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        """The fields of a structure of this layout there."""
        return layout.unpack(self.part(offset, layout.size))

    def text(self, offset: int) -> str:
        """The text there, up to a NUL."""
        end = self._data.find(b"\0", offset, offset + MAX_NAME_BYTES)
        if end < 0:
            raise CubinError("a name in its machine code has no end")
        self._names_bytes += end - offset
        if self._names_bytes > MAX_NAMES_BYTES:
            raise CubinError(f"names in its machine code take more than {MAX_NAMES_BYTES >> 20} MiB")
        return self._data[offset:end].decode(errors="replace")


def _anonymous(names: Iterable[str]) -> str:
    """The name of the file's anonymous namespace among these; empty where none has it, and where a kernel's own name
    poses as it.

    The digits ahead of it say how long it is, and all of it but the process has one length: the last two count.
    """
    found = {name[at.start(2) :][: int(at[1])] for name in names for at in _ANONYMOUS.finditer(name)}
    return found.pop() if len(found) == 1 else ""


def _without_names(table: bytes) -> bytes:
    """A table of symbols that does not say where their names lie."""
    whole = len(table) // _SYMBOL.size * _SYMBOL.size
    entries = _SYMBOL.iter_unpack(table[:whole])
    return b"".join(_SYMBOL.pack(0, *entry) for _, *entry in entries) + table[whole:]
