"""The includes and the object code that a C++ kernel may have, judged without running any of it.

Static data outlives a call, and what a linker makes of a section depends on its name, which a source may choose. So the
sections of an object file, their names, types and flags, are held against a list of those that a compiler makes of a
kernel. What a linker makes of them is held against another one (image.py), and what code does in spite of both, the
runner's confinement stops.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fitness.sandbox.native import toolchain_folders
from fitness.sandbox.processes import run_confined
from fitness.sandbox.source import Dialect

HEADERS = frozenset((
    "algorithm", "array", "bitset", "cassert", "cfloat", "climits", "cmath", "complex", "cstddef", "cstdint", "cstdlib",
    "cstring", "experimental/simd", "functional", "initializer_list", "iterator", "limits", "memory", "new", "numeric",
    "optional", "ratio", "tuple", "type_traits", "utility", "valarray", "variant", "vector",
    "assert.h", "float.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "omp.h",
    "immintrin.h", "x86intrin.h", "xmmintrin.h", "emmintrin.h", "pmmintrin.h", "tmmintrin.h", "smmintrin.h",
    "nmmintrin.h", "avxintrin.h", "arm_neon.h", "arm_sve.h", "arm_fp16.h", "arm_bf16.h",
))  # fmt: skip
DIALECT = Dialect(
    HEADERS.__contains__, "a header of mathematics, algorithms or intrinsics, such as <cmath>", assembly=False
)
_MATH = (
    "acosh?|asinh?|atan[2h]?|cbrt|ceil|copysign|cosh?|erfc?|exp|exp10|exp2|expm1|fabs|fdim|floor|fma|fmax|fmin|fmod|frexp"
    "|hypot|ilogb|ldexp|lgamma|llrint|llround|log|log10|log1p|log2|logb|lrint|lround|modf|nan|nearbyint|nextafter"
    "|nexttoward|pow|remainder|remquo|rint|round|roundeven|scalbln|scalbn|sinh?|sincos|sqrt|tanh?|tgamma|trunc|[jy][01]"
    "|cabs|carg|cexp|clog|cpow|csqrt"
)
_LIBGCC = (
    "(?:add|sub|mul|u?div|u?mod|u?divmod|neg|abs|ashl|ashr|lshr|u?cmp|eq|ne|lt|le|gt|ge|unord|clz|clrsb|ctz|ffs|parity"
    "|popcount|bswap|powi|extend|trunc|fix|fixuns|float|floatun)"
)
_MODE = "(?:[hbsdxt]f|[sdt]i|[hsdxt]c)"
"""Names of its functions say what they do, and for which types: __fixdfti makes an __int128 of a double."""
ALLOWED_SYMBOLS = re.compile(
    rf"(?:__)?(?:{_MATH})[fl]?(?:_finite)?|__(?:isnan|isinf|finite|signbit|fpclassify)[fl]?"
    r"|_ZGV[a-z]\w*"  # vector mathematics of libmvec
    rf"|__{_LIBGCC}v?{_MODE}{{1,2}}[2-4]?"  # arithmetic that the compiler's own library does
    r"|mem(?:cpy|move|set|cmp|chr)|bcmp|strlen|abort"
    r"|GOMP_(?:parallel(?!\w*_(?:start|end)\b)\w*|(?:loop|sections|single|ordered|doacross|cancel|taskloop)\w*"
    r"|barrier\w*|critical\w*|atomic\w*|task|taskwait\w*|taskgroup\w*|taskyield|scope_start)"
    r"|omp_(?:get_(?:thread_num|num_threads|max_threads|num_procs|level|thread_limit|dynamic|nested)|in_parallel"
    r"|set_(?:num_threads|dynamic|nested|schedule|max_active_levels)|\w+_(?:nest_)?lock)_?"
    r"|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|_Unwind_Resume|__gxx_personality_v0|__cxa_begin_catch|_ZSt9terminatev"
)
"""Symbols that a kernel may refer to: mathematics, memory that it has, OpenMP whose regions join. No allocation, clock
or file."""
ON_LOAD = (".init", ".fini", ".ctors", ".dtors", ".preinit_array")
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOTE, _NOBITS, _GROUP, _SYMTAB_INDICES = 1, 2, 3, 4, 7, 8, 17, 18
_UNWIND = 0x70000001
_WRITE, _ALLOC, _CODE, _MERGE, _STRINGS, _LINKED, _GROUPED, _LOCAL = 0x1, 0x2, 0x4, 0x10, 0x20, 0x40, 0x200, 0x400
Sections = tuple[tuple[str, frozenset[int], int], ...]
SECTIONS: Sections = (
    (r"\.text(\.[\w.$]+)?", frozenset((_PROGBITS,)), _ALLOC | _CODE | _GROUPED),
    (r"\.rodata(\.[\w.$]+)?", frozenset((_PROGBITS,)), _ALLOC | _MERGE | _STRINGS | _GROUPED),
    (r"\.data\.rel\.ro(\.[\w.$]+)?", frozenset((_PROGBITS,)), _WRITE | _ALLOC | _GROUPED),
    (r"\.gcc_except_table(\.[\w.$]+)?", frozenset((_PROGBITS,)), _ALLOC | _GROUPED),
    (r"\.eh_frame", frozenset((_PROGBITS, _UNWIND)), _ALLOC),
    (r"\.note\.gnu\.property", frozenset((_NOTE,)), _ALLOC),
    (r"\.comment", frozenset((_PROGBITS,)), _MERGE | _STRINGS),
    (r"\.note\.GNU-stack", frozenset((_PROGBITS,)), 0),
    (r"\.rela\.[\w.$]+", frozenset((_RELA,)), _LINKED | _GROUPED),  # not loaded: the assembler's own
    (r"\.symtab", frozenset((_SYMTAB,)), 0),
    (r"\.symtab_shndx", frozenset((_SYMTAB_INDICES,)), 0),
    (r"\.(?:sh)?strtab", frozenset((_STRTAB,)), 0),
    (r"\.group", frozenset((_GROUP,)), 0),
)
"""Names, types and flags of an object file's sections; one without bytes may be called .data or .bss too.

