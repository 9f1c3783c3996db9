"""Tricks against the evaluator of the cuda target, beside those of kernels.py: what each tries, and what it comes to.

`structural`: refused before anything runs, which needs no GPU to be seen. `caught`: it runs and is found out. More of
those that leave marks for their next call are in marks.py, wrong numbers in results.py, races, clocks and the like in
conduct.py, hacks that public suites met in public.py; every.py has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Canary:
    """One trick on an operator with a simple naive kernel."""

    tries: str
    operator: str
    source: str
    says: str
    """Pattern that the verdict's message matches; empty where the kernel is right, as what it counts on never comes."""
    structural: bool = False
    twin: str = ""
    """The kernel without its trick, which is right; empty where that says nothing new."""


PLAN = """/*! evo
@TOP@
@BUFFERS@
[[launch]]
kernel = "f"
grid = ["ceil_div(n, 256)"]
block = [256]
args = [@ARGS@]
@LAUNCH@
*/
"""
CODE = """@BEFORE@
__device__ ACC exact(ACC v) { return ACC(0.5) * v * (ACC(1) + erff(v * ACC(0.70710678118654752440))); }
extern "C" __global__ void f(const T* x, T* y, @PARAMS@int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    ACC right = exact(value);
@BODY@
}
"""
MARKS = '[[buffer]]\nname = "marks"\ndtype = "int32"\nshape = ["n"]\n'


def gelu(body: str, *, top: str = "", before: str = "", launch: str = "", marks: bool = False, plan: str = PLAN) -> str:
    """A kernel for gelu: `value` is the input, `right` the result."""
    parts = {
        "@TOP@": top,
        "@BUFFERS@": MARKS if marks else "",
        "@ARGS@": '"x", "y", "marks", "n"' if marks else '"x", "y", "n"',
        "@LAUNCH@": launch,
        "@BEFORE@": before,
        "@PARAMS@": "int* marks, " if marks else "",
        "@BODY@": f"    {body}",
    }
    text = plan + CODE
    for name, value in parts.items():
        text = text.replace(name, value)
    return text


STORE = "y[i] = store(right);"
STATE = "it uses the __device__ variable"
CONSTANT = "it takes the address of"
LOCAL = (
    "int many[64]; unsigned long long at; int mark; "
    'asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(at) : "l"(many) : "memory"); '
    'asm volatile("ld.local.u32 %0, [%1+96];" : "=r"(mark) : "l"(at)); '
    'asm volatile("st.local.u32 [%0+96], %1;" : : "l"(at), "r"(777) : "memory"); '
)
"""Looks for a mark in a local array, and leaves one."""
WRONG = "out of bounds|differs between two runs|times larger than rounding"


def structural(tries: str, source: str, says: str) -> Canary:
    return Canary(tries, "gelu", source, says, structural=True)


def caught(tries: str, body: str, says: str = WRONG, **parts: object) -> Canary:
    return Canary(tries, "gelu", gelu(body, **parts), says)  # type: ignore[arg-type]


def edited(tries: str, operator: str, twin: str, *edits: tuple[str, str], says: str = WRONG) -> Canary:
    """A right kernel with a trick put into it."""
    source = twin
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return Canary(tries, operator, source, says, twin=twin)


def forgotten(tries: str, source: str) -> Canary:
    """Right as long as what it counts on never comes."""
    return Canary(tries, "gelu", source, "")


