"""Loops of operators that go along axes: reductions, softmax, norms, cumulative operators, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from operators.importing.graph import Node
from operators.importing.kernels import Array, Kernel, Writer, as_text, axes, cast, kind, product, shared


def _spread(shape: Sequence[str], along: Sequence[int], kept: Sequence[str], inner: Sequence[str]) -> list[str]:
    """The index of an element, from indices of the axes that are left and of those that are gone along."""
    left, gone = iter(kept), iter(inner)
    return [next(gone) if axis in along else next(left) for axis in range(len(shape))]


def _outer(shape: Sequence[str], along: Sequence[int]) -> list[str]:
    return [size for axis, size in enumerate(shape) if axis not in along]


def _put(kernel: Kernel, out: Array, outer: Sequence[str], along: Sequence[int], value: str) -> None:
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
    elif order in (math.inf, 0):
        step, end = ("if (v > sum || v != v) sum = v;" if order else "sum += v != 0;"), "sum"
    elif order == -math.inf:
        raise NotImplementedError("no loops are known for aten.linalg_vector_norm of order -inf")
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line("ACC sum = 0;")
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


def _moments(kernel: Kernel, x: Array, sizes: Sequence[str], where: Any) -> None:
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
    kernel: Kernel, sizes: Sequence[str], total: str, dtype: str = "ACC", *, whole: bool = False
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


def _affine(kernel: Kernel, value: str, weight: Any, bias: Any, index: Sequence[str]) -> str:
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

SCANS = {"cumsum": ("0", "sum += v;"), "cumprod": ("1", "sum *= v;")}


def scan(writer: Writer, node: Node, x: Array, dim: int, *_: Any) -> Array:
    """Sums or products of all elements up to each."""
    along, out = axes(dim, len(x.shape)), writer.result(node)
    start, step = SCANS[node.op.split(".")[1]]
    with writer.kernel(node) as kernel, kernel.parallel(_outer(x.shape, along)) as index:
        kernel.line(f"{kind(out.dtype)} sum = {start};")
        with kernel.loops([x.shape[axis] for axis in along], "r") as inner:
            place = _spread(x.shape, along, index, inner)
            kernel.line(f"{kind(out.dtype)} v = {kernel.get(x, place, out.dtype)};")
            kernel.line(step)
            kernel.put(out, place, "sum")
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


ENTRIES: dict[str, Callable[..., Any]] = {
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
    "aten.cumsum.default": scan, "aten.cumprod.default": scan, "aten.cummax.default": running_extreme,
    "aten.cummin.default": running_extreme, "aten.sort.default": ordered, "aten.sort.stable": ordered,
    "aten.topk.default": ordered,
}  # fmt: skip
