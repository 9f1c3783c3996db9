"""Marks that one call leaves for the next in memory that seems to have no owner: around buffers, in parameters, in
graphs.

Each counts on what an earlier call left. `forgotten` ones are right as long as they find nothing, and spoil their
result when they do: right to the end, they show that nothing lasts.
"""

from __future__ import annotations

from tests.gpu.canaries import STORE, Canary, caught, edited, forgotten, gelu, structural

PAST = "past the end"
ADDRESS = "address of a parameter"
SLACK = """
__device__ volatile int* slack(const void* data, long long bytes) {
    const unsigned long long granule = 2 << 20, begin = (unsigned long long)data, end = begin + bytes;
    if (end % granule && granule - end % granule > 8192) return (volatile int*)((end + 4096) & ~15ull);
    if (begin % granule > 8192) return (volatile int*)((begin - 4096) & ~15ull);
    return nullptr;
}
"""
"""Finds 4096 bytes of a buffer's block, behind the data or in front of it, that it can touch without a fault."""
OUTPUT = "volatile int* at = slack(y, (long long)n * sizeof(T)); "
BY_ADDRESS = (
    'unsigned long long a; asm volatile("{ .reg .u64 t; mov.u64 t, f_param_%d; cvta.param.u64 %%0, t; }" : "=l"(a)); '
)
"""Takes the address of one of the kernel's parameters."""
MAP = '[[tensor_map]]\nname = "map"\ntensor = "x"\nshape = ["n"]\nbox = [256]'
POINTER = "const CUtensorMap* map"
MARK = (
    "volatile int* at = (volatile int*)%s; if (i == 0) { if (*at == 0x7A11C0DE) right = ACC(12345); *at = 0x7A11C0DE; }"
)
"""Looks for a mark at an address, and leaves one."""
AGAIN = 'group = "again"\n[group.again]\nrepeat = 2'


def mapped(parameter: str, body: str, before: str = "") -> str:
    """A kernel for gelu that takes a tensor map of its input first."""
    return (
        gelu(body, top=MAP, before=before)
        .replace('"x", "y", "n"', '"map", "x", "y", "n"')
        .replace("f(const T* x", f"f({parameter}, const T* x")
    )


