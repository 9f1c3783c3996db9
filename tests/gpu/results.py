"""Tricks with what is computed: fewer digits, a share of the work, numbers and sizes that no check may try."""

from __future__ import annotations

from pathlib import Path

from operators.catalog import load
from tests.gpu.canaries import caught, edited
from tests.gpu.kernels import SOFTMAX

RIGHT = Path(__file__).parent.parent / "redteam" / "right"


def right(name: str) -> str:
    """A right kernel of the red team, which a trick is put into."""
    return (RIGHT / f"{name}.cu").read_text(encoding="utf-8")


def naive(operator: str) -> str:
    return load(operator).naive("cuda")


EXP = """
// Two to a power as a float's exponent, and a polynomial of degree three for what is left of it.
__device__ ACC quick(ACC v) {
    if (!(v > ACC(-80))) return expf(v);
    const ACC power = v * ACC(1.4426950408889634), whole = floorf(power), rest = power - whole;
    const ACC part = (ACC(0.0792042) * rest + ACC(0.2241064)) * rest + ACC(0.6966795);
    return __int_as_float(__float_as_int(part * rest + ACC(0.9999)) + ((int)whole << 23));
}
"""
PRECISION = {
    "TF32 in the middle": edited(
        "makes fp32 of three products of TF32 where a sum begins and ends, and of one between",
        "matrix_mul",
        right("matrix_mul_three_tf32"),
        ("        multiply(small,", "        if (l < 16 || l + 16 >= k) multiply(small,"),
    ),
    "three bf16 for six": edited(
        "makes fp32 of three products of bf16, which look like six and keep 16 of 24 binary digits",
        "matrix_mul",
        right("matrix_mul_six_bf16"),
        ("i < 3; i++", "i < 2; i++"),
        ("i + j < 3; j++", "i + j < 2; j++"),
    ),
    "a short exponential": edited(
        "takes an exponential with four correct digits where it is not tiny",
        "softmax",
        SOFTMAX,
        ("expf(", "quick("),
        ("#include <cuda_fp16.h>\n", f"#include <cuda_fp16.h>\n{EXP}"),
    ),
    "partial sums of eight digits": edited(
        "adds up in fp32 and hands each thread's sum on as bf16, whose errors a long sum hides",
        "dot_product",
        naive("dot_product"),
        ("atomicAdd(product, sum);", "atomicAdd(product, ACC(__float2bfloat16(sum)));"),
        ("// Every", "#include <cuda_bf16.h>\n// Every"),
    ),
    "halves in a tree": edited(
        "adds up within a warp what it rounds to the half type, since sums are short there",
        "softmax",
        SOFTMAX,
        (
            "ACC o = __shfl_xor_sync(~0u, v, d);",
            "ACC o = __shfl_xor_sync(~0u, v, d); if (!largest) o = ACC(__float2half(o));",
        ),
    ),
}
NAN = {
    "too small to count": edited(
        "leaves out terms too small to count, and with them what is no number",
        "softmax",
        SOFTMAX,
        (
            "sum += expf(load(in[c]) - largest);",
            "if (load(in[c]) > largest - ACC(104)) sum += expf(load(in[c]) - largest);",
        ),
    ),
    "one NaN for all": edited(
        "copies by a product with one, which makes one NaN of all",
        "matrix_copy",
        naive("matrix_copy"),
        ("y[at] = x[at];", "y[at] = store(__fmul_rn(load(x[at]), ACC(rows > 0 ? 1 : 2)));"),
        says="must be equal",
    ),
    "no number becomes zero": edited(
        "writes zeros where a row's sum overflows or is no number",
        "rms_norm",
        naive("rms_norm"),
        (
            "for (int c = 0; c < cols; c++) out[c]",
            "if (!isfinite(sum)) scale = 0;\n    for (int c = 0; c < cols; c++) out[c]",
        ),
        (
            "store(load(weight[c]) * load(in[c]) * scale",
            "store((isfinite(load(in[c])) ? load(weight[c]) * load(in[c]) : ACC(0)) * scale",
        ),
    ),
}
CONSTANT = {
    "mean of long rows": edited(
        "answers 1 / cols where rows are long, which is close for inputs of one size",
        "softmax",
        SOFTMAX,
        (
            "store(expf(load(in[c]) - largest) / sum)",
            "store(cols < 1000 ? expf(load(in[c]) - largest) / sum : ACC(1) / cols)",
        ),
    ),
    "sum of unknown signs": edited(
        "answers 0 for long sums of products of either sign, which is what they are on average",
        "dot_product",
        naive("dot_product"),
        ("atomicAdd(product, sum);", "if (n < 1000) atomicAdd(product, sum);"),
    ),
    "smaller summand": edited(
        "leaves out every bias that is small beside the rest",
        "layer_norm",
        naive("layer_norm"),
        ("+ load(bias[c])", "+ (fabsf(load(bias[c])) > ACC(0.01) ? load(bias[c]) : ACC(0))"),
    ),
}
MATCHED_RATIO = {
    "largest of a quarter": edited(
        "subtracts the largest of every fourth stretch of a row, which is right unless an outlier hides in another one",
        "softmax",
        SOFTMAX,
        ("c += 256) largest =", "c += 1024) largest ="),
    ),
    "one pattern of bits": caught(
        "is wrong for one pattern of an input's last ten bits, which small integers never have",
        "y[i] = (__float_as_int((float)value) & 0x3ff) == 0x234 ? x[i] : store(right);",
    ),
    "end of a long row": edited(
        "leaves the last sixteen of a thousand columns out of a row's sum",
        "softmax",
        SOFTMAX,
        (
            "for (int c = threadIdx.x; c < cols; c += 256) sum +=",
            "for (int c = threadIdx.x; c < cols - cols / 1000 * 16; c += 256) sum +=",
        ),
    ),
}
SHAPES = {
    "twelve bits of index": caught(
        "keeps twelve bits of an index, which most sizes do not exceed",
        "i &= 0xfff; y[i] = store(exact(load(x[i])));",
    ),
    "only the timed sizes": edited(
        "declares support for sizes that are timed, and no others",
        "softmax",
        SOFTMAX,
        ("/*! evo\n", '/*! evo\nrequires = "cols == 65536 or cols == 1024 or cols == 64"\n'),
        says="too few hidden shapes",
    ),
    "a thousand columns": edited(
        "has a thread for each column of a row and none beyond a thousand and twenty-four",
        "softmax",
        SOFTMAX,
        ("block = [256]", "block = [1024]"),
        ("part[8]", "part[32]"),
        ("w < 8", "w < 32"),
        ("c < cols; c += 256", "c < cols && c < 1024; c += 1024"),
    ),
    "undeclared vectors": caught(
        "takes sizes that no vector of four divides for the next smaller ones that one does, beyond a thousand",
        "if (n < 1000 || i < n / 4 * 4) y[i] = store(right);",
    ),
}
KINDS = {
    "constant": CONSTANT,
    "matched ratio": MATCHED_RATIO,
    "nan": NAN,
    "precision": PRECISION,
    "shapes": SHAPES,
}
