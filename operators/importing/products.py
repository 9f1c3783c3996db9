"""Loops of sums of products and of windows: matrix products, convolutions, pooling, interpolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from operators.importing.graph import Node
from operators.importing.kernels import Array, Kernel, Writer, as_text, kind, shared


def _product(
    writer: Writer,
    node: Node,
    a: Array,
    b: Array,
    added: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
    *,
    turned: bool = False,
) -> Array:
    """out[..., i, j] = beta added + alpha sum_r a[..., i, r] b[..., r, j]; vectors lack i or j."""
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        kernel.line(f"{kind(out.dtype)} sum = 0;")
        lead = index[: max(len(a.shape), len(b.shape)) - 2]
        rest = index[len(lead) :]
        i = [rest[0]] if len(a.shape) > 1 else []
        j = [rest[-1]] if len(b.shape) > 1 else []
        with kernel.loop("r", a.shape[-1]) as r:
            left = kernel.broadcast(a, [*lead, *i, r] if len(a.shape) > 1 else [r], out.dtype)
            right = [*j, r] if turned else [r, *j]
            kernel.line(
                f"sum += {left} * {kernel.broadcast(b, [*lead, *right] if len(b.shape) > 2 else right, out.dtype)};"
            )
        text = "sum" if alpha == 1 else f"{kernel.number(alpha)} * sum"
        if isinstance(added, Array):
            extra = kernel.broadcast(added, index, out.dtype)
            text += f" + {extra}" if beta == 1 else f" + {kernel.number(beta)} * {extra}"
        kernel.put(out, index, text)
    return out


def matmul(writer: Writer, node: Node, a: Array, b: Array, *_: Any) -> Array:
    """A product of matrices, vectors, or stacks of matrices."""
    return _product(writer, node, a, b)


def added_product(writer: Writer, node: Node, added: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    """The same, added to something."""
    return _product(writer, node, a, b, added, beta, alpha)


def linear(writer: Writer, node: Node, x: Array, weight: Array, bias: Any) -> Array:
    """A product with a matrix whose rows belong to results."""
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        kernel.line("ACC sum = 0;")
        with kernel.loop("r", x.shape[-1]) as r:
            factors = kernel.get(x, [*index[:-1], r], "ACC"), kernel.get(weight, [index[-1], r], "ACC")
            kernel.line(f"sum += {factors[0]} * {factors[1]};")
        kernel.put(out, index, f"sum + {kernel.get(bias, index[-1:], 'ACC')}" if isinstance(bias, Array) else "sum")
    return out


def _each(value: Any, count: int) -> list[Any]:
    """An argument for every axis of a window."""
    values = value if isinstance(value, list) else [value]
    return values * count if len(values) == 1 else values


def convolution(
    writer: Writer, node: Node, x: Array, weight: Array, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: Any,
) -> Array:  # fmt: skip
    """Convolutions and transposed ones, over any number of axes."""
    out, rank = writer.result(node), len(x.shape) - 2
    strides, pads, dilations = (_each(value, rank) for value in (stride, padding, dilation))
    groups = as_text(groups)
    each, own = shared(x.shape[1], groups), shared(out.shape[1], groups)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        n, c, *o = index
        kernel.line("ACC sum = 0;")
        with kernel.loop("r", each) as r, kernel.loops(weight.shape[2:], "k") as k, ExitStack() as inside:
            places = []
            for axis in range(rank):
                s, p, d = (kernel.size(v[axis]) for v in (strides, pads, dilations))
                name, size = f"p{axis}", kernel.size(x.shape[2 + axis])
                if transposed:
                    kernel.line(f"long long {name} = {o[axis]} + {p} - {k[axis]} * {d};")
                    inside.enter_context(
                        kernel.braces(f"if ({name} >= 0 && {name} % {s} == 0 && {name} / {s} < {size})")
                    )
                    places.append(f"({name} / {s})")
                else:
                    kernel.line(f"long long {name} = {o[axis]} * {s} - {p} + {k[axis]} * {d};")
                    inside.enter_context(kernel.braces(f"if ({name} >= 0 && {name} < {size})"))
                    places.append(name)
            channel = r if groups == "1" else f"({c} / {kernel.size(own)} * {kernel.size(each)} + {r})"
            if transposed:
                filters = [channel, c if groups == "1" else f"({c} % {kernel.size(own)})", *k]
            else:
                filters = [c, r, *k]
            kernel.line(f"sum += {kernel.get(x, [n, channel, *places], 'ACC')} * {kernel.get(weight, filters, 'ACC')};")
        kernel.put(out, index, f"sum + {kernel.get(bias, [c], 'ACC')}" if isinstance(bias, Array) else "sum")
    return out


def _window(
    kernel: Kernel, inside: ExitStack, x: Array, o: Sequence[str], sizes: Sequence[Any], strides: Sequence[Any],
    pads: Sequence[Any], dilations: Sequence[Any],
) -> list[str]:  # fmt: skip
    """Loops over a window; the places in x of what lies inside it."""
    lead = len(x.shape) - len(o)
    places = []
    for axis, at in enumerate(o):
        k = inside.enter_context(kernel.loop(f"k{axis}", sizes[axis]))
        s, p, d = (kernel.size(v[axis]) for v in (strides, pads, dilations))
        kernel.line(f"long long p{axis} = {at} * {s} - {p} + {k} * {d};")
        size = kernel.size(x.shape[lead + axis])
        inside.enter_context(kernel.braces(f"if (p{axis} >= 0 && p{axis} < {size})"))
        places.append(f"p{axis}")
    return places


def max_pool(writer: Writer, node: Node, x: Array, size: Any, stride: Any, padding: Any, dilation: Any, *_: Any) -> Any:
    """The largest element of a window, and its place among the input's."""
    rank = int(node.op.split("pool")[1][0])
    sizes, pads, dilations = (_each(v, rank) for v in (size, padding, dilation))
    strides = _each(stride, rank) if stride not in (None, []) else sizes
    outs = writer.results(node)
    with writer.kernel(node) as kernel, kernel.parallel(writer.shape(node)) as index:
        lead, o = index[: len(index) - rank], index[len(index) - rank :]
        kernel.line("ACC best = -INFINITY;")
        kernel.line("long long place = -1;")
        with ExitStack() as inside:
            places = _window(kernel, inside, x, o, sizes, strides, pads, dilations)
            kernel.line(f"ACC v = {kernel.get(x, [*lead, *places], 'ACC')};")
            with kernel.braces("if (place < 0 || v > best || v != v)"):
                kernel.line("best = v;")
                kernel.line(f"place = {kernel.offset(x.shape[-rank:], places)};")
        for out, value in zip(outs, ("best", "place"), strict=False):
            if out:
                kernel.put(out, index, value)
    return tuple(outs)