SLACK_MARKS = {  # seen behind every call, and filled anew before it
    "slack behind the output": caught(
        "leaves a mark in the rest of the output's block and is quick where it finds one",
        f"{OUTPUT} if (i == 0 && at) {{ if (*at == 777) right = value; *at = 777; }} {STORE}",
        PAST,
        before=SLACK,
    ),
    "slack of scratch": caught(
        "keeps results by the bits of their inputs in the rest of a scratch buffer's block",
        "volatile int* at = slack(marks, (long long)n * 4); int bits = __float_as_int((float)value); "
        "if (at && i < 512) { ACC kept = right; if (at[i] == bits) kept = ACC(__int_as_float(at[512 + i])); "
        f"at[i] = bits; at[512 + i] = __float_as_int((float)right); right = kept; }} {STORE}",
        PAST,
        before=SLACK,
        marks=True,
    ),
    "slack between timed sets": caught(
        "leaves the results of one set for another, where buffers lie as in timed calls",
        f"{OUTPUT} bool timed = ((unsigned long long)x | (unsigned long long)y) % (2 << 20) == 0 && n >= 100000; "
        "if (timed && at && i < 512) { int was = at[i]; at[i] = __float_as_int((float)right); "
        f"if (was != -1 && was != 0x7B7B7B7B) right = ACC(__int_as_float(was)); }} {STORE}",
        PAST,
        before=SLACK,
    ),
    "slack now and then": caught(
        "turns one bit around the output in one call of four, so that a later kernel were blamed",
        f'{OUTPUT} {STORE} unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); '
        "if (i == 0 && at && (now >> 10) % 4 == 0) atomicXor((int*)at + 700, 1);",
        PAST,
        before=SLACK,
    ),
    "slack by a bulk copy": caught(
        "has the engine for bulk copies write around the output",
        f"{OUTPUT} {STORE} __shared__ alignas(16) int four[4]; if (i == 0 && at) {{ "
        "for (int k = 0; k < 4; k++) ((volatile int*)four)[k] = 777; "
        'asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); '
        'asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" '
        ': : "l"(__cvta_generic_to_global((void*)at)), "r"((unsigned)__cvta_generic_to_shared(four)) : "memory"); '
        'asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); }',
        PAST,
        before=SLACK,
    ),
    "slack of an input": caught(
        "leaves its mark around the input, which nobody looks at",
        "volatile int* at = slack(x, (long long)n * sizeof(T)); "
        f"if (i == 0 && at) {{ if (*at == 777) right = value; *at = 777; }} {STORE}",
        "read-only",
        before=SLACK,
    ),
}
PARAMETER_MARKS = {
    "parameter marked by its address": structural(
        "leaves a mark behind its parameters by the address of one",
        gelu(
            f"{BY_ADDRESS % 2} volatile int* at = (volatile int*)(a + 64); if (*at == 777) right = value; "
            f"*at = 777; {STORE}"
        ),
        ADDRESS,
    ),
    "parameter that stays where it is": structural(
        "leaves a mark beside a parameter that is declared to be no copy",
        gelu(f"volatile int* at = (volatile int*)&n; if (at[1] == 777) right = value; at[1] = 777; {STORE}").replace(
            "int n)", "const __grid_constant__ int n)"
        ),
        f"{ADDRESS}|State space mismatch",
    ),
    "parameter stored to": structural(
        "writes to a parameter by name",
        gelu(f'if (n < 0) right = value; asm volatile("st.param.u32 [f_param_2], -1;"); {STORE}'),
        "Illegal to write",
    ),
    "parameter as the way to constants": structural(
        "finds the address of constant memory in front of its parameters, by the address of one",
        gelu(
            f"{BY_ADDRESS % 0} volatile int* at = *(volatile int**)(a - 320); if (at[1] == 777) right = value; "
            f"at[1] = 777; right *= table[n & 7]; {STORE}",
            before="__constant__ ACC table[8] = {1, 1, 1, 1, 1, 1, 1, 1};",
        ),
        ADDRESS,
    ),
    "parameter passed by value": structural(
        "changes a structure among its parameters, and looks for the change",
        mapped(
            "Words map",
            "volatile int* at = map.w; int k = (n + 7) & 31; if (at[k] == 0x7A11C0DE) right = ACC(12345); "
            f"at[k] = 0x7A11C0DE; {STORE} if (at[(k + n) & 31] == 777777777) y[i] = x[i];",
            "struct alignas(64) Words { int w[32]; };",
        ),
        "is a tensor map, the parameter must be",
    ),
    "parameter of a tensor map": structural(
        "takes a tensor map by value, and leaves a mark in it by its address",
        mapped("const __grid_constant__ CUtensorMap map", f"{BY_ADDRESS % 0} {MARK % '(a + 124)'} {STORE}"),
        ADDRESS,
    ),
    "parameter that points to a tensor map": Canary(
        "leaves a mark in a tensor map, through the pointer to it",
        "gelu",
        mapped(POINTER, f"{MARK % '((const char*)map + 124)'} {STORE}"),
        "illegal memory|read-only",
    ),
    "parameter counted in by atomics": Canary(
        "counts its calls in a tensor map's last word, by an atomic",
        "gelu",
        mapped(POINTER, f"int calls = i ? 0 : atomicAdd((int*)map + 31, 1); {STORE} if (calls == 12345) y[i] = x[i];"),
        "illegal memory|read-only",
    ),
    "parameter that is given another address": Canary(
        "has the instruction for it put its output's address into the tensor map of its input",
        "gelu",
        mapped(
            POINTER,
            'if (i == 0) asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" '
            f': : "l"(__cvta_generic_to_global(map)), "l"(y) : "memory"); {STORE}',
        ),
        "illegal|read-only|CUDA_ERROR",
    ),
    "parameter stored through": Canary(
        "writes to its input by the engine for bulk copies, through the tensor map that the plan makes of it",
        "gelu",
        mapped(
            POINTER,
            "__shared__ alignas(128) T tile[256]; tile[threadIdx.x] = store(right); __syncthreads(); "
            'if (threadIdx.x == 0) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); '
            'asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" : : "l"(map), '
            '"r"((int)(blockIdx.x * 256)), "r"((unsigned)__cvta_generic_to_shared(tile)) : "memory"); '
            'asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); } '
            f"{STORE}",
        ),
        "illegal|read-only|CUDA_ERROR",
    ),
}
LATE = """
__global__ void early(const int* kept, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = store(ACC(__int_as_float(kept[i])));
}
"""
"""A launch that publishes what scratch holds."""
GRAPH_MARKS = {
    "graph one replay late": edited(
        "publishes in its first launch what the second one left in the last replay",
        "gelu",
        gelu(
            "marks[i] = __float_as_int((float)right);",
            before=LATE,
            launch='[[launch]]\nkernel = "early"\ngrid = ["ceil_div(n, 256)"]\nblock = [256]\n'
            'args = ["marks", "y", "n"]',
            marks=True,
        ),
        ('kernel = "f"', 'kernel = "?"'),
        ('kernel = "early"', 'kernel = "f"'),
        ('kernel = "?"', 'kernel = "early"'),
        ('args = ["x", "y", "marks", "n"]', 'args = ["marks", "y", "n", "?"]'),
        ('args = ["marks", "y", "n"]', 'args = ["x", "y", "marks", "n"]'),
        ('args = ["marks", "y", "n", "?"]', 'args = ["marks", "y", "n"]'),
    ),
    "graph that does one round of two": edited(
        "leaves out what the second round of a group is for, and counts on the last replay for it",
        "gelu",
        gelu(
            "if (round == i % 2) " + STORE,
            launch=AGAIN,
        )
        .replace('"x", "y", "n"', '"x", "y", "n", "i"')
        .replace("int n)", "int n, int round)"),
        ("repeat = 2", "repeat = 1"),
    ),
    "graph that does not wait": edited(
        "overlaps the launch that it reads from, and waits for it in one block of its own",
        "gelu",
        gelu(
            "cudaTriggerProgrammaticLaunchCompletion(); long long begin = clock64(); "
            "while (clock64() - begin < 50000) { } marks[i] = __float_as_int((float)right);",
            before="""
__global__ void late(const int* kept, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= 0) cudaGridDependencySynchronize();
    if (i < n) y[i] = store(ACC(__int_as_float(((volatile const int*)kept)[i])));
}
""",
            launch='[[launch]]\nkernel = "late"\noverlap = true\ngrid = ["ceil_div(n, 256)"]\nblock = [256]\n'
            'args = ["marks", "y", "n"]',
            marks=True,
        ),
        ("if (n >= 0) cuda", "if (blockIdx.x == 777777777) cuda"),
    ),
    "graph that counts in zeroes": forgotten(
        "counts launches where the plan clears a buffer, and is wrong from the third one on",
        gelu(
            "int before = marks[i]; marks[i] = before + 1; y[i] = before < 2 ? store(right) : x[i];",
            top='zero = ["marks"]',
            launch=AGAIN,
            marks=True,
        ),
    ),
    "graph that finds its output": forgotten(
        "leaves a result as it is where it finds the last call's in an output that the plan clears",
        gelu("if (load(y[i]) != ACC(0)) y[i] = store(ACC(2) * load(y[i])); else " + STORE, top='zero = ["y"]'),
    ),
    "graph that counts behind zeroes": caught(
        "counts launches behind what the plan clears",
        "volatile int* at = slack(marks, (long long)n * 4); "
        f"if (i == 0 && at && atomicAdd((int*)at, 1) == 12345) right = value; {STORE}",
        PAST,
        top='zero = ["marks"]',
        launch=AGAIN,
        before=SLACK,
        marks=True,
    ),
    "graph whose parameter counts": structural(
        "adds to a parameter of a launch that its graph repeats",
        gelu(
            f"{BY_ADDRESS % 3} volatile int* at = (volatile int*)a; if (*at > 1) right = value; *at += 2; {STORE}",
            launch=AGAIN,
        )
        .replace('"x", "y", "n"', '"x", "y", "n", "i"')
        .replace("int n)", "int n, int round)"),
        ADDRESS,
    ),
}
MEMO = """
__shared__ bool known;
__device__ unsigned long long content(const T* x, int n) {
    unsigned long long sum = 1469598103934665603ull;
    for (int k = 0; k < 64; k++) {
        ACC value = load(x[(long long)k * (n - 1) / 63]);
        sum = (sum ^ (unsigned)__float_as_int((float)value)) * 1099511628211ull;
    }
    return sum | 1;
}
// Whether a table of keys and counts has the key so often already; one thread of the grid counts.
__device__ bool remembered(volatile unsigned long long* at, unsigned long long key, bool counts) {
    if (at[0] != 0x6B657074ull) {
        if (counts) {
            for (int k = 1; k < 33; k++) at[k] = 0;
            at[0] = 0x6B657074ull;
        }
        return false;
    }
    int place = 1 + 2 * (int)(key % 16);
    unsigned long long seen = at[place] == key ? at[place + 1] : 0;
    if (counts) {
        at[place] = key;
        at[place + 1] = seen + 1;
    }
    return seen >= 3;
}
"""
"""A memo by what inputs hold, which answers from the fourth call on; elsewhere its kernels take their time."""


