"""Operators that move elements: views, which are index maps, and loops of those that gather, scatter, join and pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from operators.importing.graphs.graph import Node
from operators.importing.graphs.kernels import Array, LoopKernel, Writer, as_text, axes, cast, kind, stored, total

Index = list[str]


def _view(x: Array, shape: Sequence[str], place: Callable[[LoopKernel, Index], Index]) -> Array:
    """The array whose element at an index is x's at `place`."""
    return Array(tuple(shape), x.dtype, lambda kernel, index: x.read(kernel, kernel.placed(place(kernel, list(index)))))


def _in_order(writer: Writer, node: Node, x: Array, index: int = 0) -> Array:
    """The elements of x in their order, in another shape."""
    shape = writer.shape(node, index)
    if x.stored:
        return stored(x.stored, shape, x.dtype)

    def place(kernel: LoopKernel, index: Index) -> Index:
        text = kernel.offset(shape, index)
        found: Index = []
        after = ""
        for size in reversed(x.shape):
            if size == "1":
                found.insert(0, "0")
                continue
            through = f"(({text}) / ({after}))" if after else f"({text})"
            outermost = not any(other != "1" for other in x.shape[: len(x.shape) - len(found) - 1])
            found.insert(0, through if outermost else f"({through} % {kernel.size(size)})")
            after = f"{after} * {kernel.size(size)}" if after else kernel.size(size)
        return found

    return _view(x, shape, place)


def reshaped(writer: Writer, node: Node, x: Array, *_: Any) -> Array:
    """view, reshape, squeeze, unsqueeze, flatten."""
    return _in_order(writer, node, x)


def squeezed(writer: Writer, node: Node, x: Array, *_: Any) -> Array:
    """An axis of one element less or more, of anything."""
    if x.stored:
        return _in_order(writer, node, x)
    shape = writer.shape(node)
    if [size for size in shape if size != "1"] != [size for size in x.shape if size != "1"]:
        return _in_order(writer, node, x)

    def place(kernel: LoopKernel, index: Index) -> Index:
        left = [i for i, size in zip(index, shape, strict=True) if size != "1"]
        return ["0" if size == "1" else left.pop(0) for size in x.shape]

    return _view(x, shape, place)


def permuted(writer: Writer, node: Node, x: Array, *args: Any) -> Array:
    """Axes in another order."""
    rank = len(x.shape)
    order = list(range(rank))
    if "permute" in node.op:
        order = [d % rank for d in args[0]]
    elif rank > 1:
        one, other = (args[0] % rank, args[1] % rank) if "transpose" in node.op else (0, 1)
        order[one], order[other] = order[other], order[one]
    return _view(x, [x.shape[d] for d in order], lambda kernel, index: [index[order.index(d)] for d in range(rank)])


def expanded(writer: Writer, node: Node, x: Array, *_: Any) -> Array:
    """The same elements again and again."""

    def place(kernel: LoopKernel, index: Index) -> Index:
        own = index[len(index) - len(x.shape) :] if x.shape else []
        return ["0" if size == "1" else i for size, i in zip(x.shape, own, strict=True)]

    return _view(x, writer.shape(node), place)


def _begin(kernel: LoopKernel, start: Any, size: str) -> str:
    """A place on an axis that may be counted from its end."""
    text = kernel.size(start)
    if text.startswith("-"):
        return f"({kernel.size(size)} - {text[1:]})"
    if isinstance(start, dict) and "-" in start["expr"]:  # it may be one or the other at other sizes
        return _from_start(kernel, text, size)
    return text


def _shifted(x: Array, shape: Sequence[str], dim: int, start: Any, step: Any = 1) -> Array:
    def place(kernel: LoopKernel, index: Index) -> Index:
        at, begin, every = index[dim], _begin(kernel, start, x.shape[dim]), kernel.size(step)
        at = at if every == "1" else f"{at} * {every}"
        return [*index[:dim], at if begin == "0" else f"({begin} + {at})", *index[dim + 1 :]]

    return _view(x, shape, place)