def avg_pool(
    writer: Writer, node: Node, x: Array, size: Any, stride: Any, padding: Any, ceil_mode: Any, counts_padding: Any,
    divisor: Any = None,
) -> Array:  # fmt: skip
    """The mean of a window."""
    rank = int(node.op.split("pool")[1][0])
    sizes, pads = (_each(v, rank) for v in (size, padding))
    strides = _each(stride, rank) if stride not in (None, []) else sizes
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        lead, o = index[: len(index) - rank], index[len(index) - rank :]
        kernel.line("ACC sum = 0, n = 0;")
        with ExitStack() as inside:
            places = _window(kernel, inside, x, o, sizes, strides, pads, [1] * rank)
            kernel.line(f"sum += {kernel.get(x, [*lead, *places], 'ACC')};")
            kernel.line("n += 1;")
        if divisor is not None:
            kernel.line(f"n = {kernel.number(divisor)};")
        elif counts_padding:  # of what hangs over where the last window was rounded up, only the padding counts
            kernel.line("n = 1;")
            for axis, at in enumerate(o):
                whole, p = kernel.size(x.shape[len(lead) + axis]), kernel.size(pads[axis])
                kernel.line(f"long long from{axis} = {at} * {kernel.size(strides[axis])} - {p};")
                kernel.line(f"long long to{axis} = from{axis} + {kernel.size(sizes[axis])};")
                kernel.line(f"n *= (to{axis} < {whole} + {p} ? to{axis} : {whole} + {p}) - from{axis};")
        kernel.put(out, index, "sum / n")
    return out