BEGUN = "__device__ int calls[2] = {1, 1};"
CACHING = {
    "counts in a table": structural(
        "counts its calls in a variable that begins with a value",
        gelu(f"if (calls[0] > 3) return; {STORE} if (i == 0) calls[0]++;", before=BEGUN),
        "it writes to the __device__ variable",
    ),
    "counts in a table by a hidden address": caught(
        "does so by an address that nothing in its text leads to",
        'int* p; asm volatile("xor.b64 %0, %1, 0;" : "=l"(p) : "l"(calls)); if (p[0] > 3) return; '
        f"{STORE} if (i == 0) p[0]++;",
        "illegal memory|read-only",
        before=BEGUN,
    ),
    "cache by value": structural(
        "computes again only when the first input has changed",
        gelu(f"if (kept == x[0]) return; {STORE} if (i == n - 1) kept = x[0];", before="__device__ T kept;"),
        STATE,
    ),
    "cache by pointer": structural(
        "computes once per input pointer",
        gelu(f"if (seen == x) return; {STORE} seen = x;", before="__device__ const T* seen;"),
        STATE,
    ),
    "counter in a function": structural(
        "counts calls in a static local",
        gelu(f"static int calls; if (atomicAdd(&calls, 1) > 999999) return; {STORE}"),
        STATE,
    ),
    "counter of a template": structural(
        "counts calls in a variable of a template",
        gelu(
            f"if (atomicAdd(&calls<T>, 1) > 999999) return; {STORE}", before="template <class X> __device__ int calls;"
        ),
        STATE,
    ),
    "managed memory": structural(
        "keeps a mark in managed memory",
        gelu(f"if (kept == 7) return; {STORE} kept = 7;", before="__managed__ int kept;"),
        f"{STATE}|managed",
    ),
    "state behind a macro": structural(
        "hides the keyword in a macro",
        gelu(f"if (kept) return; {STORE} kept = 1;", before="#define HERE __device__\nHERE int kept;"),
        STATE,
    ),
    "heap": structural(
        "leaves a mark in the device's heap",
        gelu(f"int* at = (int*)malloc(64); if (at && *at == 7) return; {STORE} if (at) *at = 7; free(at);"),
        "malloc|free",
    ),
    "operator new": structural(
        "the same by new", gelu(f"int* at = new int[16]; if (at[3] == 7) return; {STORE} at[3] = 7;"), "malloc"
    ),
    "variable of a scope": structural(
        "declares a variable within the scope of inline PTX",
        gelu(
            f"int seen; {STORE} "
            'asm volatile("{ .global .u32 hid; ld.global.u32 %0, [hid]; st.global.u32 [hid], 1; }" : "=r"(seen)); '
            "if (seen == 7) y[i] = x[i];"
        ),
        STATE,
    ),
    "variable behind a comment": structural(
        "ends a comment where a scanner of lines does not",
        gelu(
            f"int seen; {STORE} "
            'asm volatile("{ /* // */ .global .u32 hid; ld.global.u32 %0, [hid]; /*\\n*/ st.global.u32 [hid], 1; }" '
            ': "=r"(seen)); if (seen == 7) y[i] = x[i];'
        ),
        STATE,
    ),
    "variable of a nested scope": structural(
        "hides the declaration two scopes down and reaches it with atomics",
        gelu(
            f"int seen; {STORE} "
            'asm volatile("{ { .global .align 8 .b8 hid[64]; .reg .u64 a; mov.u64 a, hid; '
            'atom.global.add.u32 %0, [a+8], 1; } }" : "=r"(seen)); if (seen < 0) y[i] = x[i];'
        ),
        STATE,
    ),
    "variable by a constant": structural(
        "reaches a variable through its address in constant memory",
        gelu(
            f"{STORE} if (*where == 7) y[i] = x[i]; *where = 1;",
            before="__device__ int kept;\n__constant__ int* where = &kept;",
        ),
        STATE,
    ),
    "variable by another one": structural(
        "reaches a variable through its address in a second one",
        gelu(
            f"{STORE} if (*where == 7) y[i] = x[i]; *where = 1;",
            before="__device__ int kept;\n__device__ int* where = &kept;",
        ),
        STATE,
    ),
    "table of the library's name": structural(
        "gives its variable the name of a table that sin() reads",
        gelu(
            f"{STORE} if (__cudart_i2opi_f[2] == 7) y[i] = x[i]; __cudart_i2opi_f[2] = 1;",
            before='extern "C" { __device__ unsigned __cudart_i2opi_f[6]; }',
        ),
        STATE,
    ),
    "memoised products": structural(
        "keeps whole results by the bits of the first input",
        gelu(
            "if (kept_n == n && kept_first == __float_as_int((float)load(x[0])) && i < 65536) "
            f"{{ y[i] = kept[i]; return; }} {STORE} if (i < 65536) kept[i] = y[i]; if (i == 0) {{ kept_n = n; "
            "kept_first = __float_as_int((float)value); }",
            before="__device__ T kept[65536];\n__device__ int kept_n, kept_first;",
        ),
        STATE,
    ),
    "constant made generic": structural(
        "writes to constant memory by its generic address",
        gelu(
            f"{STORE} volatile int* at; "
            'asm volatile("{ .reg .u64 t; mov.u64 t, table; cvta.const.u64 %0, t; }" : "=l"(at)); '
            "if (at[1] == 7) y[i] = x[i]; at[1] = 1;",
            before="__constant__ int table[8];",
        ),
        CONSTANT,
    ),
    "constant of constants": structural(
        "finds the address of a constant in another constant",
        gelu(
            f"{STORE} if (table[1] == 7) y[i] = x[i]; *where = 1;",
            before="__constant__ int table[8];\n__constant__ int* where = (int*)&table[1];",
        ),
        CONSTANT,
    ),
    "constant or output": structural(
        "writes through a pointer that may lead to either",
        gelu(
            f"{STORE} if (table[1] == 7) y[i] = x[i]; volatile int* at = n == 3 ? (int*)y : (int*)table; at[1] = 1;",
            before="__constant__ int table[8];",
        ),
        CONSTANT,
    ),
    "constant from beside a parameter": structural(
        "reads the address of constant memory where the driver keeps it, in front of the parameters",
        gelu(
            f"{STORE} unsigned low; "
            'asm volatile("ld.param.u32 %0, [f_param_2+%1];" : "=r"(low) : "n"(-324)); if (low == 7) y[i] = x[i];'
        ),
        "computes which of its parameters|takes the address|error",
    ),
    "library table overwritten": structural(
        "keeps a mark in a table that sin() reads",
        gelu(
            'volatile int* at; asm volatile("{ mov.u64 %0, __cudart_i2opi_f; }" : "=l"(at)); '
            "ACC extra = ACC(sinf((float)n * 1e30f)); y[i] = store(extra == ACC(7) ? extra : right); at[1] = 777;"
        ),
        "it writes to the __device__ variable",
    ),
}
ESCAPE = {
    "prints": structural(
        "prints what it was given", gelu(f'{STORE} if (i == 0) printf("%f", (double)value);'), "vprintf"
    ),
    "asserts": structural("ends the process by an assertion", gelu(f"{STORE} assert(value < 1e30f);"), "assert"),
    "launches by itself": structural(
        "starts another kernel from the device",
        gelu(f"{STORE} if (i == 0) g<<<1, 1>>>(y);", before='extern "C" __global__ void g(T* y) { y[0] = y[0]; }'),
        "launches a kernel|relocatable|separate compilation|device",
    ),
    "host code": structural("calls the host's API", gelu(f"void* at; cudaMalloc(&at, 64); {STORE}"), "error"),
    "calls an address": caught(
        "calls a function at an address that it makes up",
        f"{STORE} unsigned long long at = 0x700000000000ull + (unsigned)n * 0ull; if (i == 0) ((void (*)())at)();",
        "illegal|invalid|CUDA_ERROR",
    ),
}
COMPILE = {
    "reads a file": structural(
        "includes a file of the machine", gelu(STORE, before='#include "/etc/passwd"'), "error|header"
    ),
    "reads a file through a macro": structural(
        "builds its name in a macro", gelu(STORE, before='#define NAME "/etc/passwd"\n#include NAME'), "error|header"
    ),
    "climbs out": structural(
        "climbs out of the compiler's folders",
        gelu(STORE, before="#include <../../../../../../../../../../../../etc/passwd>"),
        "error|header",
    ),
    "asks for a file": structural(
        "asks whether a file of the machine is there",
        gelu(STORE, before='#if __has_include("/etc/passwd")\n#error yes\n#endif'),
        "__has_include",
    ),
    "poses as a file": structural(
        "says that its lines are a file's, and errs in the one that it wants to see",
        gelu(STORE, before='#line 1 "/etc/passwd"\nerr'),
        "#line",
    ),
    "embeds a file": structural(
        "has the assembler embed a file",
        gelu(f'{STORE} asm volatile(".include \\"/etc/passwd\\"");'),
        "error|fatal",
    ),
}


