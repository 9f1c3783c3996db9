"""Texts that candidates write: kernel files with attributes, headers, assembly, tables and plans; PTX; logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from tests.bench.fuzz.elf import SECTION_NAMES

HEADER = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
CUDA_HEADER = HEADER.replace("args", 'grid = ["ceil_div(n, 256)"]\nblock = [256]\nargs')
LOOP = "    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];"


def kernel(before: str = "", body: str = LOOP, *, header: str = HEADER) -> str:
    """A kernel file for axpb on the cpu target."""
    return f'{header}{before}\nextern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{body}\n}}\n'


def cuda_kernel(before: str = "", body: str = "", *, header: str = CUDA_HEADER) -> str:
    """A kernel file for axpb on the cuda target."""
    return (
        f'{header}{before}\nextern "C" __global__ void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n'
        f"    int i = blockIdx.x * blockDim.x + threadIdx.x;\n{body}\n"
        "    if (i < n) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));\n}\n"
    )


CPU_SEEDS = (
    'static const void* const table[] = {sled.code, sled.code + 8};\nextern "C" int one() { return 1; }\n',
    "#include <cmath>\ntemplate <class X> X shape(X v) { return std::sin(v) + std::pow(v, X(3)); }\n"
    'inline const float weights[] = {1, 2, 3};\nextern "C" float use(int i) { return shape(weights[i & 1]); }\n',
    "static void locked(float* p) {\n#pragma omp parallel for\nfor (int i = 0; i < 8; i++) {\n"
    "#pragma omp critical(first)\n p[i] += 1;\n#pragma omp critical(second)\n p[i] *= 2; } }\n"
    'extern "C" void use(float* p) { locked(p); }\n',
    "static int a(int v) { return v; }\nstatic int b(int v) { return -v; }\n"
    "static int (*const both[])(int) = {a, b, a};\n"
    'extern "C" int use(int i) { return both[i % 3](i); }\n',
)
"""Sources of objects and images, behind the code that leaves marks."""
EMULATED_SEEDS = (
    ("static const void* const table[] = {sled.code, sled.code + 8};\n", ""),
    (
        "template <class X> __device__ X halved(X v) { __shared__ X place[256]; place[threadIdx.x] = v / X(2);\n"
        "    __syncthreads(); return place[threadIdx.x]; }\n",
        "    extern __shared__ float more[];\n    if (n < 0) y[0] = halved(1.0f) + more[0];\n",
    ),
)
"""The same for the emulation: what stands before a kernel, and in it."""
ATTRIBUTES = (
    'section("@NAME@")', 'section("@NAME@"), used', 'section(u8"@NAME@")', 'section("@NAME@" "")', "constructor",
    "constructor(101)", "destructor", 'ifunc("choose")', 'alias("axpb")', 'weak, alias("axpb")', 'weakref("axpb")',
    "weak", 'visibility("default")', 'visibility("protected")', "common", "nocommon", 'tls_model("initial-exec")',
    "aligned(4096)", "aligned(16777216)", "aligned(268435456)", "used", "retain", "naked", "cleanup(enter)",
    'symver("axpb@X_1")', 'symver("axpb@@@X")', "patchable_function_entry(100000,50000)", 'target("avx512f")',
    'target_clones("default","avx2")', 'optimize("O0")', "no_reorder", "vector_size(1048576)", "init_priority(101)",
    'abi_tag("x;y")', 'copy(axpb)', "noplt", 'access(none, 1)', "mode(XI)", "zero_call_used_regs(\"all\")",
)  # fmt: skip
DECLARED = (
    "@A@ static const int marked[] = {1, 2, 3};", "@A@ int marked;", "@A@ int marked = 5;", "@A@ extern int marked;",
    "@A@ static void marked() { enter(); }", "@A@ void marked();", "@A@ inline const void* const marked = sled.code;",
    "@A@ static const void* const marked[] = {sled.code};", "@A@ static thread_local int marked = 3;",
    "@A@ static const int marked = [] { enter(); return 1; }();", "@A@ const long marked[] = {0xd000, 37, 0x5000};",
    "struct Dies { ~Dies() { enter(); } }; @A@ static Dies marked;", "@A@ __thread int marked;",
    'extern "C" @A@ void _init() { enter(); }', 'extern "C" @A@ void __gmon_start__() { enter(); }',
    'extern "C" @A@ void* malloc(unsigned long) { enter(); return 0; }',
    'extern "C" @A@ float sinf(float) { enter(); return 1; }',
    'extern "C" @A@ void evo_launch_0(void* const*) { enter(); }', "@A@ static const long evo_params_0[] = {9};",
)  # fmt: skip
CHOOSE = 'extern "C" int one() { return 1; }\nextern "C" int (*choose())() { enter(); return one; }\n'
NAMES = (
    *SECTION_NAMES[:-1], ".data.rel.ro.local.ctors", ".rodata\\n.incbin \\\"/etc/hostname\\\"\\n#",
    '.rodata,\\"aw\\",@progbits#', ".init_array,\\\"aw\\\"#", "a b", ";.incbin", "$", "ä",
)  # fmt: skip
INCLUDES = (
    "#include <cmath>", "#include <immintrin.h>", "#include <omp.h>", "#include <experimental/simd>",
    "#include <vector>",
    "#include <algorithm>", '#include "/etc/hostname"', "#include </proc/self/environ>", '#include "../kernel.cpp"',
    "#include_next <math.h>", "#import <math.h>", '#line 1 "/etc/hostname"', '# 1 "/usr/include/math.h" 3',
    "#define H <cmath>\n#include H", "#if __has_include(</etc/hostname>)\n#endif", "#embed </etc/hostname>",
    "#include <fstream>", "#include <unistd.h>", "#include <cstdlib>", "#pragma GCC poison axpb", "#pragma weak axpb",
    "#pragma redefine_extname axpb other", "#pragma GCC optimize(\"O0\")", "#pragma GCC target(\"avx2\")",
    '_Pragma("GCC dependency \\"/etc/hostname\\"")', "#pragma GCC push_options", "#pragma omp threadprivate(x)",
    "#pragma pack(1)", "#pragma GCC visibility push(default)", "#ident \"x\"", "#assert x(y)", "%:include <cmath>",
    "#undef __THROW", "#define __THROW __asm__(\"x\")", "#define noexcept __attribute__((constructor))",
    "#define inline",
    "#define extern static", "#define const", "#define int long", "#define __attribute__(x)", "#define static",
    "#undef __GNUC__", "#undef _STDLIB_H", "#define template typedef", "#include <string.h>", "#undef _STRING_H",
    "#include <valarray>", "#include <functional>", "#include <complex>",
)  # fmt: skip
ASSEMBLY = (
    'asm("@T@");', '__asm__ volatile("@T@");', 'int f() asm("@T@");', "__REDIRECT(f, (void), @T@);",
    'extern "C" void f() __REDIRECT_NTH(f, (), @T@);', "#define P(a, b) a##b\nP(a, sm)(\"@T@\");",
    '#define P(a, b) a##b\n#undef __THROW\n#define __THROW P(__as, m__)("@T@")\n#include <valarray>',
    '#define P(a, b) a##b\n#undef __wur\n#define __wur ; P(a, sm)("@T@");\n#undef _STDLIB_H\n#include <stdlib.h>',
    '#define noexcept noexcept; __REDIRECT(g, (void), @T@)\n#include <functional>',
    "int f() __asm__ __ASMNAME(\"@T@\");",
    '__attribute__((section(u8"@T@"))) int z;', '[[gnu::section(".rodata@T@")]] const int z = 1;',
    '__attribute__((alias("@T@"))) void z();', '__attribute__((__section__("@T@"))) const int z = 1;',
    'typedef int as; as m("@T@");', "a\\\nsm(\"@T@\");", "/**/asm/**/(/**/\"@T@\"/**/);", "int x = sizeof(asm);",
    "#define CALL(...) __VA_ARGS__\nCALL(__asm)(\"@T@\");", "_Pragma(\"GCC poison x\") asm(\"@T@\");",
    "__glibc_macro_warning(@T@)", "__ASMNAME(\"@T@\")", "register int r asm(\"eax\");", "__extension__ asm(\"@T@\");",
)  # fmt: skip
ASSEMBLER = (
    "nop", ".incbin \\\"/etc/hostname\\\"", "x\\n.incbin \\\"/etc/hostname\\\"\\n#", ".include \\\"kernel.ii\\\"",
    ".section .init_array,\\\"aw\\\"\\n.quad 0\\n.text", ".rept 100000000\\nnop\\n.endr", "syscall", "x;y",
    ".pushsection .rodata\\n.popsection", ".globl evo_launch_0", "mark",
)  # fmt: skip
TABLES = (
    "#define parameters(...) lie()", "#define describe lie", "#define Table Fake", "#define Param int",
    "#define COUNT 9",
    "#define kind_of fake_kind", "#define int short", "#define constexpr", "#define count counted",
    "#define params other", "#define EVO_LAUNCH(...)", "#define sizeof 3 + sizeof", "#define A", "#define values other",
    "#undef EVO_LAUNCH", "#define evo_params_0 elsewhere", "#define evo_launch_0 elsewhere", "#define decltype(x) Lie",
    "#define used unused", "#define size_t int", "#define is_pointer_v is_void_v", "#define true false",
)  # fmt: skip
LIE = (
    "namespace evo_shim { struct Lie { int words[@N@]; }; constexpr Lie lie() { return {{@W@}}; } }\n"
    "constexpr evo_shim::Lie lie() { return {}; }\n"
)
_SIGNATURE = "void(const float*, const float*, float*, float, int)"
SPECIAL = f"template <> __device__ const Table<{_SIGNATURE}> parameters<{_SIGNATURE}> = "
CUDA_LINES = (
    'asm(".global .u32 kept; st.global.u32 [kept], 1;");', "__device__ int kept;", "__constant__ int kept[4];",
    'asm volatile("{ .reg .u64 a; cvta.const.u64 a, kept; st.u8 [a], 1; }");', "__device__ const float w[] = {1, 2};",
    'asm("// \\\\\\n.global .u32 kept;");', 'asm("/* */ .visible .global .b8 k[8];");', "__shared__ int s[64];",
    'asm("ld.global.u32 %0, [0777777777777777777777777];" : "=r"(i));', 'asm("trap;");', "extern __shared__ char m[];",
    'asm(".reg .b32 %r<4294967295>;");', "printf(\"%d\", i);", "__trap();",
    'asm("mov.u64 %0, %%globaltimer;" : "=l"(k));',
    "namespace evo_shim { template <> constexpr int kind<float>() { return 77; } }", "static __device__ int kept;",
    "namespace evo_shim { template <> struct About<float> {\n"
    "    static constexpr Param param() { return {9, -1, 9, 9, 9}; } }; }",
    f"namespace evo_shim {{ {SPECIAL}{{1 << 22, {{}}}}; }}", f"namespace evo_shim {{ {SPECIAL}{{-1, {{}}}}; }}",
    "#define parameters nothing", "#include <cuda/barrier>", '#include "/etc/hostname"', "#define __device__",
)  # fmt: skip
PLAN_PARTS = (
    '[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n', '[tune]\nBLOCK = [1, 2, 3]\n',
    '[[buffer]]\nname = "s"\nshape = ["n * @B@"]\n', '[[buffer]]\nname = "s@B@"\ndtype = "fp64"\nshape = [@B@]\n',
    '[group.g]\nrepeat = "@B@"\n', 'requires = "n > @B@"\n', 'zero = ["y"]\n', "deterministic = false\n",
    '[[launch]]\nkernel = "axpb"\ngroup = "g"\nwhen = "i % 2"\nargs = ["x", "b", "y", "alpha", "@E@"]\n',
    '[[tensor_map]]\nname = "m"\ntensor = "x"\nshape = ["n"]\nbox = [@B@]\n', "x.@D@ = 1\n", "x = @L@\n",
    'y = """@E@"""\n', "[@D@]\nz = 1\n", "z = {@I@}\n", "z = 1e@B@\nw = 0x@B@\n", "d = 2026-11-22T10:00:00.@B@Z\n",
    'cluster = [@B@]\nshared = "@E@"\ngrid = [@B@]\nblock = [@B@]\n', '"@K@" = 1\n', "# @K@\n", "[[buffer]]\n",
)  # fmt: skip
_JUNK = (
    "\0",
    "\\",
    '"',
    "'",
    "/*",
    "*/",
    "\n",
    "\r",
    "\u2028",
    "{",
    "}",
    "[",
    "]",
    "=",
    ".",
    ",",
    "#",
    "//",
    "\x7f",
    "é",
    " ",
)


def spoiled(text: str, random: Random, *, share: float = 0.5) -> str:
    """The text, most often with a few characters, words or lines changed."""
    if random.random() > share:
        return text
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(text) + 1)
        size = random.choice((0, 1, 1, 5, 40))
        other = random.randrange(len(text) + 1)
        middle = random.choice(
            (random.choice(_JUNK), text[other : other + size], "", random.choice(_JUNK) * random.choice((9, 3000)))
        )
        text = text[:at] + middle + text[at + size :]
    return text


def filled(text: str, random: Random) -> str:
    """The text with something in the place of every `@X@`."""
    size = random.choice((1, 3, 50, 3000))
    parts = {
        "A": lambda: f"__attribute__(({random.choice(ATTRIBUTES)}))",
        "NAME": lambda: random.choice(NAMES),
        "T": lambda: random.choice(ASSEMBLER),
        "N": lambda: str(random.choice((1, 26, 200, 4000))),
        "W": lambda: random.choice(("1 << 22", "-1", "5", "5, 7, 7, 7, 7", "1024", "3, 0, 4, 0, 0, 0, 1, 2147483647")),
        "B": lambda: str(random.choice((0, 1, 2, 7, -1, 4096, 2**20, 2**31, 2**33, 2**36, 2**63, 2**64, 10**size))),
        "D": lambda: ".".join(random.choice(("a", '"b"', "c")) for _ in range(size)),
        "L": lambda: random.choice(("[" * size + "]" * size, "[" * size, "{a = " * size, str([[1]] * size))),
        "I": lambda: ", ".join(f"k{n} = {n}" for n in range(size)),
        "K": lambda: "k" * size * 9,
        "E": lambda: random.choice(
            (f"n {'+ n ' * size}", "(" * size + "n" + ")" * size, "n ** 60", "-" * size + "n", f"n * {'9' * size}")
        ),
    }  # fmt: skip
    for _ in range(3):
        text = re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]](), text)
    return text


def plan(random: Random, *, header: str = HEADER) -> str:
    """A header, of parts that belong into one and others."""
    parts = [random.choice(PLAN_PARTS) for _ in range(random.choice((1, 1, 2, 3, 6)))]
    parts += [header.removeprefix("/*! evo\n").removesuffix("*/\n")]
    parts.sort(key=lambda part: part.startswith("["))  # keys of the whole plan come first
    return f"/*! evo\n{spoiled(filled(''.join(parts), random), random, share=0.3)}*/\n"


def lines(choices: Sequence[str], random: Random) -> str:
    """A few of these, filled."""
    chosen = [random.choice(choices) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    return filled("\n".join(line.replace("marked", f"marked_{n}") for n, line in enumerate(chosen)), random) + "\n"