def sliced(writer: Writer, node: Node, x: Array, dim: int = 0, start: Any = 0, end: Any = None, step: Any = 1) -> Array:
    """Part of an axis."""
    del end
    return _shifted(x, writer.shape(node), dim % len(x.shape), start or 0, step)


def selected(writer: Writer, node: Node, x: Array, dim: int, at: Any) -> Array:
    """One place of an axis."""
    dim %= len(x.shape)

    def place(kernel: LoopKernel, index: Index) -> Index:
        return [*index[:dim], _begin(kernel, at, x.shape[dim]), *index[dim:]]

    return _view(x, writer.shape(node), place)


def split(writer: Writer, node: Node, x: Array, sizes: Any, dim: int = 0) -> tuple[Array, ...]:
    """The parts of an axis."""
    dim %= len(x.shape)
    every = [as_text(sizes[n] if isinstance(sizes, list) else sizes) for n in range(len(node.outputs))]
    begins = [{"expr": total(every[:n])} for n in range(len(every))]
    return tuple(_shifted(x, writer.shape(node, n), dim, begin) for n, begin in enumerate(begins))


def unbound(writer: Writer, node: Node, x: Array, dim: int = 0) -> tuple[Array, ...]:
    """The places of an axis, each by itself."""
    axis = dim % len(x.shape)

    def part(number: int) -> Array:
        shape = writer.shape(node, number)
        return _view(x, shape, lambda _, index: [*index[:axis], str(number), *index[axis:]])

    return tuple(map(part, range(len(node.outputs))))


def flipped(writer: Writer, node: Node, x: Array, dims: Any) -> Array:
    """Axes from their ends."""
    along = axes(dims, len(x.shape))

    def place(kernel: LoopKernel, index: Index) -> Index:
        ends = [f"({kernel.size(size)} - 1 - {i})" for size, i in zip(x.shape, index, strict=True)]
        return [ends[a] if a in along else i for a, i in enumerate(index)]

    return _view(x, x.shape, place)


def rolled(writer: Writer, node: Node, x: Array, shifts: Any, dims: Any = None) -> Array:
    """Axes whose last elements come first."""
    if not dims:
        raise NotImplementedError("no loops are known for aten.roll without axes")
    moved = dict(zip((d % len(x.shape) for d in dims), shifts, strict=True))

    def place(kernel: LoopKernel, index: Index) -> Index:
        def turned(i: str, by: Any, size: str) -> str:
            return f"((({i} - {kernel.size(by)}) % {size} + {size}) % {size})"

        return [turned(i, moved[a], kernel.size(x.shape[a])) if a in moved else i for a, i in enumerate(index)]

    return _view(x, x.shape, place)


def repeated(writer: Writer, node: Node, x: Array, *_: Any) -> Array:
    """All elements, several times."""
    shape = writer.shape(node)

    def place(kernel: LoopKernel, index: Index) -> Index:
        own = index[len(index) - len(x.shape) :] if x.shape else []
        return ["0" if s == "1" else f"({i} % {kernel.size(s)})" for s, i in zip(x.shape, own, strict=True)]

    return _view(x, shape, place)


