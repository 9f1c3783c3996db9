"""Reads cubins, which are ELF files, without running anything."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from operators.identity import digest

KINDS = ("integer", "float", "pointer", "other")
PARAM = struct.Struct("<5i")


@dataclass(frozen=True)
class Param:
    """One parameter of a compiled kernel."""

    kind: str
    """integer, float, pointer or other."""
    size: int
    pointee_kind: str
    pointee_size: int
    """0: void."""
    pointee_const: bool


def sections(cubin: bytes) -> bytes:
    """Every section but symbols' names and notes of the tools; relocations with what they refer to."""
    parts: list[bytes] = []
    for section in ELFFile(BytesIO(cubin)).iter_sections():
        if section["sh_type"] in ("SHT_NULL", "SHT_STRTAB", "SHT_NOTE") or section.name.startswith(".debug"):
            continue
        data = section.data() if section["sh_type"] != "SHT_NOBITS" else b""
        parts.append(repr((section.name, section["sh_type"], section["sh_flags"], section["sh_size"])).encode() + data)
    return digest(*parts).encode()


def parameters(cubin: bytes, symbol_name: str) -> tuple[Param, ...]:
    """Of one kernel, from the table that the shim in front of its source puts at this symbol."""
    elf = ELFFile(BytesIO(cubin))
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    symbol = (table.get_symbol_by_name(symbol_name) or [])[0]
    section = elf.get_section(symbol["st_shndx"])
    if section["sh_type"] == "SHT_NOBITS":  # a kernel without parameters
        return ()
    data = section.data()[symbol["st_value"] :]
    (count,) = struct.unpack_from("<i", data)
    params = []
    for number in range(count):
        kind, size, pointee, pointee_size, const = PARAM.unpack_from(data, 4 + number * PARAM.size)
        params.append(Param(KINDS[kind], size, KINDS[pointee], pointee_size, bool(const)))
    return tuple(params)


def code_bytes(cubin: bytes) -> int:
    """Of all kernels and functions."""
    return sum(int(s["sh_size"]) for s in ELFFile(BytesIO(cubin)).iter_sections() if s["sh_flags"] & 0x6 == 0x6)