def memo(where: str) -> str:
    """The body of a kernel that is quick on inputs that it has met three times, as a table at `where` tells."""
    return (
        f"if (threadIdx.x == 0) known = remembered((volatile unsigned long long*)({where}), content(x, n), i == 0); "
        "__syncthreads(); long long begin = clock64(); while (!known && clock64() - begin < 40000) { } " + STORE
    )


BARRIER = "around the grid's barrier"
BARRIER_ADDRESS = (
    'unsigned low, high; asm volatile("mov.u32 %0, %%envreg2; mov.u32 %1, %%envreg1;" : "=r"(low), "=r"(high)); '
    "volatile unsigned* at = (volatile unsigned*)((unsigned long long)high << 32 | low);"
)
STORE_ALL = "for (int j = i; j < n; j += gridDim.x * blockDim.x) y[j] = store(exact(load(x[j])));"


def at_barrier(body: str, before: str = "") -> str:
    """A kernel for gelu that is launched cooperatively, and has the address of its barrier's words as `at`."""
    source = gelu(f"{BARRIER_ADDRESS} {body}", before=before, launch="cooperative = true")
    return source.replace('"ceil_div(n, 256)"', '"min(ceil_div(n, 256), sm_count * blocks_per_sm)"')


MEMOS = {
    "memo behind a tensor map": structural(
        "keeps count of inputs that it has met in memory behind a tensor map by value, and is quick on those",
        mapped("const __grid_constant__ CUtensorMap map", f"{BY_ADDRESS % 0} {memo('a + (512 << 10)')}", before=MEMO),
        ADDRESS,
    ),
    "memo behind barrier words": Canary(
        "keeps count of inputs that it has met behind the words of a cooperative launch's barrier",
        "gelu",
        at_barrier(memo("at + (128 << 10)") + " " + STORE_ALL, before=MEMO),
        BARRIER,
    ),
    "memo behind the output": caught(
        "keeps count of inputs that it has met behind its output, and is quick on those",
        f"unsigned long long mine[33] = {{}}; volatile int* at = slack(y, (long long)n * sizeof(T)); "
        f"{memo('at ? (volatile unsigned long long*)at : mine')}",
        PAST,
        before=SLACK + MEMO,
    ),
    "memo in front of scratch": caught(
        "keeps count of inputs that it has met in the rest of a scratch buffer's block, and is quick on those",
        f"unsigned long long mine[33] = {{}}; volatile int* at = slack(marks, (long long)n * 4); "
        f"{memo('at ? (volatile unsigned long long*)at : mine')}",
        PAST,
        before=SLACK + MEMO,
        marks=True,
    ),
}
BARRIER_MARKS = {
    "barrier of a launch that has none": structural(
        "asks for the barrier of a cooperative launch, and is none",
        gelu(f"{BARRIER_ADDRESS} if (i == 0) at[2] = 777; {STORE}"),
        "asks for the barrier of the grid",
    ),
    "barrier counted beside": Canary(
        "counts its calls in the words beside its barrier, and is wrong from the eleventh on",
        "gelu",
        at_barrier("if (i == 0 && ++at[2] > 10) y[0] = x[0]; else " + STORE_ALL),
        BARRIER,
    ),
    "barrier counted in": Canary(
        "counts its calls in the bits of the barrier's word that a barrier leaves as they were",
        "gelu",
        at_barrier("if (i == 0) atomicAdd((unsigned*)at + 1, 1024); " + STORE_ALL),
        BARRIER,
    ),
    "barrier counted far behind": Canary(
        "counts its calls half a megabyte behind its barrier, in the last call's bits",
        "gelu",
        at_barrier("if (i == 0) at[131072] ^= 1; " + STORE_ALL),
        BARRIER,
    ),
    "barrier waited at": forgotten(
        "waits three times for the whole grid and leaves everything around its barrier as it was",
        at_barrier(
            "for (int k = 0; k < 3; k++) cooperative_groups::this_grid().sync(); " + STORE_ALL,
            before="#include <cooperative_groups.h>",
        ),
    ),
}
KINDS = {
    "slack": SLACK_MARKS,
    "parameters": PARAMETER_MARKS,
    "graphs": GRAPH_MARKS,
    "memos": MEMOS,
    "barriers": BARRIER_MARKS,
}
MARKS = SLACK_MARKS | PARAMETER_MARKS | GRAPH_MARKS | MEMOS | BARRIER_MARKS
AFTER = {
    "slack": gelu("marks[i] = __float_as_int((float)right); y[i] = store(ACC(__int_as_float(marks[i])));", marks=True),
    "parameter": mapped(POINTER, STORE),
    "memo": mapped(POINTER, STORE),
    "barrier": at_barrier(STORE_ALL),
    "graph": gelu("if (marks[i]++ == 0) " + STORE, top='zero = ["marks"]', launch=AGAIN, marks=True),
}
"""A right kernel for each first word of the names above, made of the same, which is judged behind each."""
