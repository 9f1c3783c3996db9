"""Reads cubins, which are ELF files, without running anything."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fitness.signature import Param, parameter_table
from operators.identity import digest

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
    "barrier": (0x11D, 0x1B2, 0x1C7),  # BAR SYNCS UCGABAR
}
"""SASS of compute capability 8.0 to 9.0, checked against nvdisasm."""


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
    """The parameters of one kernel, from the table that the shim in front of its source puts at this symbol."""
    elf = ELFFile(BytesIO(cubin))
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    symbol = (table.get_symbol_by_name(symbol_name) or [])[0]
    section = elf.get_section(symbol["st_shndx"])
    if section["sh_type"] == "SHT_NOBITS":  # a kernel without parameters
        return ()
    data = section.data()[symbol["st_value"] :]
    return parameter_table(data)


def code_bytes(cubin: bytes) -> int:
    """The size of the machine code of all kernels and functions."""
    return sum(int(s["sh_size"]) for s in ELFFile(BytesIO(cubin)).iter_sections() if s["sh_flags"] & 0x6 == 0x6)


def instructions(cubin: bytes, arch: str) -> dict[str, int]:
    """How many machine instructions of each of CLASSES all kernels and functions hold; {} where codes are not known."""
    if not 80 <= int("".join(filter(str.isdigit, arch))) <= 90:
        return {}
    counts = np.zeros(OPCODE + 1, dtype=np.int64)
    for section in ELFFile(BytesIO(cubin)).iter_sections():
        if section["sh_flags"] & 0x6 == 0x6:
            data = section.data()
            words = np.frombuffer(data[: len(data) // INSTRUCTION_BYTES * INSTRUCTION_BYTES], dtype="<u8")
            counts += np.bincount((words[::2] & OPCODE).astype(np.int64), minlength=OPCODE + 1)
    return {name: int(counts[list(codes)].sum()) for name, codes in CLASSES.items()}