A name decides: a linker makes its tables for the loader of every section with certain names, whatever is in it.
"""
DATA_SECTIONS: Sections = (
    (r"\.data(\.[\w.$]+)?", frozenset((_PROGBITS,)), _WRITE | _ALLOC | _GROUPED),
    (r"\.bss(\.[\w.$]+)?", frozenset((_NOBITS,)), _WRITE | _ALLOC | _GROUPED),
    (r"\.tbss(\.[\w.$]+)?", frozenset((_NOBITS,)), _WRITE | _ALLOC | _GROUPED | _LOCAL),
)
"""Those with bytes that a call may write, where it has a copy of its own."""


@dataclass(frozen=True)
class Allowance:
    """Symbols and data that a kernel's code may have besides itself and constants."""

    imports: Callable[[str], str | None]
    """The name under which the runner finds what the code calls by another one; None where no kernel may call it."""
    data_bytes: int = 0
    """Data of its own, of which each call has a copy, in bytes; locks come on top."""
    block_memory: bool = False
    """Whether its thread-local variables are memory of a block, which the runner hands out."""
    advice: str = ""
    """Text that follows the name of something that no kernel may call."""

    @property
    def sections(self) -> Sections:
        """Those that its object file may have."""
        return (*SECTIONS, *DATA_SECTIONS) if self.data_bytes else SECTIONS


ON_CPU = Allowance(
    lambda name: name if ALLOWED_SYMBOLS.fullmatch(name) else None,
    advice=": a kernel may use mathematics, memcpy and its kin, and OpenMP; scratch memory is a [[buffer]] of the plan",
)
_ORDINARY = frozenset((_PROGBITS, _NOBITS, 14, 15, 16))
"""Ordinary types of sections, those of the loader's own lists among them."""
MAX_OBJECT_BYTES = 64 << 20
MAX_SECTIONS = 4096
MAX_ENTRIES = 1 << 16
"""Most symbols, and most relocations, that are read."""
DEMANGLE_TIMEOUT_S = 10.0
MAX_NAME_CHARACTERS = 200
"""Longest part of a symbol's name that a message quotes."""


def section_objection(data: bytes, allowance: Allowance = ON_CPU) -> str | None:
    """The section of an object file that no compiler makes of a kernel, or that is too much to read, in words; None
    without one.

    Only after it may another reader of ELF files look at them: some take a section's type for a promise.
    """
    if len(data) > MAX_OBJECT_BYTES:
        return f"its object file has more than {MAX_OBJECT_BYTES >> 20} MiB"
    try:
        headers, names = _section_headers(data)
    except struct.error:
        return "its object file is cut short"
    if not 0 < len(headers) <= MAX_SECTIONS:
        return f"its object file has too many sections; at most {MAX_SECTIONS} are allowed"
    if headers[0][1] != 0:
        return "its object file has no empty section at the beginning"
    entries = 0
    for name_at, kind, flags, _, offset, size, _, _, _, entry_bytes in headers[1:]:
        if max(offset, size) > MAX_OBJECT_BYTES or (kind != _NOBITS and offset + size > len(data)):
            return "its object file is cut short: a section of it lies beyond its end"
        name = names[name_at : names.find(b"\0", name_at)].decode("ascii", "replace")
        if kind in (_RELA, _SYMTAB):
            entries += size // max(entry_bytes, 1)
        if problem := _misnamed(name, kind, flags, size, allowance.sections):
            return problem
    if entries > MAX_ENTRIES:
        return f"its object file has {entries} symbols and relocations; at most {MAX_ENTRIES} are allowed"
    return None