def diagonal(writer: Writer, node: Node, x: Array, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The elements of matrices whose row and column are alike."""
    rank = len(x.shape)
    one, other = dim1 % rank, dim2 % rank

    def place(kernel: LoopKernel, index: Index) -> Index:
        rest, at, by = index[:-1], index[-1], kernel.size(offset)
        row = f"({at} - {by})".replace("- -", "+ ") if by.startswith("-") else at
        column = at if by.startswith("-") or by == "0" else f"({at} + {by})"
        return [row if a == one else column if a == other else rest.pop(0) for a in range(rank)]

    return _view(x, writer.shape(node), place)


def unfolded(writer: Writer, node: Node, x: Array, dim: int, size: Any, step: Any) -> Array:
    """Windows along an axis, as one more axis."""
    dim %= max(len(x.shape), 1)

    def place(kernel: LoopKernel, index: Index) -> Index:
        at = f"({index[dim]} * {kernel.size(step)} + {index[-1]})"
        return [*index[:dim], at, *index[dim + 1 : -1]]

    return _view(x, writer.shape(node), place)


# --- numbers that no memory holds ---


def filled(writer: Writer, node: Node, *args: Any) -> Array:
    """One number everywhere."""
    name, dtype = node.op.split(".")[1], node.outputs[0].dtype
    value: Any = {
        "zeros": 0,
        "zeros_like": 0,
        "new_zeros": 0,
        "empty": 0,
        "empty_permuted": 0,
        "empty_strided": 0,
        "ones": 1,
        "ones_like": 1,
        "new_ones": 1,
    }.get(name)
    if value is None:
        value = args[0] if name == "scalar_tensor" else args[2] if name == "new_full" else args[1]

    def read(kernel: LoopKernel, index: Sequence[str]) -> str:
        return cast(kernel.number(value), dtype)

    return Array(writer.shape(node), dtype, read)


def counted(writer: Writer, node: Node, *args: Any) -> Array:
    """Numbers in equal steps."""
    overload, dtype = node.op.split(".")[-1], node.outputs[0].dtype
    start, step = {"default": (0, 1), "start": (args[0], 1)}.get(overload, (args[0], args[2] if len(args) > 2 else 1))

    def read(kernel: LoopKernel, index: Sequence[str]) -> str:
        return cast(f"{kernel.number(start)} + {index[0]} * {kernel.number(step)}", dtype)

    return Array(writer.shape(node), dtype, read)


def triangle(writer: Writer, node: Node, x: Array, by: Any = 0) -> Array:
    """A matrix with zeros on one side of a diagonal."""
    sign = ">=" if "triu" in node.op else "<="

    def read(kernel: LoopKernel, index: Sequence[str]) -> str:
        inside, nothing = f"{index[-1]} - {index[-2]} {sign} {kernel.size(by)}", cast("0", x.dtype)
        return f"({inside} ? {x.read(kernel, index)} : {nothing})"

    return Array(x.shape, x.dtype, read)


def padded(writer: Writer, node: Node, x: Array, pad: Sequence[Any], value: Any = 0) -> Array:
    """A tensor with more around it: one number, or its own elements again."""
    rank, shape, name = len(x.shape), writer.shape(node), node.op.split(".")[1]
    before = {rank - 1 - n // 2: pad[n] for n in range(0, len(pad), 2)}

    def place(kernel: LoopKernel, index: Index) -> tuple[Index, list[str]]:
        places, inside = list(index), []
        for axis, by in before.items():
            size, left = kernel.size(x.shape[axis]), kernel.size(by)
            at = f"({index[axis]} - {left})" if not left.startswith("-") else f"({index[axis]} + {left[1:]})"
            if name.startswith("reflection"):
                at = f"({at} < 0 ? -{at} : {at} >= {size} ? 2 * ({size} - 1) - {at} : {at})"
            elif name.startswith("replication"):
                at = f"({at} < 0 ? 0 : {at} >= {size} ? {size} - 1 : {at})"
            else:
                inside.append(f"{at} >= 0 && {at} < {size}")
            places[axis] = at
        return places, inside

    def read(kernel: LoopKernel, index: Sequence[str]) -> str:
        places, inside = place(kernel, list(index))
        element = x.read(kernel, places)
        return f"({' && '.join(inside)} ? {element} : {cast(kernel.number(value), x.dtype)})" if inside else element

    return _held(writer, node, Array(shape, x.dtype, read))


def _held(writer: Writer, node: Node, array: Array) -> Array:
    """The elements of an array, in memory: reading it costs no more than that."""
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        kernel.put(out, index, kernel.get(array, index))
    return out


# --- loops ---


def joined(writer: Writer, node: Node, parts: list[Array], dim: int = 0) -> Array:
    """Tensors one after the other along an axis, one launch each; those that were joined so before are one."""
    out = writer.result(node)
    parts = [part for part in parts if part.shape != ("0",)]
    dim %= len(out.shape)
    every, known = tuple(parts), writer.joined.setdefault(dim, [])
    before = [each for each in known if each[0] == every[: len(each[0])]]
    if before:  # as a dense block does with all of its layers' results
        those, held = max(before, key=lambda each: len(each[0]))
        parts = [held, *parts[len(those) :]]
    for number, part in enumerate(parts):
        begin = total([other.shape[dim] for other in parts[:number]])
        with writer.kernel(node) as kernel, kernel.parallel(part.shape) as index:
            at = index[dim] if begin == "0" else f"({kernel.size(begin)} + {index[dim]})"
            kernel.put(out, [*index[:dim], at, *index[dim + 1 :]], kernel.get(part, index, out.dtype))
    if every:
        known.append((every, out))
    return out


def stacked(writer: Writer, node: Node, parts: list[Array], dim: int = 0) -> Array:
    """Tensors along a new axis, one launch each."""
    out = writer.result(node)
    dim %= len(out.shape)
    for number, part in enumerate(parts):
        with writer.kernel(node) as kernel, kernel.parallel(part.shape) as index:
            kernel.put(out, [*index[:dim], str(number), *index[dim:]], kernel.get(part, index, out.dtype))
    return out


def _wrapped(kernel: LoopKernel, name: str, text: str, size: str) -> str:
    """A place that may be counted from the end."""
    kernel.line(f"long long {name} = {text};")
    kernel.line(f"if ({name} < 0) {name} += {kernel.size(size)};")
    return name


def indexed(writer: Writer, node: Node, x: Array, indices: list[Any]) -> Array:
    """Elements at places that tensors tell, where some axes stay whole."""
    out = writer.result(node)
    told = [axis for axis, each in enumerate(indices) if isinstance(each, Array)]
    if any(indices[axis].dtype == "bool" for axis in told):
        raise NotImplementedError("no loops are known for aten.index with a mask, whose result has a size of its own")
    depth = max(len(indices[axis].shape) for axis in told)
    together = told == list(range(told[0], told[0] + len(told)))
    front = told[0] if together else 0
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as index:
        common, rest = index[front : front + depth], [*index[:front], *index[front + depth :]]
        places = [
            _wrapped(kernel, f"p{axis}", kernel.broadcast(indices[axis], common), x.shape[axis])
            if axis in told
            else rest.pop(0)
            for axis in range(len(x.shape))
        ]
        kernel.put(out, index, kernel.get(x, places))
    return out


def index_put(
    writer: Writer, node: Node, x: Array, indices: list[Any], values: Array, accumulate: bool = False
) -> Array:
    """A copy, and then values at places that tensors tell, where some axes stay whole."""
    told = [axis for axis, each in enumerate(indices) if isinstance(each, Array)]
    if any(indices[axis].dtype == "bool" for axis in told):
        raise NotImplementedError(
            "no loops are known for aten.index_put with a mask, and a value for each of its places"
        )
    shape = _stretched([indices[axis].shape for axis in told])
    front = told[0] if told == list(range(told[0], told[0] + len(told))) else 0
    whole = [size for axis, size in enumerate(x.shape) if axis not in told]
    out = _held(writer, node, x)
    with writer.kernel(node) as kernel, kernel.parallel([*whole, "1"]) as index, kernel.loops(shape, "r") as inner:
        rest = index[:-1]  # the loops are in order, since places may repeat
        value = kernel.broadcast(values, [*rest[:front], *inner, *rest[front:]], out.dtype)
        places = [
            _wrapped(kernel, f"p{axis}", kernel.broadcast(indices[axis], inner), x.shape[axis])
            if axis in told
            else rest.pop(0)
            for axis in range(len(x.shape))
        ]
        _combined(kernel, out, places, value, "sum" if accumulate else "")
    return out


def _stretched(shapes: Sequence[Sequence[str]]) -> list[str]:
    """The shape that all of these are stretched to."""
    depth = max(map(len, shapes))
    aligned = [["1"] * (depth - len(shape)) + list(shape) for shape in shapes]
    return [next((size for size in sizes if size != "1"), "1") for sizes in zip(*aligned, strict=True)]


COMBINED = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "amax": "({1} > {0} || {1} != {1} ? {1} : {0})",
    "amin": "({1} < {0} || {1} != {1} ? {1} : {0})", "add": "{0} + {1}", "multiply": "{0} * {1}",
}  # fmt: skip
"""Texts that make one number of what is at a place, 0, and of what comes there, 1; by the name of the reduction."""


def _combined(kernel: LoopKernel, out: Array, place: Sequence[str], value: str, how: str) -> None:
    """Store a value at a place, or what it makes of the one that is there."""
    if how:
        kernel.written[out.stored] = ""
        kernel.line(f"{kind(out.dtype)} v = {value};")
        value = COMBINED[how].format(kernel.get(out, place), "v")
    kernel.put(out, place, value)


def index_select(writer: Writer, node: Node, x: Array, dim: int, index: Array) -> Array:
    """Some places of an axis."""
    out = writer.result(node)
    dim %= len(x.shape)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as i:
        at = _wrapped(kernel, "at0", kernel.get(index, [i[dim]] if index.shape else []), x.shape[dim])
        kernel.put(out, i, kernel.get(x, [*i[:dim], at, *i[dim + 1 :]]))
    return out


def embedding(writer: Writer, node: Node, weight: Array, index: Array, *_: Any) -> Array:
    """Rows of a table."""
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as i:
        kernel.put(out, i, kernel.get(weight, [kernel.get(index, i[:-1]), i[-1]]))
    return out


def gathered(writer: Writer, node: Node, x: Array, dim: int, index: Array, *_: Any) -> Array:
    """Along one axis the element that an index of the same shape tells."""
    out = writer.result(node)
    with writer.kernel(node) as kernel, kernel.parallel(out.shape) as i:
        at = _wrapped(kernel, "at0", kernel.get(index, i), x.shape[dim % max(len(x.shape), 1)] if x.shape else "1")
        kernel.put(out, i, kernel.get(x, [at if a == dim % len(x.shape) else each for a, each in enumerate(i)]))
    return out


def scattered(writer: Writer, node: Node, x: Array, dim: int, index: Array, source: Any, *rest: Any) -> Array:
    """A copy, and then values along one axis at places that an index tells, in order."""
    how = next((each for each in rest if isinstance(each, str)), "sum" if "scatter_add" in node.op else "")
    if how and how not in COMBINED:
        raise NotImplementedError(f"no loops are known for {node.op} with {how}")
    out = _held(writer, node, x)
    replaces = False in rest  # what is at a place counts only where nothing comes there
    dim %= len(x.shape)
    others = ["1" if a == dim else size for a, size in enumerate(index.shape)]
    with writer.kernel(node) as kernel, kernel.parallel(others) as i, kernel.loop("r", index.shape[dim]) as r:
        place = [r if a == dim else each for a, each in enumerate(i)]
        at = _wrapped(kernel, "p", kernel.get(index, place), x.shape[dim])
        to = [at if a == dim else each for a, each in enumerate(place)]
        if isinstance(source, Array):
            value = kernel.get(source, place, out.dtype)
        else:
            value = cast(kernel.number(source), out.dtype)
        if replaces:
            kernel.line("bool first = true;")
            with kernel.braces(f"for (long long b = 0; b < {r}; b++)"):
                other = kernel.get(index, ["b" if a == dim else each for a, each in enumerate(place)])
                kernel.line(f"if ({_from_start(kernel, other, x.shape[dim])} == {at}) first = false;")
            with kernel.braces("if (first)"):
                kernel.put(out, to, value)
            with kernel.braces("if (!first)"):
                _combined(kernel, out, to, value, how)
        else:
            _combined(kernel, out, to, value, how)
    return out


def _from_start(kernel: LoopKernel, place: str, size: str) -> str:
    """A place that may be counted from the end, as an expression."""
    return f"({place} < 0 ? {place} + {kernel.size(size)} : {place})"


def placed(writer: Writer, node: Node, x: Array, source: Array, dim: int = 0, start: Any = 0, *rest: Any) -> Array:
    """A copy, and then another tensor in part of it."""
    out = _held(writer, node, x)
    dim %= len(x.shape)
    step = rest[1] if len(rest) > 1 else 1
    with writer.kernel(node) as kernel, kernel.parallel(source.shape) as i:
        begin = _begin(kernel, start or 0, x.shape[dim])
        if "select" in node.op:
            to = [*i[:dim], begin, *i[dim:]]
        else:
            to = [*i[:dim], f"({begin} + {i[dim]} * {kernel.size(step)})", *i[dim + 1 :]]
        kernel.put(out, to, kernel.get(source, i, out.dtype))
    return out


def same(writer: Writer, node: Node, x: Array, *_: Any) -> Array:
    """Nothing to do."""
    return x


ENTRIES: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}": reshaped for name in (
        "view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints", "unflatten.int",
        "_reshape_copy.default", "view_copy.default",
    )},
    **{f"aten.{name}": squeezed for name in (
        "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "squeeze_copy.dims",
        "unsqueeze_copy.default",
    )},
    **{f"aten.{name}": permuted for name in (
        "permute.default", "permute_copy.default", "transpose.int", "t.default", "numpy_T.default",
    )},
    "aten.expand.default": expanded, "aten.expand_copy.default": expanded, "aten.slice.Tensor": sliced,
    "aten.slice_copy.Tensor": sliced, "aten.select.int": selected, "aten.select_copy.int": selected,
    "aten.split.Tensor": split, "aten.split_with_sizes.default": split, "aten.split_with_sizes_copy.default": split,
    "aten.unbind.int": unbound, "aten.flip.default": flipped, "aten.roll.default": rolled,
    "aten.repeat.default": repeated, "aten.diagonal.default": diagonal, "aten.diagonal_copy.default": diagonal,
    "aten.unfold.default": unfolded,
    **{f"aten.{name}.default": filled for name in (
        "full", "full_like", "zeros_like", "ones_like", "zeros", "ones", "scalar_tensor", "new_full", "new_zeros",
        "new_ones",
    )},
    **{f"aten.{name}": filled for name in ("empty.memory_format", "empty_permuted.default", "empty_strided.default")},
     "aten.arange.default": counted, "aten.arange.start": counted,
    "aten.arange.start_step": counted, "aten.tril.default": triangle, "aten.triu.default": triangle,
    "aten.constant_pad_nd.default": padded,
    **{f"aten.{name}_pad{rank}d.default": padded for name in ("reflection", "replication") for rank in (1, 2, 3)},
    "aten.cat.default": joined, "aten.stack.default": stacked, "aten.index.Tensor": indexed,
    "aten._unsafe_index.Tensor": indexed, "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put, "aten.index_select.default": index_select,
    "aten.embedding.default": embedding, "aten.gather.default": gathered, "aten.scatter.src": scattered,
    "aten.scatter.value": scattered, "aten.scatter_add.default": scattered, "aten.scatter_reduce.two": scattered,
    "aten.scatter.reduce": scattered, "aten.scatter.value_reduce": scattered, "aten.slice_scatter.default": placed,
    "aten.select_scatter.default": placed,
    **{f"aten.{name}.default": same for name in ("alias", "detach", "lift_fresh_copy", "alias_copy", "detach_copy")},
}  # fmt: skip
