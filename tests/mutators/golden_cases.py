"""Golden files: which transform turns which one into which, and where."""

from __future__ import annotations

from pathlib import Path

from mutators.analysis.cpp_tree import SyntaxTree
from mutators.transforms import TRANSFORMS, Site
from operators.catalog import load

FOLDER = Path(__file__).parent / "golden"

CPU = {
    "accumulator_tile": ("matrix_mul", ""),
    "drop_pragma": ("softmax", ""),
    "fission": ("softmax", ""),
    "full_tile": ("matrix_mul", ""),
    "fuse": ("softmax", ""),
    "hoist": ("matrix_mul", "loop `j`"),
    "interchange": ("matrix_mul", "`j` and `l`"),
    "keep_values": ("softmax", ""),
    "parallel": ("softmax", "loop `r`"),
    "parallel_collapse": ("matrix_mul", ""),
    "parallel_dynamic": ("matrix_mul", ""),
    "prefetch": ("spmv_csr", ""),
    "reciprocal": ("softmax", ""),
    "register_tile": ("matrix_mul", ""),
    "restrict": ("matrix_mul", ""),
    "simd": ("softmax", "max:"),
    "single_precision": ("softmax", ""),
    "split_reduction": ("spmv_csr", ""),
    "tile": ("matrix_mul", "loop `j`"),
    "unroll": ("matrix_mul", "loop `l` of matrix_mul (line 10) by 4"),
}
"""Operator, and a part of the description that picks the place, by transform."""

CUDA = {
    "block_size": ("softmax", ""),
    "coarsen": ("softmax", ""),
    "launch_bounds": ("matrix_mul", "resident"),
    "reciprocal": ("softmax", ""),
    "restrict": ("softmax", ""),
    "share_rows": ("softmax", "a block"),
    "split_reduction": ("spmv_csr", ""),
    "sum_before_atomic": ("cross_entropy_loss", ""),
    "thread_tile": ("matrix_mul", ""),
    "unroll": ("spmv_csr", "by 8"),
    "vectorize": ("gelu", ""),
}


def source(transform: str, target: str, *, after: bool = False) -> str:
    suffix = "cpp" if target == "cpu" else "cu"
    return (FOLDER / f"{transform}.{'after' if after else 'before'}.{suffix}").read_text()


def site(transform: str, target: str) -> tuple[SyntaxTree, Site]:
    """The case's tree and the first site whose description fits."""
    operator, part = (CPU if target == "cpu" else CUDA)[transform]
    tree = SyntaxTree(source(transform, target), load(operator), target, "fp32")
    sites = [s for s in TRANSFORMS[transform].sites(tree) if part in s.description]
    assert sites, f"{transform} applies nowhere"
    return tree, sites[0]