def _section_headers(data: bytes) -> tuple[list[tuple[int, ...]], bytes]:
    """The headers (as in the format, `Elf64_Shdr`) and the table of their names. Raises struct.error."""
    begin, *_, count, names = struct.unpack_from("<40xQI6H", data)[:8]
    layout = struct.Struct("<2I4Q2I2Q")
    if begin > len(data):  # further away than `struct` can count, perhaps
        raise struct.error
    headers = [layout.unpack_from(data, begin + number * layout.size) for number in range(min(count, MAX_SECTIONS + 1))]
    if names >= len(headers):
        raise struct.error
    offset, size = headers[names][4:6]
    return headers, data[offset : offset + size]


def _misnamed(name: str, kind: int, flags: int, size: int, sections: Sections) -> str | None:
    for pattern, kinds, allowed in sections:
        if re.fullmatch(pattern, name):
            fits = kind in kinds and not flags & ~allowed
            return None if fits else f"it has data in the section `{name[:100]}`, which only a compiler may make"
    if name in (".data", ".bss", ".tdata", ".tbss") and not size:
        return None
    if flags & _CODE:
        return f"it has code in the section `{name[:100]}`"
    if kind in _ORDINARY and (flags & _WRITE or name.startswith(ON_LOAD)):
        return None  # `objection` says better what it is
    return f"it has data in the section `{name[:100]}`, which is not for constants; use .rodata or no section attribute"


def objection(elf: ELFFile, allowance: Allowance = ON_CPU) -> str | None:
    """The part of a compiled kernel, whose sections passed, that could live on outside of its launches; None without
    one."""
    for index, section in enumerate(elf.iter_sections()):
        if not section["sh_size"]:
            continue
        if section.name.startswith(ON_LOAD):
            return "it has code that runs when it is loaded: a constructor, or a global variable that is computed"
        written = section["sh_flags"] & _WRITE and not section.name.startswith(".data.rel.ro")
        if written and not (allowance.data_bytes and _holds_data(section.name)):
            return f"it keeps data between calls{_named(elf, index)}; make it const, local, or a [[buffer]] of the plan"
    return _symbol_objection(elf, allowance)


def _holds_data(section: str) -> bool:
    return any(re.fullmatch(pattern, section) for pattern, _, _ in DATA_SECTIONS)


def _symbol_objection(elf: ELFFile, allowance: Allowance) -> str | None:
    for symbol in symbols(elf).iter_symbols():
        kind, where, name = symbol["st_info"]["type"], symbol["st_shndx"], symbol.name
        if kind in ("STT_LOOS", "STT_GNU_IFUNC"):
            return f"`{demangled(name)}` is chosen by code that runs when it is loaded"
        if where == "SHN_COMMON" and not name.startswith(".gomp_critical_user_"):
            return f"it keeps data between calls in `{demangled(name)}`"
        in_block = kind == "STT_TLS" and allowance.block_memory
        if where == "SHN_UNDEF" and name and not in_block and allowance.imports(name) is None:
            return f"it calls `{demangled(name)}`{allowance.advice}"
    return None


def _named(elf: ELFFile, section: int) -> str:
    names = [s.name for s in symbols(elf).iter_symbols() if s["st_shndx"] == section and s.name and s["st_size"]]
    return f" in `{demangled(names[0])}`" if names else ""


def demangled(name: str) -> str:
    """A symbol's name as the source has it, as far as it is short; its author chose how it reads."""
    if not name.startswith("_Z"):
        return name[:MAX_NAME_CHARACTERS]
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = ["c++filt", name]
            run = run_confined(command, cwd=folder, timeout_s=DEMANGLE_TIMEOUT_S, readable=toolchain_folders())
    except OSError:  # no binutils, or a name too long: as it is it serves
        return name[:MAX_NAME_CHARACTERS]
    shown = run.output.strip() if run.returncode == 0 and not run.timed_out else name
    return (shown or name)[:MAX_NAME_CHARACTERS]


def called(compiled: Path) -> frozenset[str]:
    """Names that an object file leaves to libraries."""
    with compiled.open("rb") as stream:
        return undefined(ELFFile(stream))


def undefined(elf: ELFFile) -> frozenset[str]:
    """Names that an object file leaves to libraries. Raises ELFError where it has no table of symbols."""
    found = symbols(elf).iter_symbols()
    return frozenset(symbol.name for symbol in found if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name)


def offered(library: Path) -> frozenset[str]:
    """Names that a library of ours defines for others."""
    with library.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        return frozenset(symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF")


def symbols(elf: ELFFile) -> SymbolTableSection:
    """The object's symbol table. Raises ELFError where there is none."""
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        raise ELFError("it has no table of its symbols")
    return table
