"""Kernels of the operator `axpb` for tests: a header and a body."""

from __future__ import annotations

from operators.kernel import Kernel

ARGS = '["x", "b", "y", "alpha", "n"]'
SIGNATURE = "void axpb(const T* x, const T* b, T* y, T alpha, int n)"


def axpb_kernel(
    body: str, *, header: str = "", before: str = "", signature: str = SIGNATURE, args: str = ARGS
) -> Kernel:
    """A kernel file with one launch around `body`."""
    source = f"""/*! evo
{header}
[[launch]]
kernel = "axpb"
args = {args}
*/
{before}
{signature} {{
{body}
}}
"""
    return Kernel("axpb", "cpu", source)


LOOP = "for (int i = 0; i < n; i++) "
RIGHT = f"{LOOP}y[i] = alpha * x[i] + b[i];"
