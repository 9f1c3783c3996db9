"""Loops of operators that go along axes or windows.

Along axes: reductions, softmax, norms, cumulative operators, sorting, matrix products. Along windows: convolutions,
pooling, interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from operators.importing.graphs.graph import Node
from operators.importing.graphs.kernels import Array, LoopKernel, Writer, as_text, axes, cast, kind, product, shared

ROW = 64
"""Results of a convolution that a CPU adds up at once."""


def _spread(shape: Sequence[str], along: Sequence[int], kept: Sequence[str], inner: Sequence[str]) -> list[str]:
    """The index of an element, from indices of the axes that are left and of those that are gone along."""
    left, gone = iter(kept), iter(inner)
    return [next(gone) if axis in along else next(left) for axis in range(len(shape))]


def _outer(shape: Sequence[str], along: Sequence[int]) -> list[str]:
    return [size for axis, size in enumerate(shape) if axis not in along]


def _put(kernel: LoopKernel, out: Array, outer: Sequence[str], along: Sequence[int], value: str) -> None:
    """Store one result, whose array has kept the axes along which it was reduced, or not."""
    kept = list(outer)
    if len(out.shape) > len(outer):
        for axis in along:
            kept.insert(axis, "0")
    kernel.put(out, kept, value)


# --- reductions: (start, step, end) by operator; v is an element, n the number of them ---

SUMS = {
    "sum": ("0", "sum += v;", "sum"), "mean": ("0", "sum += v;", "sum / n"), "prod": ("1", "sum *= v;", "sum"),
    "any": ("0", "sum = sum || v != 0;", "sum"), "all": ("1", "sum = sum && v != 0;", "sum"),
}  # fmt: skip


def vector_norm(writer: Writer, node: Node, x: Array, order: Any = 2, dims: Any = None, *_: Any) -> Array:
    """A norm of vectors along some axes."""
    along, out = axes(dims, len(x.shape)), writer.result(node)
    step, end = f"sum += pow(v, (ACC)({order}));", f"pow(sum, 1 / (ACC)({order}))"
    if order in (1, 2):
        step, end = ("sum += v;", "sum") if order == 1 else ("sum += v * v;", "sqrt(sum)")
    elif order in (math.inf, -math.inf):
        step, end = f"if (v {'>' if order > 0 else '<'} sum || v != v) sum = v;", "sum"
    elif order == 0:
        step, end = "sum += v != 0;", "sum"
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line(f"ACC sum = {kernel.number(math.inf if order == -math.inf else 0)};")
        with kernel.loops([x.shape[axis] for axis in along], "r") as inner:
            kernel.line(f"ACC v = fabs({kernel.get(x, _spread(x.shape, along, index, inner), 'ACC')});")
            kernel.line(step)
        _put(kernel, out, index, along, end)
    return out


EXTREMES = {"amax": ">", "amin": "<", "max": ">", "min": "<", "argmax": ">", "argmin": "<"}


def reduction(writer: Writer, node: Node, x: Array, dims: Any = None, *_: Any) -> Array:
    """One number of all along some axes."""
    name, overload = node.op.split(".")[1:]
    along = axes(dims if "dim" in overload or name in ("mean",) else None, len(x.shape))
    start, step, end = SUMS[name]
    out = writer.result(node)
    dtype = x.dtype if out.dtype == "bool" else out.dtype
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line(f"{kind(out.dtype)} sum = {start};")
        sizes = [x.shape[axis] for axis in along]
        added = name in ("sum", "mean")
        with _parts(kernel, sizes, "sum", out.dtype, whole=not added) as (inner, part):
            v = kernel.get(x, _spread(x.shape, along, index, inner), dtype)
            kernel.line(f"{kind(dtype)} v = {v};")
            kernel.line(step.replace("sum", part))
        count = kernel.size(product([x.shape[axis] for axis in along]))
        _put(kernel, out, index, along, end.replace("n", cast(count, out.dtype)) if name == "mean" else end)
    return out


def extreme(writer: Writer, node: Node, x: Array, dims: Any = None, *_: Any) -> tuple[Array | None, ...]:
    """The largest or smallest number along some axes, and where it stands: the first of several."""
    name, overload = node.op.split(".")[1:]
    along = axes(dims if name.startswith(("am", "arg")) or overload == "dim" else None, len(x.shape))
    outs = writer.results(node)
    of_places = 0 if name.startswith("arg") else 1
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        first = _spread(x.shape, along, index, ["0"] * len(along))
        kernel.line(f"{kind(x.dtype)} best = {kernel.get(x, first)};")
        kernel.line("long long place = 0, count = 0;")
        with kernel.loops([x.shape[axis] for axis in along], "r") as inner:
            kernel.line(f"{kind(x.dtype)} v = {kernel.get(x, _spread(x.shape, along, index, inner))};")
            with kernel.braces(f"if (v {EXTREMES[name]} best || (v != v && best == best))"):
                kernel.line("best = v;")
                kernel.line("place = count;")
            kernel.line("count++;")
        for position, out in enumerate(outs):
            if out:
                _put(kernel, out, index, along, "place" if position == of_places else "best")
    return tuple(outs)


def variance(writer: Writer, node: Node, x: Array, *args: Any) -> tuple[Array | None, ...]:
    """Variance, deviation, and means."""
    name, overload = node.op.split(".")[1:]
    plain = overload in ("default", "dim")
    dims = args[0] if overload in ("correction", "dim") else None
    correction: Any = (1 if args[-2 if overload == "dim" else -1] else 0) if plain else args[1]
    along = axes(dims, len(x.shape))
    outs = writer.results(node)
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        sizes = [x.shape[axis] for axis in along]
        _moments(kernel, x, sizes, lambda inner: _spread(x.shape, along, index, inner))
        less = 1 if correction is None else correction
        spread = f"squares / (count > {less} ? count - {less} : 0)"
        found = f"sqrt({spread})" if name.startswith("std") else spread
        for out, value in zip(outs, (found, "mean"), strict=False):
            if out:
                _put(kernel, out, index, along, value)
    return tuple(outs)


def _moments(kernel: LoopKernel, x: Array, sizes: Sequence[str], where: Any) -> None:
    """`count`, `mean` and `squares`, the sum of squared deviations."""
    kernel.line(f"ACC count = {kernel.size(product(sizes))};")
    kernel.line("ACC sum = 0, squares = 0;")
    with _parts(kernel, sizes, "sum") as (inner, part):
        kernel.line(f"{part} += {kernel.get(x, where(inner), 'ACC')};")
    kernel.line("ACC mean = sum / count;")
    with _parts(kernel, sizes, "squares") as (inner, part):
        kernel.line(f"ACC d = {kernel.get(x, where(inner), 'ACC')} - mean;")
        kernel.line(f"{part} += d * d;")


@contextmanager
def _parts(
    kernel: LoopKernel, sizes: Sequence[str], total: str, dtype: str = "ACC", *, whole: bool = False
) -> Iterator[tuple[list[str], str]]:
    """Loops that add to a total: where there are several, the innermost one to a part of it, as one long chain of
    additions would lose too much. `whole`: there are no parts."""
    with kernel.loops(sizes[:-1], "r") as outer:
        part = f"{total}_part" if outer and not whole else total
        if part != total:
            kernel.line(f"{kind(dtype)} {part} = 0;")
        with kernel.loop(f"r{len(outer)}", sizes[-1]) if sizes else nullcontext("") as last:
            yield [*outer, *([last] if sizes else [])], part
        if part != total:
            kernel.line(f"{total} += {part};")


# --- softmax and norms ---


def softmax(writer: Writer, node: Node, x: Array, dim: int, *_: Any) -> Array:
    """Exponentials over their sum along one axis, or the logarithm of that."""
    along, out = axes(dim, len(x.shape)), writer.result(node)
    log = "log" in node.op
    sizes = [x.shape[axis] for axis in along]
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:

        def element(inner: Sequence[str]) -> str:
            return kernel.get(x, _spread(x.shape, along, index, inner), "ACC")

        kernel.line("ACC largest = -INFINITY, sum = 0;")
        with kernel.loops(sizes, "r") as inner:
            kernel.line(f"ACC v = {element(inner)};")
            kernel.line("if (v > largest || v != v) largest = v;")
        with kernel.loops(sizes, "r") as inner:
            kernel.line(f"sum += exp({element(inner)} - largest);")
        with kernel.loops(sizes, "r") as inner:
            value = f"{element(inner)} - largest - log(sum)" if log else f"exp({element(inner)} - largest) / sum"
            kernel.put(out, _spread(out.shape, along, index, inner), value)
    return out


def layer_norm(
    writer: Writer, node: Node, x: Array, normalized: list[Any], weight: Any, bias: Any, eps: Any
) -> tuple[Array | None, ...]:
    """Norms over the last axes."""
    rank = len(x.shape)
    along = list(range(rank - len(normalized), rank))
    outs = writer.results(node)
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        sizes = [x.shape[axis] for axis in along]
        _moments(kernel, x, sizes, lambda inner: [*index, *inner])
        kernel.line(f"ACC root = 1 / sqrt(squares / count + {kernel.number(eps)});")
        with kernel.loops(sizes, "r") as inner:
            value = f"({kernel.get(x, [*index, *inner], 'ACC')} - mean) * root"
            if outs[0]:
                kernel.put(outs[0], [*index, *inner], _affine(kernel, value, weight, bias, inner))
        for out, value in zip(outs[1:], ("mean", "root"), strict=True):
            if out:
                _put(kernel, out, index, along, value)
    return tuple(outs)


def _affine(kernel: LoopKernel, value: str, weight: Any, bias: Any, index: Sequence[str]) -> str:
    if isinstance(weight, Array):
        value = f"{value} * {kernel.get(weight, index, 'ACC')}"
    return f"{value} + {kernel.get(bias, index, 'ACC')}" if isinstance(bias, Array) else value


def group_norm(
    writer: Writer, node: Node, x: Array, weight: Any, bias: Any, n: Any, c: Any, hxw: Any, groups: Any, eps: Any
) -> tuple[Array | None, ...]:
    """Norms over groups of channels and all that follows them."""
    outs = writer.results(node)
    shape = writer.shape(node, 0)
    with writer.kernel(node) as kernel, kernel.parallel([shape[0], as_text(groups)]) as index:
        each = shared(shape[1], as_text(groups))
        sizes = [each, *shape[2:]]
        channel = "0" if index[1] == "0" else f"{index[1]} * {kernel.size(each)}"

        def where(inner: Sequence[str]) -> list[str]:
            return [index[0], f"({channel} + {inner[0]})", *inner[1:]]

        _moments(kernel, x, sizes, where)
        kernel.line(f"ACC root = 1 / sqrt(squares / count + {kernel.number(eps)});")
        with kernel.loops(sizes, "r") as inner:
            place = where(inner)
            value = f"({kernel.get(x, place, 'ACC')} - mean) * root"
            if outs[0]:
                kernel.put(outs[0], place, _affine(kernel, value, weight, bias, [place[1]]))
        for out, value in zip(outs[1:], ("mean", "root"), strict=True):
            if out:
                kernel.put(out, index, value)
    return tuple(outs)


def batch_norm(writer: Writer, node: Node, x: Array, weight: Any, bias: Any, *args: Any) -> tuple[Array | None, ...]:
    """Norms of every channel, by running statistics or by its own."""
    name, overload = node.op.split(".")[1:]
    outs = writer.results(node)
    running = isinstance(args[0], Array) and (name.endswith("no_training") or args[2] is False)
    if overload == "no_stats":
        args = (None, None, *args)
    eps, others = args[-1], [axis for axis in range(len(x.shape)) if axis != 1]
    if name == "native_batch_norm":
        eps = args[4]
    with writer.kernel(node) as kernel, kernel.parallel([x.shape[1]]) as index:
        sizes = [x.shape[axis] for axis in others]

        def where(inner: Sequence[str]) -> list[str]:
            return [inner[0], index[0], *inner[1:]]

        if running:
            kernel.line(f"ACC mean = {kernel.get(args[0], index, 'ACC')};")
            kernel.line(f"ACC root = 1 / sqrt({kernel.get(args[1], index, 'ACC')} + {kernel.number(eps)});")
        else:
            _moments(kernel, x, sizes, where)
            kernel.line(f"ACC root = 1 / sqrt(squares / count + {kernel.number(eps)});")
        with kernel.loops(sizes, "r") as inner:
            value = f"({kernel.get(x, where(inner), 'ACC')} - mean) * root"
            if outs[0]:
                kernel.put(outs[0], where(inner), _affine(kernel, value, weight, bias, index))
        momentum = kernel.number(args[3] if len(args) > 3 else 0)
        moved = [
            f"(1 - {momentum}) * {kernel.get(old, index, 'ACC')} + {momentum} * {new}"
            if isinstance(old, Array)
            else "0"
            for old, new in zip(args[:2], ("mean", "squares / (count - 1)"), strict=True)
        ]
        for out, value in zip(outs[1:], ("mean", "root", *moved), strict=False):
            if out:
                kernel.put(out, index, value)
    return tuple(outs)


# --- along one axis, element by element ---

LARGER = "if (count++ == 0) { best = v; sum = 1; } else if (v > best) { sum = sum * exp(best - v) + 1; best = v; }"
SCANS = {
    "cumsum": ("", "0", "sum += v;", "sum"), "cumprod": ("", "1", "sum *= v;", "sum"),
    "logcumsumexp": ("ACC best = 0; long long count = 0;", "0", f"{LARGER} else sum += exp(v - best);",
                     "best + log(sum)"),
}  # fmt: skip
"""By operator: what more is kept, the start of the sum, what an element does to it, and the result."""


def scan(writer: Writer, node: Node, x: Array, dim: int, *_: Any) -> Array:
    """Sums or products of all elements up to each, or the logarithms of sums of their exponentials."""
    along, out = axes(dim, len(x.shape)), writer.result(node)
    more, start, step, result = SCANS[node.op.split(".")[1]]
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line(f"{kind(out.dtype)} sum = {start}; {more}".rstrip())
        with kernel.loops([x.shape[axis] for axis in along], "r") as inner:
            place = _spread(x.shape, along, index, inner)
            kernel.line(f"{kind(out.dtype)} v = {kernel.get(x, place, out.dtype)};")
            kernel.line(step)
            kernel.put(out, place, result)
    return out


def running_extreme(writer: Writer, node: Node, x: Array, dim: int) -> tuple[Array | None, ...]:
    """The largest or smallest element up to each, and the last place where it stands."""
    along, outs = axes(dim, len(x.shape)), writer.results(node)
    sign = ">=" if "max" in node.op else "<="
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line(f"{kind(x.dtype)} best = 0;")
        kernel.line("long long place = 0, count = 0;")
        with kernel.loops([x.shape[axis] for axis in along], "r") as inner:
            where = _spread(x.shape, along, index, inner)
            kernel.line(f"{kind(x.dtype)} v = {kernel.get(x, where)};")
            with kernel.braces(f"if (count == 0 || v {sign} best || v != v)"):
                kernel.line("best = v;")
                kernel.line("place = count;")
            kernel.line("count++;")
            for out, value in zip(outs, ("best", "place"), strict=True):
                if out:
                    kernel.put(out, where, value)
    return tuple(outs)


def ordered(writer: Writer, node: Node, x: Array, *args: Any) -> tuple[Array | None, ...]:
    """Sorting, stably, and the first of what is sorted: every element counts those that come before it."""
    name, overload = node.op.split(".")[1:]
    outs = writer.results(node)
    stable = overload == "stable"
    dim, descending = (args[1], args[2]) if name == "topk" or stable else (args[0], args[1])
    along = axes(dim, len(x.shape))
    sizes = x.shape
    before, after = ("v > w", "v < w") if descending else ("v < w", "v > w")
    with writer.kernel(node) as kernel, kernel.parallel(sizes) as index:
        axis = along[0] if sizes else 0
        own = index[axis] if index else "0"
        kernel.line(f"{kind(x.dtype)} w = {kernel.get(x, index)};")
        kernel.line("long long rank = 0;")
        with kernel.loops([sizes[axis]] if sizes else [], "r") as inner:
            place = [inner[0] if a == axis else i for a, i in enumerate(index)]
            at = inner[0] if inner else "0"
            kernel.line(f"{kind(x.dtype)} v = {kernel.get(x, place)};")
            number = ("v != v && w == w", "w != w && v == v")
            ahead, behind = number if descending else number[::-1]
            kernel.line(f"bool b = {before} || ({ahead}), c = {after} || ({behind});")
            kernel.line(f"rank += b || (!c && {at} < {own});")
        limit = kernel.size(args[0]) if name == "topk" else None
        to = ["rank" if a == axis else i for a, i in enumerate(index)]
        with kernel.braces(f"if (rank < {limit})" if limit else "if (true)"):
            for out, value in zip(outs, ("w", own), strict=True):
                if out:
                    kernel.put(out, to, value)
    return tuple(outs)


# --- sums of products, and windows ------------------------------------------------------------------------------------


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
    out, a, b = writer.result(node), writer.packed(a), writer.packed(b)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        kernel.line(f"{kind(out.dtype)} sum = 0;")
        lead = index[: max(len(a.shape), len(b.shape)) - 2]
        rest = index[len(lead) :]
        i = [rest[0]] if len(a.shape) > 1 else []
        j = [rest[-1]] if len(b.shape) > 1 else []
        with kernel.loop("r", a.shape[-1], adds_to="sum") as r:
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
    product_with_rows(writer, node, out, x, weight, bias)
    return out


def product_with_rows(writer: Writer, node: Node, out: Array, x: Array, weight: Array, bias: Any) -> None:
    """The same, written to an array."""
    x, weight = writer.packed(x), writer.packed(weight)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        kernel.line("ACC sum = 0;")
        with kernel.loop("r", x.shape[-1], adds_to="sum") as r:
            factors = kernel.get(x, [*index[:-1], r], "ACC"), kernel.get(weight, [index[-1], r], "ACC")
            kernel.line(f"sum += {factors[0]} * {factors[1]};")
        kernel.put(out, index, f"sum + {kernel.get(bias, index[-1:], 'ACC')}" if isinstance(bias, Array) else "sum")


def _each(value: Any, count: int) -> list[Any]:
    """An argument for every axis of a window."""
    values = value if isinstance(value, list) else [value]
    return values * count if len(values) == 1 else values


def convolution(
    writer: Writer, node: Node, x: Array, weight: Array, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: Any,
) -> Array:  # fmt: skip
    """Convolutions and transposed ones, over any number of axes."""
    out, rank, x = writer.result(node), len(x.shape) - 2, writer.packed(x)
    strides, pads, dilations = (_each(value, rank) for value in (stride, padding, dilation))
    groups = as_text(groups)
    each, own = shared(x.shape[1], groups), shared(out.shape[1], groups)
    if writer.target == "cpu" and not transposed:
        _convolved_rows(writer, node, out, x, weight, bias, (strides, pads, dilations), (groups, each, own))
        return out
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        n, c, *o = index
        kernel.line("ACC sum = 0;")
        with kernel.loops(weight.shape[2:], "k") as k, ExitStack() as inside:
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
            r = inside.enter_context(kernel.loop("r", each, adds_to="sum"))
            channel = r if groups == "1" else f"({c} / {kernel.size(own)} * {kernel.size(each)} + {r})"
            if transposed:
                filters = [channel, c if groups == "1" else f"({c} % {kernel.size(own)})", *k]
            else:
                filters = [c, r, *k]
            kernel.line(f"sum += {kernel.get(x, [n, channel, *places], 'ACC')} * {kernel.get(weight, filters, 'ACC')};")
        kernel.put(out, index, f"sum + {kernel.get(bias, [c], 'ACC')}" if isinstance(bias, Array) else "sum")
    return out


def _convolved_rows(
    writer: Writer, node: Node, out: Array, x: Array, weight: Array, bias: Any, along: Sequence[Sequence[Any]],
    channels: tuple[str, str, str],
) -> None:  # fmt: skip
    """A convolution on a CPU: a row of results at once, whose inputs lie beside each other."""
    (strides, pads, dilations), (groups, each, own) = along, channels
    with writer.kernel(node) as kernel, kernel.parallel(out.shape[:-1]) as index:
        (n, c, *o), width, last = index, kernel.size(out.shape[-1]), len(x.shape) - 3
        with kernel.braces(f"for (long long t = 0; t < {width}; t += {ROW})"):
            kernel.line(f"long long count = {width} - t < {ROW} ? {width} - t : {ROW};")
            kernel.line(f"ACC sums[{ROW}] = {{0}};")
            with kernel.loop("r", each) as r, kernel.loops(weight.shape[2:], "k") as k, ExitStack() as inside:
                places = []
                for axis in range(last + 1):
                    s, p, d = (kernel.size(v[axis]) for v in (strides, pads, dilations))
                    size = kernel.size(x.shape[2 + axis])
                    if axis < last:
                        kernel.line(f"long long p{axis} = {o[axis]} * {s} - {p} + {k[axis]} * {d};")
                        inside.enter_context(kernel.braces(f"if (p{axis} >= 0 && p{axis} < {size})"))
                        places.append(f"p{axis}")
                kernel.line(f"long long p{last} = t * {s} - {p} + {k[last]} * {d};")
                kernel.line(f"long long first = p{last} < 0 ? ({s} - 1 - p{last}) / {s} : 0;")
                kernel.line(f"long long end = p{last} < {size} ? ({size} - 1 - p{last}) / {s} + 1 : 0;")
                channel = r if groups == "1" else f"({c} / {kernel.size(own)} * {kernel.size(each)} + {r})"
                kernel.line(f"ACC factor = {kernel.get(weight, [c, r, *k], 'ACC')};")
                with kernel.braces("for (long long j = first; j < (end < count ? end : count); j++)"):
                    value = kernel.get(x, [n, channel, *places, f"(p{last} + j * {s})"], "ACC")
                    kernel.line(f"sums[j] += {value} * factor;")
            with kernel.braces("for (long long j = 0; j < count; j++)"):
                own_bias = f" + {kernel.get(bias, [c], 'ACC')}" if isinstance(bias, Array) else ""
                kernel.put(out, [*index, "(t + j)"], f"sums[j]{own_bias}")


def _window(
    kernel: LoopKernel, inside: ExitStack, x: Array, o: Sequence[str], sizes: Sequence[Any], strides: Sequence[Any],
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
    return _largest(
        writer, node, x, rank, lambda kernel, inside, o: _window(kernel, inside, x, o, sizes, strides, pads, dilations)
    )


def adaptive_max_pool(writer: Writer, node: Node, x: Array, _: Any) -> Any:
    """The same of windows that follow from the sizes of input and output."""
    rank = int(node.op.split("pool")[1][0])
    shape = writer.shape(node)
    return _largest(writer, node, x, rank, lambda kernel, inside, o: _shares(kernel, inside, x.shape, shape, o))


def _largest(writer: Writer, node: Node, x: Array, rank: int, window: Callable[..., list[str]]) -> Any:
    outs = writer.results(node)
    with writer.kernel(node) as kernel, kernel.parallel(writer.shape(node)) as index:
        lead, o = index[: len(index) - rank], index[len(index) - rank :]
        kernel.line("ACC best = -INFINITY;")
        kernel.line("long long place = -1;")
        with ExitStack() as inside:
            places = window(kernel, inside, o)
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
            places = _shares(kernel, inside, x.shape, out.shape, o)
            kernel.line(f"sum += {kernel.get(x, [*lead, *places], 'ACC')};")
            kernel.line("n += 1;")
        kernel.put(out, index, "sum / n")
    return out


def _shares(
    kernel: LoopKernel, inside: ExitStack, whole: Sequence[str], parts: Sequence[str], o: Sequence[str]
) -> list[str]:
    """Loops over the share that each result has of the last axes."""
    for axis, at in enumerate(o):
        count, length = (kernel.size(shape[len(shape) - len(o) + axis]) for shape in (parts, whole))
        start, end = f"({at} * {length} / {count})", f"((({at} + 1) * {length} + {count} - 1) / {count})"
        inside.enter_context(kernel.braces(f"for (long long p{axis} = {start}; p{axis} < {end}; p{axis}++)"))
    return [f"p{axis}" for axis in range(len(o))]


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


# --- factors and solutions, one matrix or one column after the other ---


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
    **{f"aten.{name}": reduction for name in (
        "sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "prod.default", "prod.dim_int", "any.default",
        "any.dim", "any.dims", "all.default", "all.dim", "all.dims",
    )},
    **{f"aten.{name}": extreme for name in (
        "amax.default", "amin.default", "max.default", "min.default", "max.dim", "min.dim", "argmax.default",
        "argmin.default",
    )},
    **{f"aten.{name}.correction": variance for name in ("var", "std", "var_mean", "std_mean")},
    **{f"aten.{name}.{overload}": variance for name in ("var", "std", "var_mean") for overload in ("default", "dim")},
    "aten.linalg_vector_norm.default": vector_norm, "aten._softmax.default": softmax,
    "aten._log_softmax.default": softmax, "aten.softmax.int": softmax,
    "aten.log_softmax.int": softmax, "aten.native_layer_norm.default": layer_norm,
    "aten.native_group_norm.default": group_norm, "aten.native_batch_norm.default": batch_norm,
    "aten._native_batch_norm_legit.no_stats": batch_norm,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    "aten._native_batch_norm_legit_functional.default": batch_norm,
    "aten.cumsum.default": scan, "aten.cumprod.default": scan, "aten.logcumsumexp.default": scan,
    "aten.cummax.default": running_extreme,
    "aten.cummin.default": running_extreme, "aten.sort.default": ordered, "aten.sort.stable": ordered,
    "aten.topk.default": ordered,
    **{f"aten.{name}.default": matmul for name in ("mm", "bmm", "matmul", "mv", "dot")},
    **{f"aten.{name}.default": added_product for name in ("addmm", "baddbmm", "addmv")},
    "aten.linear.default": linear, "aten.convolution.default": convolution,
    **{f"aten.max_pool{rank}d_with_indices.default": max_pool for rank in (2, 3)},
    **{f"aten.adaptive_max_pool{rank}d.default": adaptive_max_pool for rank in (2, 3)},
    **{f"aten.avg_pool{rank}d.default": avg_pool for rank in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d.default": adaptive_avg_pool for rank in (2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": adaptive_avg_pool for rank in (1, 2, 3)},
    **{f"aten.upsample_nearest{rank}d.{overload}": nearest for rank in (1, 2, 3) for overload in ("default", "vec")},
    **{f"aten.upsample_bilinear2d.{overload}": bilinear for overload in ("default", "vec")},
}  # fmt: skip
