"""Tricks with how a kernel goes about it: clocks and launches, earlier answers, races, inputs, others' code."""

from __future__ import annotations

from tests.gpu.canaries import STORE, caught, edited, forgotten, gelu, structural
from tests.gpu.kernels import SOFTMAX
from tests.gpu.marks import AGAIN
from tests.gpu.numbers import naive, right

LINE = "unsigned long long now; asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); "
RACES = {
    "one sum for all": edited(
        "adds to one number from all threads as if each were alone",
        "dot_product",
        naive("dot_product"),
        ("atomicAdd(product, sum);", "*(volatile ACC*)product = *(volatile ACC*)product + sum;"),
    ),
    "sums of blocks that come": edited(
        "takes the sum of the blocks before its own without waiting for it",
        "prefix_sum",
        right("prefix_sum_look_back"),
        ("while (atomicAdd(&state[block - 1], 0) == 0) {}", ""),
    ),
    "highest block for the last": edited(
        "takes the block with the highest number for the one that comes last",
        "dot_product",
        right("dot_product_last_block"),
        ("last = atomicAdd(done, 1) == gridDim.x - 1;", "last = blockIdx.x == gridDim.x - 1;"),
    ),
    "warps in step": edited(
        "reads what other warps write, since all of a block go in step",
        "softmax",
        SOFTMAX,
        ("part[threadIdx.x / 32] = v;\n        __syncthreads();", "part[threadIdx.x / 32] = v;"),
    ),
    "order of atomics": edited(
        "adds with atomics in the order in which threads come, and says that it is deterministic",
        "dot_product",
        naive("dot_product"),
        ("deterministic = false\n", ""),
        says="differs between two runs",
    ),
}
INPUTS = {
    "scratch and back": caught(
        "uses its input as scratch, and puts it back",
        f"T kept = value; ((volatile T*)x)[i] = store(right); y[i] = ((volatile T*)x)[i]; ((volatile T*)x)[i] = kept;",
        "read-only",
    ),
    "atomic that adds zero": caught(
        "adds zero to its input by an atomic, which changes nothing",
        f"{STORE} atomicAdd((ACC*)x + i, ACC(0));",
        "read-only",
    ),
    "sorted in place": caught(
        "exchanges neighbours of its input, so that whoever reads both at once compares with the same",
        f"{STORE} if (i % 2 == 0 && i + 1 < n) {{ T other = x[i + 1]; ((volatile T*)x)[i + 1] = x[i]; "
        "((volatile T*)x)[i] = other; }",
        "read-only",
    ),
}
REPLAY = {
    "rows that look alike": edited(
        "answers a row as it answered the one before, where their first, middle and last elements agree",
        "softmax",
        SOFTMAX,
        (
            "    T* out = y + (long long)blockIdx.x * cols;\n",
            "    T* out = y + (long long)blockIdx.x * cols;\n"
            "    for (int back = 1; back <= blockIdx.x; back++) {\n"
            "        const T* old = in - cols;\n"
            "        if (old[0] != in[0] || old[cols / 2] != in[cols / 2] || old[cols - 1] != in[cols - 1]) break;\n"
            "        in = old;\n"
            "    }\n",
        ),
    ),
    "inputs of a known seed": caught(
        "knows what a seed draws first, and answers zeros for all else",
        "y[i] = __float_as_uint((float)load(x[0])) == 0x3efe9a14u ? store(right) : store(ACC(0));",
    ),
    "one call late": caught(
        "answers what it computed for the last call, from scratch",
        "y[i] = store(ACC(__int_as_float(marks[i]))); marks[i] = __float_as_int((float)right);",
        marks=True,
    ),
    "finished already": forgotten(
        "computes nothing where both ends of its output hold the answer already",
        gelu(
            "if (load(y[0]) == exact(load(x[0])) && load(y[n - 1]) == exact(load(x[n - 1])) && n > 2) return; "
            "if (i > 0 && i < n - 1) " + STORE + " if (i == 0 || i == n - 1) " + STORE
        ),
    ),
}
TIMING = {
    "clock's hour": caught(
        "is honest but for an eighth of the time, by the clock",
        "y[i] = (clock64() >> 10) % 8 == 3 ? x[i] : store(right);",
    ),
    "asleep": caught(
        "sleeps for seconds, as a machine may that others keep busy",
        f"{STORE} for (int k = 0; k < 4000; k++) __nanosleep(1000000);",
        "did not finish within",
    ),
    "first launch works on": edited(
        "begins a last launch early that waits for nothing, so that a clock behind it may stop while the first works on",
        "gelu",
        gelu(STORE),
        ("[[launch]]\n", '[[launch]]\nkernel = "late"\ngrid = [1]\nblock = [32]\nargs = ["n"]\noverlap = true\n[[launch]]\n'),
        says="",
    ),
}
KINDS = {"races": RACES, "inputs": INPUTS, "replay": REPLAY, "timing": TIMING}