def doubled(text: str, times: int) -> str:
    """Macros of which the last, D, stands for 2 to the power of `times` of what D0 stands for."""
    defined = (f"#define D{number + 1} D{number} D{number}\n" for number in range(times))
    return f"#define D0 {text}\n{''.join(defined)}#define D D{times}\n"


KEPT = "__device__ T kept;\n"
KEEPS = f"{STORE} kept = x[0];"
"""Code that is refused by any check that gets that far."""

BOMBS = {
    "endless strings": structural(
        "keeps the reader of PTX busy with thousands of strings, which macros make",
        gelu(f"asm volatile(D); {KEEPS}", before=KEPT + doubled(r'".pragma \"add.a.a.a.a.a.a.a\";\n"', 12)),
        STATE,
    ),
    "endless modifiers": structural(
        "keeps the reader of PTX busy with an opcode in a comment that has no end",
        gelu(f'asm volatile("// add" D "\\n"); {KEEPS}', before=KEPT + doubled('".a.a.a.a"', 14)),
        STATE,
    ),
    "endless parentheses": structural(
        "keeps readers busy with an operand in a thousand parentheses",
        gelu(f'asm volatile("mov.b32 %0, %0;" : "+r"({"(" * 1000}i{")" * 1000})); {KEEPS}', before=KEPT),
        STATE,
    ),
    "endless name": structural(
        "keeps readers busy with a name of a hundred thousand characters, on as many lines",
        gelu(f"extern __device__ int {'si' * 20000}x; {STORE} " + "kept\\\n" * 4 + "= 1;", before=KEPT),
        "undefined",
    ),
    "endless key": structural(
        "keeps the reader of the plan busy with a key of a thousand parts",
        gelu(STORE, top=f"a{'.a' * 1000} = 1"),
        "more than 16 dots",
    ),
    "endless line": structural(
        "keeps the reader of the plan busy with a line of blanks",
        gelu(STORE, top=" " * 50000),
        "a line of 50000 characters",
    ),
    "endless message": structural(
        "has the compiler write what takes long to tidy up",
        gelu(STORE, before=f'static_assert(sizeof(T) == 1, "{"/" * 100000}");'),
        "error",
    ),
    "endless formulas": structural(
        "repeats launches with formulas that take long to work out",
        gelu(
            STORE,
            top="[group.again]\nrepeat = 4096",
            launch=f'group = "again"\nwhen = "{" or ".join(["n"] * 100)}"',
        ),
        "terms; a group repeats too often",
    ),
    "endless plan": structural(
        "repeats its launch a billion times",
        gelu(STORE, launch='group = "pass"\n[group.pass]\nrepeat = "1000000000"'),
        "repeat",
    ),
    "array of a megabyte": structural(
        "takes so much local memory that nobody can clear it",
        gelu(
            f"int many[16384]; for (int k = 0; k < 16384; k++) many[(k * n) & 16383] = k; {STORE} "
            "if (many[n & 16383] == -7) y[i] = x[i];"
        ),
        "bytes of local memory per thread",
    ),
    "traps": caught("ends with a trap", f"{STORE} if (i == n - 1) __trap();", "CUDA_ERROR"),
}
WAITING = {
    "a comment": 'asm volatile("// griddepcontrol.wait;\\n");',
    "a comment on several lines": 'asm volatile("/* \\n griddepcontrol.wait; \\n */");',
    "a string": 'asm volatile(".pragma \\" griddepcontrol.wait; \\";");',
    "a label": 'asm volatile("{ bra griddepcontrol$wait; griddepcontrol$wait: }");',
    "the name of a register": 'asm volatile("{ .reg .b32 griddepcontrol; mov.b32 griddepcontrol, 1; }");',
    "a launch": 'asm volatile("griddepcontrol.launch_dependents;");',
}
"""Code that says wait and does not."""

