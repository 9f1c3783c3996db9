"""Loops of operators that factorise matrices and solve systems, one matrix or one column after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operators.importing.graphs.graph import Node
from operators.importing.graphs.kernels import Array, Writer


def cholesky(writer: Writer, node: Node, x: Array, upper: bool = False, *_: Any) -> tuple[Array | None, ...]:
    """The lower triangle whose product with its transpose is a matrix, or the upper one; and zeros, for success."""
    outs = writer.results(node)
    factor = outs[0]
    assert factor is not None
    batch, n = x.shape[:-2], x.shape[-1]
    with writer.kernel(node) as kernel, kernel.parallel([*batch, "1"]) as index:
        lead = index[:-1]

        def place(row: str, column: str) -> list[str]:
            return [*lead, column, row] if upper else [*lead, row, column]

        kernel.written[factor.stored] = ""
        with kernel.loop("r0", n) as j, kernel.loop("r1", n) as i:
            with kernel.braces(f"if ({i} < {j})"):
                kernel.put(factor, place(i, j), "0")
            with kernel.braces(f"if ({i} >= {j})"):
                kernel.line(f"ACC sum = {kernel.get(x, place(i, j), 'ACC')};")
                with kernel.braces(f"for (long long k = 0; k < {j}; k++)"):
                    one, other = (kernel.get(factor, place(row, "k"), "ACC") for row in (i, j))
                    kernel.line(f"sum -= {one} * {other};")
                root = kernel.get(factor, place(j, j), "ACC")
                kernel.put(factor, place(i, j), f"({i} == {j} ? sqrt(sum) : sum / {root})")
        if outs[1]:
            kernel.put(outs[1], lead, "0")
    return tuple(outs)


def triangular(
    writer: Writer, node: Node, a: Array, b: Array, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """The solution x of a x = b, or of x a = b, where a is a triangle: one column of b after the other."""
    out = writer.result(node)
    *batch, rows, columns = out.shape
    n, lines = (rows, columns) if left else (columns, rows)
    with writer.kernel(node) as kernel, kernel.parallel([*batch, lines]) as index:
        *lead, line = index

        def at(i: str) -> list[str]:
            return [*lead, i, line] if left else [*lead, line, i]

        kernel.written[out.stored] = ""
        with kernel.loop("r", n) as r:
            backwards = upper if left else not upper
            kernel.line(f"long long at0 = {f'{kernel.size(n)} - 1 - {r}' if backwards else r};")
            kernel.line(f"ACC sum = {kernel.broadcast(b, at('at0'), 'ACC')};")
            begin, end = ("at0 + 1", kernel.size(n)) if backwards else ("0", "at0")
            with kernel.braces(f"for (long long k = {begin}; k < {end}; k++)"):
                factor = kernel.broadcast(a, [*lead, "at0", "k"] if left else [*lead, "k", "at0"], "ACC")
                kernel.line(f"sum -= {factor} * {kernel.get(out, at('k'), 'ACC')};")
            last = kernel.broadcast(a, [*lead, "at0", "at0"], "ACC")
            kernel.put(out, at("at0"), "sum" if unitriangular else f"sum / {last}")
    return out


ENTRIES: dict[str, Callable[..., Any]] = {
    "aten.linalg_cholesky_ex.default": cholesky, "aten.linalg_solve_triangular.default": triangular,
}  # fmt: skip
