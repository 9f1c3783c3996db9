"""What a C++ kernel may include and its object file may hold, judged without running any of it.

Constructors and resolvers run when a library is loaded, before anything confines them, and static data outlives a call:
neither gets as far as a process. What code does in spite of this list, the runner's confinement stops.
"""

from __future__ import annotations

import re
import subprocess

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from fitness.source import Dialect

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
ALLOWED_SYMBOLS = re.compile(
    rf"(?:__)?(?:{_MATH})[fl]?(?:_finite)?|__(?:isnan|isinf|finite|signbit|fpclassify)[fl]?"
    r"|_ZGV[a-z]\w*"  # vector mathematics of libmvec
    r"|__(?:\w+?)(?:[hsdxt][fci]|bf|[sdt]i)+[0-9]"  # arithmetic that the compiler's own library does
    r"|mem(?:cpy|move|set|cmp|chr)|bcmp|strlen|abort"
    r"|GOMP_(?:parallel(?!\w*_(?:start|end)\b)\w*|(?:loop|sections|single|ordered|doacross|cancel|taskloop)\w*"
    r"|barrier\w*|critical\w*|atomic\w*|task|taskwait\w*|taskgroup\w*|taskyield|scope_start)"
    r"|omp_(?:get_(?:thread_num|num_threads|max_threads|num_procs|level|thread_limit|dynamic|nested)|in_parallel"
    r"|set_(?:num_threads|dynamic|nested|schedule|max_active_levels)|\w+_(?:nest_)?lock)_?"
    r"|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|_Unwind_Resume|__gxx_personality_v0|__cxa_begin_catch|_ZSt9terminatev"
)
"""What a kernel may call: mathematics, memory that it has, OpenMP whose regions join. No allocation, clock or file."""
ON_LOAD = (".init", ".fini", ".ctors", ".dtors", ".preinit_array")


def objection(elf: ELFFile) -> str | None:
    """What in a compiled kernel could run or live on outside of its launches; None if nothing."""
    sections = list(elf.iter_sections())
    for index, section in enumerate(sections):
        flags, size = section["sh_flags"], section["sh_size"]
        if not flags & 0x2 or not size:  # SHF_ALLOC
            continue
        if section.name.startswith(ON_LOAD):
            return "it has code that runs when it is loaded: a constructor, or a global variable that is computed"
        if flags & 0x4 and not re.fullmatch(r"\.text(\..*)?", section.name):  # SHF_EXECINSTR
            return f"it has code in the section `{section.name}`"
        if flags & 0x1 and (flags & 0x4 or not section.name.startswith(".data.rel.ro")):  # SHF_WRITE
            return f"it keeps data between calls{_named(elf, index)}; make it const, local, or a [[buffer]] of the plan"
    return _symbol_objection(elf)


def _symbol_objection(elf: ELFFile) -> str | None:
    for symbol in symbols(elf).iter_symbols():
        kind, where, name = symbol["st_info"]["type"], symbol["st_shndx"], symbol.name
        if kind in ("STT_LOOS", "STT_GNU_IFUNC"):
            return f"`{_demangled(name)}` is chosen by code that runs when it is loaded"
        if where == "SHN_COMMON" and not name.startswith(".gomp_critical_user_"):
            return f"it keeps data between calls in `{_demangled(name)}`"
        if where == "SHN_UNDEF" and name and not ALLOWED_SYMBOLS.fullmatch(name):
            return (
                f"it calls `{_demangled(name)}`: a kernel may use mathematics, memcpy and its kin, and OpenMP; "
                "scratch memory is a [[buffer]] of the plan"
            )
    return None


def _named(elf: ELFFile, section: int) -> str:
    names = [s.name for s in symbols(elf).iter_symbols() if s["st_shndx"] == section and s.name and s["st_size"]]
    return f" in `{_demangled(names[0])}`" if names else ""


def _demangled(name: str) -> str:
    if not name.startswith("_Z"):
        return name
    try:
        run = subprocess.run(["c++filt", name], capture_output=True, text=True, check=False, timeout=10)
    except OSError:  # no binutils: the mangled name serves
        return name
    return run.stdout.strip() or name


def symbols(elf: ELFFile) -> SymbolTableSection:
    """The object's symbol table."""
    table = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    return table