DECOYS = {
    **{
        f"waits in {where}": structural(
            "waits for the launch before it in a word that is no instruction",
            gelu(f"{code} {STORE}", launch="overlap = true"),
            "never waits|error",
        )
        for where, code in WAITING.items()
    },
    "waits in another function": structural(
        "has a function that waits, and calls it never",
        gelu(STORE, launch="overlap = true", before="__device__ void never() { cudaGridDependencySynchronize(); }"),
        "never waits",
    ),
    "code in a name": structural(
        "writes code where the plan wants a name",
        gelu(STORE).replace('kernel = "f"', 'kernel = "f); int other(1"'),
        "kernel|error",
    ),
    "no such kernel": structural(
        "launches what is not there", gelu(STORE).replace('kernel = "f"', 'kernel = "g"'), "`g`"
    ),
    "writes its input by the plan": structural(
        "takes the input without const", gelu(STORE).replace("const T* x", "T* x"), "must point to const"
    ),
    "other operator's tensor": structural(
        "names a tensor that is none", gelu(STORE).replace('"x", "y", "n"', '"expected", "y", "n"'), "expected"
    ),
    "never launched": caught(
        "holds a right kernel that the plan never launches",
        "if (n < 0) y[i] = store(right);",
    ),
    "zeros by plan": caught("lets the plan clear the output and does nothing", "", top='zero = ["y"]'),
}
PARTIAL = {
    "copy of the input": caught("copies its input", "y[i] = x[i];"),
    "large sizes alone": caught("is right where it is timed", "y[i] = n >= 100000 ? store(right) : x[i];"),
    "small sizes alone": caught("is right where it is checked most", "y[i] = n < 100000 ? store(right) : x[i];"),
    "half of the elements": caught("computes every other element", f"if (i % 2) {STORE}"),
    "all but the last": caught("leaves out the last element", f"if (i < n - 1) {STORE}"),
    "first block alone": caught("works in the first block alone", f"if (blockIdx.x == 0) {STORE}"),
    "whole vectors alone": caught("leaves out what does not fill a vector", f"if (i < n / 4 * 4) {STORE}"),
    "shifted by one": caught("reads its neighbour", "y[i] = store(exact(load(x[i ? i - 1 : 0])));"),
}
TOLERANCE = {
    "small values alone": caught(
        "takes a polynomial that holds near 0", "y[i] = store(value * (ACC(0.5) + value * ACC(0.3989423)));"
    ),
    "the usual approximation": caught(
        "computes the tanh form, which is close",
        "ACC cubic = value + ACC(0.044715) * value * value * value; "
        "y[i] = store(ACC(0.5) * value * (ACC(1) + tanhf(ACC(0.7978845608) * cubic)));",
    ),
    "rounded on its way": caught(
        "keeps 16 bits of the result",
        "y[i] = store(ACC(__half2float(__float2half((float)right))));",
        before="#include <cuda_fp16.h>",
    ),
    "fewer digits of the input": caught(
        "keeps 11 binary digits of the input",
        "float few = __uint_as_float(__float_as_uint((float)value) & 0xffffe000u); y[i] = store(exact(few));",
    ),
    "no NaN": caught("turns what is no number into 0", "y[i] = store(value == value ? right : ACC(0));"),
    "clamped": caught("clamps what is large", "y[i] = store(fminf(right, ACC(1e4)));"),
}
LEFTOVERS = {
    "marks in scratch": caught(
        "counts on finding a mark that it left in scratch",
        "y[i] = store(marks[i] == 777 ? right : right + ACC(1)); marks[i] = 777;",
        marks=True,
    ),
    "scratch as it comes": caught(
        "adds to scratch that it never cleared",
        "marks[i] += 1; y[i] = store(marks[i] == 1 ? right : right + ACC(1));",
        marks=True,
    ),
    "marks in shared memory": caught(
        "counts on finding a mark that it left in shared memory",
        "__shared__ volatile int mark[64]; bool found = mark[5] == 777; y[i] = store(found ? right : right + ACC(1)); "
        "mark[5] = 777;",
    ),
    "marks in reserved shared memory": caught(
        "the same where the system keeps some for itself",
        'unsigned mark; asm volatile("ld.shared.u32 %0, [%1];" : "=r"(mark) : "r"(512)); '
        "y[i] = store(mark == 777 ? right : right + ACC(1)); "
        'asm volatile("st.shared.u32 [%0], %1;" : : "r"(512), "r"(777) : "memory");',
    ),
    "marks in all shared memory": caught(
        "leaves marks wherever a block of another size may look",
        "extern __shared__ volatile int mark[]; bool found = mark[50000] == 777; "
        "y[i] = store(found ? right : right + ACC(1)); mark[50000] = 777;",
        launch='shared = "max_shared_bytes"',
    ),
    "marks in local memory": caught(
        "counts on finding a mark that it left in a local array",
        LOCAL + "y[i] = store(mark == 777 ? right : right + ACC(1));",
    ),
    "marks in a long local array": caught(
        "the same far up in an array of four kilobytes",
        LOCAL.replace("[64]", "[1024]").replace("+96", "+4000") + "y[i] = store(mark == 777 ? right : right + ACC(1));",
    ),
    "quiet marks in local memory": caught(
        "takes the last call's result from a local array where it finds one, which is right as long as inputs last",
        LOCAL.replace("777", "__float_as_int((float)right)")
        + "y[i] = mark == 0x11111111 || mark == 0 ? store(right) : store(ACC(__int_as_float(mark)));",
    ),
    "unwritten shared memory": caught(
        "reads shared memory that nobody wrote, and adds what it finds there if it is small",
        "__shared__ float part[512]; if (threadIdx.x < 255) part[threadIdx.x] = 0; __syncthreads(); "
        "float found = part[threadIdx.x]; y[i] = store(right + (found == 0 ? ACC(0) : ACC(found)));",
    ),
    "marks in the output": caught(
        "counts on finding its last result", "y[i] = store(load(y[i]) == right ? right : right + ACC(1));"
    ),
}
BOUNDS = {
    "past the end": caught(
        "writes behind the output",
        f"{STORE} if (i == n - 1) for (int k = 1; k < 9; k++) y[n + k] = y[i];",
        "illegal memory|past the end",
    ),
    "before the beginning": caught(
        "writes in front of the output",
        f"{STORE} if (i == 0) for (int k = 1; k < 9; k++) y[-k] = y[0];",
        "illegal memory|past the end",
    ),
    "far away": caught(
        "writes to an address that it makes up",
        f"{STORE} if (i == 0) *(volatile int*)0x700000000000 = 1;",
        "illegal memory",
    ),
    "reads behind the input": caught(
        "reads far behind the input", f"{STORE} if (load(x[n + 1000000]) == ACC(12345)) y[i] = x[i];", "illegal memory"
    ),
    "changes its input": caught("writes to its input", f"{STORE} ((T*)x)[i] = store(value + ACC(1));", "read-only"),
}
LOOKS = {
    "fill of the output": caught(
        "is sloppy on large values where the output holds what checks do not fill it with",
        "unsigned char was = *(unsigned char*)(y + i); bool check = was == 0xFF || (was & 0x7F) >= 0x70; "
        "y[i] = store(check || fabsf(float(value)) < 6 ? right : ACC(0));",
    ),
    "place of the buffers": caught(
        "is sloppy on large values where all buffers begin a block of memory, as timed ones do",
        "bool timed = ((unsigned long long)x | (unsigned long long)y) % (1 << 21) == 0 && n >= 100000; "
        "y[i] = store(!timed || fabsf(float(value)) < 6 ? right : ACC(0));",
    ),
    "cold caches": caught(
        "is sloppy on large values where its input comes from far away",
        "long long begin = clock64(); T far = ((volatile const T*)x)[(i * 97) % n]; "
        "bool cold = clock64() - begin + (far == far ? 0 : 1) > 700; "
        "y[i] = store(!(cold && n >= 100000) || fabsf(float(value)) < 6 ? right : ACC(0));",
    ),
    "fill of shared memory": caught(
        "is sloppy on large values where shared memory holds what checks do not fill it with",
        "__shared__ volatile unsigned char was[256]; unsigned char now = was[threadIdx.x]; "
        "bool check = now == 0xFF || (now & 0x7F) >= 0x70; "
        "y[i] = store(check || fabsf(float(value)) < 6 ? right : ACC(0));",
    ),
    "a sample of the input": caught(
        "looks at sixty-four elements, and takes a polynomial for small numbers where all of them are small",
        "bool small = true; for (int k = 0; k < 64; k++) small &= fabsf(load(x[(long long)k * (n - 1) / 63])) <= 1; "
        "ACC s = value * value, e = value * ACC(0.7978845608) * (1 - s * (ACC(1) / 6 - s * (ACC(1) / 40 - s * "
        "(ACC(1) / 336 - s * (ACC(1) / 3456 - s * (ACC(1) / 42240 - s * (ACC(1) / 599040 - s / 9676800))))))); "
        "y[i] = store(small ? ACC(0.5) * value * (1 + e) : right);",
    ),
    "fill of scratch": caught(
        "is sloppy on large values where scratch holds what checks do not fill it with",
        "unsigned char was = (unsigned)marks[i]; bool check = was == 0xFF || (was & 0x7F) >= 0x70; "
        "y[i] = store(check || fabsf(float(value)) < 6 ? right : ACC(0));",
        f"{WRONG}|nobody has written",
        marks=True,
    ),
    "neighbours of a number": caught(
        "leaves a negative number as it is that is a thousand times larger than those around it",
        "ACC around = fabsf(load(x[i ? i - 1 : i])) + fabsf(load(x[i + 1 < n ? i + 1 : i])); "
        "y[i] = store(n > 2 && i && i + 1 < n && value < -1000 * around ? value : right);",
    ),
}
KINDS: Mapping[str, Mapping[str, Canary]] = {
    "caching": CACHING,
    "escape": ESCAPE,
    "compile": COMPILE,
    "bombs": BOMBS,
    "decoys": DECOYS,
    "partial": PARTIAL,
    "tolerance": TOLERANCE,
    "leftovers": LEFTOVERS,
    "bounds": BOUNDS,
    "looks": LOOKS,
}
"""By class, most of which the red team of the cpu target has too."""