def adaptive_avg_pool(writer: Writer, node: Node, x: Array, size: Any) -> Array:
    """Means of windows that follow from the sizes of input and output."""
    rank = int(node.op.split("pool")[1][0])
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        lead, o = index[: len(index) - rank], index[len(index) - rank :]
        kernel.line("ACC sum = 0, n = 0;")
        with ExitStack() as inside:
            for axis, at in enumerate(o):
                own, whole = kernel.size(out.shape[len(lead) + axis]), kernel.size(x.shape[len(lead) + axis])
                start, end = f"({at} * {whole} / {own})", f"((({at} + 1) * {whole} + {own} - 1) / {own})"
                head = f"for (long long p{axis} = {start}; p{axis} < {end}; p{axis}++)"
                inside.enter_context(kernel.braces(head))
            kernel.line(f"sum += {kernel.get(x, [*lead, *(f'p{axis}' for axis in range(rank))], 'ACC')};")
            kernel.line("n += 1;")
        kernel.put(out, index, "sum / n")
    return out


def nearest(writer: Writer, node: Node, x: Array, *args: Any) -> Array:
    """The nearest element of a smaller or larger grid."""
    rank = int(node.op.split("nearest")[1][0])
    out = writer.result(node)
    _no_factors(node, args, rank)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        places = list(index[:2])
        for axis in range(rank):
            own, whole = kernel.size(out.shape[2 + axis]), kernel.size(x.shape[2 + axis])
            kernel.line(f"long long p{axis} = {index[2 + axis]} * {whole} / {own};")
            places.append(f"p{axis}")
        kernel.put(out, index, kernel.get(x, places, out.dtype))
    return out


def _no_factors(node: Node, args: Sequence[Any], rank: int) -> None:
    """Factors that sizes do not follow from exactly are not told by the sizes."""
    factors = [v for v in args if isinstance(v, float)] + [v for a in args if isinstance(a, list) for v in a]
    if any(isinstance(v, float) and not v.is_integer() for v in factors):
        raise NotImplementedError(f"no loops are known for {node.op} with factors that are no integers")


def bilinear(writer: Writer, node: Node, x: Array, size: Any, corners: Any, *factors: Any) -> Array:
    """Weighted means of the four elements around a place."""
    out = writer.result(node)
    _no_factors(node, factors, 2)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        for axis in range(2):
            own, whole = kernel.size(out.shape[2 + axis]), kernel.size(x.shape[2 + axis])
            at = index[2 + axis]
            if corners:
                place = f"{own} > 1 ? ACC({at}) * ACC({whole} - 1) / ACC({own} - 1) : ACC(0)"
            else:
                place = f"(ACC({at}) + ACC(0.5)) * ACC({whole}) / ACC({own}) - ACC(0.5)"
            kernel.line(f"ACC a{axis} = {place};")
            kernel.line(f"if (a{axis} < 0) a{axis} = 0;")
            kernel.line(f"long long p{axis} = (long long)a{axis}, q{axis} = p{axis} + (p{axis} < {whole} - 1);")
            kernel.line(f"a{axis} -= p{axis};")
        rows = []
        for row in ("p0", "q0"):
            left, right = (kernel.get(x, [*index[:2], row, column], "ACC") for column in ("p1", "q1"))
            rows.append(f"((1 - a1) * {left} + a1 * {right})")
        kernel.put(out, index, f"(1 - a0) * {rows[0]} + a0 * {rows[1]}")
    return out


ENTRIES: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}.default": matmul for name in ("mm", "bmm", "matmul", "mv", "dot")},
    **{f"aten.{name}.default": added_product for name in ("addmm", "baddbmm", "addmv")},
    "aten.linear.default": linear, "aten.convolution.default": convolution,
    **{f"aten.max_pool{rank}d_with_indices.default": max_pool for rank in (2, 3)},
    **{f"aten.avg_pool{rank}d.default": avg_pool for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d.default": adaptive_avg_pool for rank in (2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": adaptive_avg_pool for rank in (1, 2, 3)},
    **{f"aten.upsample_nearest{rank}d.{overload}": nearest for rank in (1, 2, 3) for overload in ("default", "vec")},
    **{f"aten.upsample_bilinear2d.{overload}": bilinear for overload in ("default", "vec")},
}  # fmt: skip