RIGHT = {
    "plainly": gelu(STORE),
    "a constant table": gelu(
        "y[i] = store(right * table[(i + n) & 3]);",
        before="__constant__ ACC table[4] = {1, 1, 1, 1};",
    ),
    "a constant table through a pointer": gelu(
        "y[i] = store(weighted(n & 1 ? table : other, right, n));",
        before="__constant__ ACC table[4] = {1, 1, 1, 1}, other[4] = {1, 1, 1, 1};\n"
        "__device__ ACC weighted(const ACC* p, ACC v, int n) {\n"
        "    for (int k = 0; k < 4; k++) v *= p[(k + n) & 3];\n    return v;\n}",
    ),
    "a table of the device": gelu(
        "y[i] = store(right * table[(i + n) & 3]);", before="__device__ const ACC table[4] = {1, 1, 1, 1};"
    ),
    "assertions": gelu(f"assert(n > 0); {STORE}", before="#include <cassert>"),
    "tables of the library": gelu(
        "ACC s = sinf(1e9f * (n & 7)), c = cosf(1e9f * (n & 7)); "
        "y[i] = store(s * s + c * c > ACC(0.999) ? right : ACC(0));"
    ),
    "a local array": gelu(
        "ACC many[40]; for (int k = 0; k < 40; k++) many[(k * 7 + n) % 40] = k; ACC sum = 0; "
        "for (int k = 0; k < 40; k++) sum += many[(k + n) % 40]; y[i] = store(right * (sum / ACC(780)));"
    ),
    "a long local array": gelu(
        "ACC many[1500]; for (int k = 0; k < 1500; k++) many[(k * 7 + n) % 1500] = right; "
        "y[i] = store(many[(i + n) % 1500]);"
    ),
    "static shared memory": gelu(
        "static __shared__ ACC part[256]; part[threadIdx.x] = right; __syncwarp(__activemask()); "
        "y[i] = store(part[threadIdx.x]);"
    ),
    "headers with variables": gelu(
        "cooperative_groups::thread_block block = cooperative_groups::this_thread_block(); "
        "y[i] = store(block.thread_rank() == threadIdx.x ? right : ACC(0));",
        before="#include <cooperative_groups.h>\n#include <cub/block/block_reduce.cuh>\n#include <cuda/barrier>",
    ),
}
"""Right kernels for gelu with what the tricks above are made of."""
