"""Writes the first kernel of a graph: a kernel file of plain loops, one launch for each operator, scratch between.

An operator's entry in `operators.importing.graphs` says what its loops are; here is what all of them are made of. Views
move no element: they are `Array`s that look elsewhere. A loop nest is the same for both targets but for its outermost
loops, which are threads on cuda.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from operators.dtypes import ACCUMULATOR
from operators.importing.graphs.graph import Graph, Node, schema_of

BLOCK = 256
"""Threads of a block on cuda."""
LEAST_REPEATS, LONGEST_PERIOD = 8, 64
"""Repeats of launches that become a group, and the most launches of one."""
CPP_TYPES = {
    "T": "T", "ACC": "ACC", "fp64": "double", "fp32": "float", "int64": "long long", "int32": "int",
    "int8": "signed char", "uint8": "unsigned char", "bool": "unsigned char",
}  # fmt: skip
LEAST_PASSED = 16
"""Larger numbers are passed, for one function to serve layers of all widths."""
LONGEST_PLACE = 60
"""Characters of a place that is written where it is used: that of a view of views grows with each of them."""
_LOCAL = re.compile(
    r"[abcdhijknpqrstvw]\d*|at\d*|from\d*|to\d*|best|count|extent\d+|largest|mean|part|place\d*|rank|root|squares|sum"
)
"""Names that loop nests use for themselves."""


def is_float(dtype: str) -> bool:
    """Whether values of the type are rounded."""
    return dtype in ("T", "ACC") or dtype in ACCUMULATOR


def kind(dtype: str) -> str:
    """The C++ type that values of a type are computed in."""
    return "ACC" if is_float(dtype) else "bool" if dtype == "bool" else "long long"


@dataclass(frozen=True)
class Array:
    """A tensor as kernels see it: in memory, or a view of one, or computed from indices alone."""

    shape: tuple[str, ...]
    """Expressions over dims."""
    dtype: str
    read: Callable[[LoopKernel, Sequence[str]], str]
    """The element at these indices, a C++ expression of type `kind(dtype)`."""
    stored: str = ""
    """The tensor or buffer that holds these elements in this order; empty for others."""

    @property
    def is_float(self) -> bool:
        """Whether its values are rounded."""
        return is_float(self.dtype)


def stored(name: str, shape: Sequence[str], dtype: str) -> Array:
    """The array that a tensor or a buffer holds."""
    shape = tuple(shape)

    def read(kernel: LoopKernel, index: Sequence[str]) -> str:
        element = f"{kernel.pointer(name, dtype)}[{kernel.offset(shape, index)}]"
        return f"load({element})" if dtype == "T" else cast(element, dtype)

    return Array(shape, dtype, read, name)


def shared(size: str, groups: str) -> str:
    """A group's part of a size; both are expressions over dims."""
    if groups == "1":
        return size
    if groups == size:
        return "1"
    return str(int(size) // int(groups)) if (size + groups).isdigit() else f"({size}) // ({groups})"


def cast(text: str, dtype: str) -> str:
    """A number as the C++ type that values of a type are computed in."""
    return text if text.startswith("ACC(") and is_float(dtype) else f"({kind(dtype)})({text})"


def product(texts: Sequence[str]) -> str:
    """The product of sizes, as an expression."""
    kept = [text for text in texts if text != "1"]
    return " * ".join(text if re.fullmatch(r"\w+", text) else f"({text})" for text in kept) or "1"


def total(texts: Sequence[str]) -> str:
    """The sum of sizes, as an expression."""
    counts = Counter(text for text in texts if not text.isdigit())
    named = [product([str(count), text]) for text, count in counts.items()]
    number = sum(int(text) for text in texts if text.isdigit())
    return " + ".join([*named, *([str(number)] if number or not named else [])])


@dataclass
class LoopKernel:
    """One launch under construction."""

    name: str
    target: str
    graph: Graph
    pointers: dict[str, str] = field(default_factory=dict)
    """Type by name, of what is only read."""
    written: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    """Parameter by expression."""
    scalars: dict[str, str] = field(default_factory=dict)
    """Type by name."""
    constants: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    along: dict[str, str] = field(default_factory=dict)
    """Size by name of the loops inside the outermost ones."""
    total: str = ""
    """The number of threads on cuda, an expression."""
    places: list[dict[str, str]] = field(default_factory=lambda: [{}])
    """Variable by place, for each of the braces that are open."""
    place_count: int = 0

    # --- names ---

    def pointer(self, name: str, dtype: str) -> str:
        """The parameter through which a tensor or buffer is read."""
        constant = next((c for c in self.graph.constants if c.name == name), None)
        if constant:
            values = ", ".join(map(literal, constant.values))
            space = "__device__ " if self.target == "cuda" else "static "
            element = "ACC" if is_float(dtype) else CPP_TYPES[dtype]
            self.constants[name] = f"{space}const {element} constant_{name}[] = {{{values}}};"
            return f"constant_{name}"
        if name not in self.written:
            self.pointers[name] = CPP_TYPES[dtype]
        return self.parameter(name)

    @staticmethod
    def parameter(name: str) -> str:
        """A name that no loop nest uses for itself."""
        return f"{name}_" if _LOCAL.fullmatch(name) else name

    def size(self, value: Any) -> str:
        """An integer over dims as C++: a small number, or the parameter that is passed for it."""
        text = as_text(value)
        if re.fullmatch(r"-?\d+", text) and int(text) < LEAST_PASSED:
            return text
        if text.isidentifier():
            return self.numbers.setdefault(text, self.parameter(text))
        return self.numbers.setdefault(text, f"extent{len(self.numbers)}")

    def passed(self, value: int) -> str:
        """A number that is passed however small it is."""
        return self.numbers.setdefault(str(value), f"extent{len(self.numbers)}")

    def number(self, value: Any) -> str:
        """A number of an operator's arguments as C++."""
        match value:
            case {"ref": str(name)}:
                dtype = next(scalar.dtype for scalar in self.graph.scalars if scalar.name == name)
                self.scalars[name] = kind(dtype)
                return self.parameter(name)
            case {"expr": text}:
                return self.size(text)
            case {"calc": name, "args": inner}:
                numbers = [f"ACC({self.number(each)})" for each in inner]
                sign = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}.get(name)
                if sign:
                    return f"({sign.join(numbers)})"
                if name in ("neg", "float"):
                    return f"({'-' if name == 'neg' else ''}{numbers[0]})"
                function = {"floordiv": "floor", "min": "fmin", "max": "fmax"}.get(name, name)
                return f"{function}({' / '.join(numbers) if name == 'floordiv' else ', '.join(numbers)})"
        return literal(value)

    # --- elements ---

    def offset(self, shape: Sequence[str], index: Sequence[str]) -> str:
        """The place of an element in row-major memory."""
        text = ""
        for size, i in zip(shape, index, strict=True):
            if size == "1":
                continue
            own = i if re.fullmatch(r"\w+", i) else f"({i})"
            before = text if re.fullmatch(r"\w+", text) else f"({text})"
            text = f"{before} * {self.size(size)} + {own}" if text and text != "0" else own
        return text or "0"

    def placed(self, index: Sequence[str]) -> list[str]:
        """The places in the axes of what a view looks at; a long one gets a variable, but if it is read from memory,
        which may be behind a condition."""
        return [self._place(text) if len(text) > LONGEST_PLACE and "[" not in text else text for text in index]

    def _place(self, text: str) -> str:
        known = next((names[text] for names in self.places if text in names), None)
        if known is None:
            self.place_count += 1
            known = self.places[-1][text] = f"place{self.place_count}"
            self.line(f"long long {known} = {text};")
        return known

    def get(self, array: Array, index: Sequence[str], to: str = "") -> str:
        """An element as C++; `to`: the dtype whose kind it takes."""
        text = array.read(self, index)
        if to and kind(to) != kind(array.dtype):
            return f"(({text}) != 0)" if kind(to) == "bool" else cast(text, to)
        return text

    def broadcast(self, array: Array, index: Sequence[str], to: str = "") -> str:
        """An element of what is stretched to the shape that `index` runs over."""
        own = index[len(index) - len(array.shape) :] if array.shape else ()
        return self.get(array, ["0" if size == "1" else i for size, i in zip(array.shape, own, strict=True)], to)

    def put(self, array: Array, index: Sequence[str], value: str) -> None:
        """Store an element of an output."""
        self.pointers.pop(array.stored, None)
        self.written[array.stored] = CPP_TYPES[array.dtype]
        place = f"{self.parameter(array.stored)}[{self.offset(array.shape, index)}]"
        self.line(f"{place} = store({value});" if array.dtype == "T" else f"{place} = {value};")

    # --- statements ---

    def line(self, text: str) -> None:
        """One statement."""
        self.lines.append("    " * len(self.places) + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A statement with a body."""
        self.line(f"{head} {{")
        self.places.append({})
        yield
        self.places.pop()
        self.line("}")

    @contextmanager
    def loop(self, name: str, size: Any, start: str = "0", adds_to: str = "") -> Iterator[str]:
        """A loop over an axis; one that only adds to a variable may do so in any order, for several at a time."""
        if name[0] in "rk":
            self.along[name] = as_text(size)
        if size == "1" and start == "0":
            yield "0"
            return
        if adds_to and self.target == "cpu":
            self.line(f"#pragma omp simd reduction(+:{adds_to})")
        with self.braces(f"for (long long {name} = {start}; {name} < {self.size(size)}; {name}++)"):
            yield name

    @contextmanager
    def loops(self, sizes: Sequence[str], prefix: str) -> Iterator[list[str]]:
        """Loops over several axes, the last one innermost."""
        if not sizes:
            yield []
            return
        with self.loops(sizes[:-1], prefix) as outer, self.loop(f"{prefix}{len(sizes) - 1}", sizes[-1]) as inner:
            yield [*outer, inner]

    @contextmanager
    def parallel(self, sizes: Sequence[str]) -> Iterator[list[str]]:
        """The outermost loops, whose turns do not depend on each other: threads on cuda."""
        if self.target == "cpu":
            with self.loops(sizes, "i") as index:
                yield index
            return
        self.total = product(sizes)
        self.line("long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;")
        self.line(f"if (at >= {self.size(self.total)}) return;")
        index = []
        for axis in reversed(range(len(sizes))):
            if sizes[axis] == "1":
                index.insert(0, "0")
                continue
            self.line(f"long long i{axis} = at % {self.size(sizes[axis])};")
            self.line(f"at /= {self.size(sizes[axis])};")
            index.insert(0, f"i{axis}")
        yield index

    @contextmanager
    def blocks(self, size: str) -> Iterator[str]:
        """An outermost loop each turn of which is a block on cuda, whose `threads` share what is inside."""
        if self.target == "cpu":
            with self.loop("i0", size) as index:
                yield index
            return
        self.total = product([size, str(BLOCK)])
        self.line("long long i0 = blockIdx.x;")
        yield "i0"

    @contextmanager
    def threads(self, name: str, size: str) -> Iterator[str]:
        """A loop whose turns do not depend on each other, inside one of blocks."""
        start, step = ("threadIdx.x", " += blockDim.x") if self.target == "cuda" else ("0", "++")
        with self.braces(f"for (long long {name} = {start}; {name} < {self.size(size)}; {name}{step})"):
            yield name

    def barrier(self) -> None:
        """Let a block's threads see what all of them have written."""
        if self.target == "cuda":
            self.line("__syncthreads();")

    # --- text ---

    def form(self) -> str:
        """The function but for names: kernels of one form differ in nothing but what is passed."""
        parameters = [*map(self.parameter, (*self.pointers, *self.written, *self.scalars)), *self.numbers.values()]
        places = {name: f"argument {place}" for place, name in enumerate(parameters)}
        return re.sub(r"[A-Za-z_]\w*", lambda word: places.get(word[0], word[0]), self.text().replace(self.name, "", 1))

    def text(self) -> str:
        """The function."""
        head = 'extern "C" __global__ void' if self.target == "cuda" else 'extern "C" void'
        reads = [f"const {t}* {self.parameter(n)}" for n, t in self.pointers.items()]
        writes = [f"{t}* {self.parameter(n)}" for n, t in self.written.items()]
        values = [f"{t} {self.parameter(n)}" for n, t in self.scalars.items()]
        sizes = [f"long long {n}" for n in self.numbers.values()]
        constants = "".join(f"{line}\n" for line in self.constants.values())
        parameters = ", ".join((*reads, *writes, *values, *sizes))
        return "\n".join((f"{constants}{head} {self.name}({parameters}) {{", *self.lines, "}"))

    def launch(self, names: dict[str, str], function: str) -> str:
        """The `[[launch]]` table of a function; `names`: what scratch is called in the plan."""
        args = [names.get(n, n) for n in (*self.pointers, *self.written)] + [*self.scalars, *self.numbers]
        lines = ["[[launch]]", f'kernel = "{function}"']
        if self.target == "cuda":
            lines += [f'grid = ["ceil_div({self.total or 1}, {BLOCK})"]', f"block = [{BLOCK}]"]
        return "\n".join((*lines, f"args = {json.dumps(args)}"))


def as_text(value: Any) -> str:
    """An integer argument as an expression over dims."""
    return str(value["expr"] if isinstance(value, dict) else value).strip()


def literal(value: float | bool) -> str:
    """A number as C++."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"{value}LL" if abs(value) >= 2**31 else str(value)
    if math.isnan(value):
        return "ACC(INFINITY - INFINITY)"
    if math.isinf(value):
        return "ACC(INFINITY)" if value > 0 else "ACC(-INFINITY)"
    return f"ACC({value!r})"


# --- a whole file -----------------------------------------------------------------------------------------------------


ORDERS = re.compile(r"aten\.((arg|a|cum)?(max|min)|sort|topk|max_pool\w+)\.\w+")
"""Operators whose loops compare numbers, and add none."""


@dataclass(frozen=True)
class Generated:
    """A kernel file, and what it lacks."""

    source: str
    missing: tuple[str, ...]
    """One line for each function whose body is left to write."""
    terms: str
    """The number of terms of the longest sum, an expression over dims: `terms` of operator.toml."""


def generate(graph: Graph, target: str) -> Generated:
    """The first kernel of a graph whose inputs, scalars and outputs are called as the operator calls them."""
    return Writer(graph, target).generated()


class Writer:
    """The generation of one file."""

    def __init__(self, graph: Graph, target: str) -> None:
        self.graph = graph
        self.target = target
        self.kernels: list[LoopKernel] = []
        self.scratch: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Type and shape by name."""
        self.missing: list[str] = []
        self.unwritten: list[str] = []
        """Names of functions without a body."""
        self.joined: dict[int, list[tuple[tuple[Array, ...], Array]]] = {}
        """Arrays that were joined, and the result, by axis."""
        self.arrays: dict[tuple[str, int], Array] = {}
        self.direct: dict[tuple[str, int], str] = {}
        for out in graph.outputs:
            self.direct.setdefault((out.ref, out.index), out.name)
        for tensor in (*graph.inputs, *graph.constants):
            self.arrays[tensor.name, 0] = stored(tensor.name, list(map(as_text, tensor.shape)), tensor.dtype)
        used = [ref for node in graph.nodes for ref in _references([*node.args, *node.kwargs.values()])]
        self.used = {*used, *self.direct}

    def generated(self) -> Generated:
        """The file."""
        from operators.importing.graphs import OPERATORS

        for node in self.graph.nodes:
            if not any((node.name, index) in self.used for index in range(len(node.outputs))):
                continue
            lower = OPERATORS.get(node.op)
            try:
                if lower is None:
                    raise NotImplementedError(f"no loops are known for {node.op}")
                made = lower(self, node, *self.arguments(node))
            except NotImplementedError as error:
                made = self._left(node, str(error))
            for index, array in enumerate(made if isinstance(made, tuple | list) else (made,)):
                if array is not None:
                    self.arrays[node.name, index] = array
        for out in self.graph.outputs:
            if self.arrays[out.ref, out.index].stored != out.name:
                self._copied(self.arrays[out.ref, out.index], out.name)
        return Generated(self._text(), tuple(self.missing), self._terms())

    def arguments(self, node: Node) -> list[Any]:
        """All arguments in the order of the operator's schema; arrays in place of references to tensors."""
        values: list[Any] = []
        for position, parameter in enumerate(schema_of(node.op).arguments):
            if position < len(node.args) and not parameter.kwarg_only:
                raw = node.args[position]
            else:
                raw = node.kwargs.get(parameter.name, parameter.default_value)
            values.append(self._argument(raw))
        return values

    def _argument(self, raw: Any) -> Any:
        if isinstance(raw, dict) and (raw.get("ref"), raw.get("index", 0)) in self.arrays:
            return self.arrays[raw["ref"], raw.get("index", 0)]
        if raw in ({"calc": "float", "args": ["inf"]}, {"calc": "float", "args": ["-inf"]}):  # JSON has no such number
            return float(raw["args"][0])
        return [self._argument(each) for each in raw] if isinstance(raw, list) else raw

    @contextmanager
    def kernel(self, node: Node) -> Iterator[LoopKernel]:
        """One launch."""
        kernel = LoopKernel(f"step{len(self.kernels) + 1}_{node.op.split('.')[1].strip('_')}", self.target, self.graph)
        yield kernel
        if ORDERS.fullmatch(node.op) or not {"T", "ACC", "float", "double"} & {*kernel.written.values()}:
            kernel.along.clear()  # it adds no numbers that are rounded
        self.kernels.append(kernel)

    def shape(self, node: Node, index: int = 0) -> tuple[str, ...]:
        """The shape of a node's output."""
        return tuple(map(as_text, node.outputs[index].shape))

    def result(self, node: Node, index: int = 0) -> Array:
        """Memory for a node's output: the operator's own, or scratch."""
        shape, dtype = self.shape(node, index), node.outputs[index].dtype
        name = self.direct.get((node.name, index))
        if name is None:
            name = self.buffer(dtype, shape)
        return stored(name, shape, dtype)

    def results(self, node: Node) -> list[Array | None]:
        """The same for all outputs; None for one that nothing uses."""
        indices = range(len(node.outputs))
        return [self.result(node, i) if (node.name, i) in self.used else None for i in indices]

    def buffer(self, dtype: str, shape: tuple[str, ...]) -> str:
        """New scratch."""
        name = f"scratch{len(self.scratch) + 1}"
        self.scratch[name] = "uint8" if dtype == "bool" else dtype, shape
        return name

    def _left(self, node: Node, reason: str) -> list[Array | None]:
        """A function without a body, which its user is to write."""
        outputs = self.results(node)
        with self.kernel(node) as kernel:
            for array in self.arguments(node):
                for each in array if isinstance(array, list) else [array]:
                    if isinstance(each, Array):
                        kernel.get(each, ["0"] * len(each.shape))
            kernel.total = product(self.shape(node))
            kernel.line(f"// {kernel.name} is left to write: {reason}.")  # by its name, so that none is like it
            for output in filter(None, outputs):
                kernel.written[output.stored] = CPP_TYPES[output.dtype]
        self.unwritten.append(kernel.name)
        self.missing.append(f"{kernel.name}() of naive.{'cu' if self.target == 'cuda' else 'cpp'}: {reason}")
        return outputs

    def packed(self, array: Array) -> Array:
        """The array; a copy where its places in memory take divisions, as those of a view of views, for what reads each
        element many times."""
        probe = LoopKernel("probe", self.target, self.graph)
        text = array.read(probe, [f"i{axis}" for axis in range(len(array.shape))])
        if array.stored or not re.search(r" [/%] ", "".join((text, *probe.lines))):
            return array
        name = self.buffer(array.dtype, array.shape)
        self._copied(array, name)
        return stored(name, array.shape, array.dtype)

    def _copied(self, array: Array, name: str) -> None:
        copy = Node(name=name, op="aten.clone.default", args=[], outputs=[])
        with self.kernel(copy) as kernel, kernel.parallel(array.shape) as index:
            kernel.put(stored(name, array.shape, array.dtype), index, kernel.get(array, index))

    def _text(self) -> str:
        names, buffers = self._shared()
        tables = [f'[[buffer]]\nname = "{n}"\ndtype = "{d}"\nshape = {json.dumps(s or ["1"])}' for n, d, s in buffers]
        functions: dict[str, LoopKernel] = {}
        served = [functions.setdefault(kernel.form(), kernel).name for kernel in self.kernels]
        launches = [kernel.launch(names, name) for kernel, name in zip(self.kernels, served, strict=True)]
        texts = [kernel.text() for kernel in functions.values()]
        head = f"/*! evo\nunwritten = {json.dumps(self.unwritten)}" if self.unwritten else "/*! evo"
        return "\n\n".join(("\n\n".join((head, *tables, *folded(launches))) + "\n*/", *texts)) + "\n"

    def _terms(self) -> str:
        found = {product(list(kernel.along.values())) for kernel in self.kernels}
        numbers = [math.prod(map(int, text.split(" * "))) for text in found if re.fullmatch(r"[\d *]+", text)]
        every = sorted(text for text in found if not re.fullmatch(r"[\d *]+", text))
        every += [str(max(numbers, default=1))] if max(numbers, default=1) > 1 or not every else []
        return f"max({', '.join(every)})" if len(every) > 1 else every[0]

    def _shared(self) -> tuple[dict[str, str], list[tuple[str, str, tuple[str, ...]]]]:
        """Names of scratch in the plan: two of one type and size share memory where their times do not
        meet."""
        last: dict[str, int] = {}
        for number, kernel in enumerate(self.kernels):
            last |= dict.fromkeys((*kernel.pointers, *kernel.written), number)
        names: dict[str, str] = {}
        free: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        buffers: list[tuple[str, str, tuple[str, ...]]] = []
        for number, kernel in enumerate(self.kernels):
            for name in kernel.written:
                if name in self.scratch and name not in names:
                    spare = free.get(self.scratch[name], [])
                    if not spare:
                        buffers.append((f"scratch{len(buffers) + 1}", *self.scratch[name]))
                    names[name] = spare.pop() if spare else buffers[-1][0]
            for name in (*kernel.pointers, *kernel.written):
                if name in self.scratch and last[name] == number:
                    free.setdefault(self.scratch[name], []).append(names[name])
        return names, buffers


def folded(launches: Sequence[str]) -> list[str]:
    """Return the launches with those that repeat, but for integers that count the repeats, as groups: a loop over the
    experts of a router has some for each."""
    parts = [re.split(r'"(\d+)"', text) for text in launches]
    found, groups, at = list[str](), list[str](), 0
    while at < len(launches):
        counts = {period: _repeats(parts, at, period) for period in range(1, LONGEST_PERIOD + 1)}
        period = max(counts, key=lambda each: (counts[each] - 1) * each)
        if counts[period] < LEAST_REPEATS:
            found.append(launches[at])
            at += 1
            continue
        group = f"turn{len(groups) + 1}"
        groups.append(f'[group.{group}]\nrepeat = "{counts[period]}"')
        for number in range(at, at + period):
            first, second = parts[number], parts[number + period]
            steps = [int(b) - int(a) for a, b in zip(first[1::2], second[1::2], strict=True)]
            texts = [f"{a} + {d} * i" if d else a for a, d in zip(first[1::2], steps, strict=True)]
            whole = "".join(f'{a}"{b}"' for a, b in zip(first[::2], texts, strict=False)) + first[-1]
            found.append(f'{whole}\ngroup = "{group}"')
        at += period * counts[period]
    return [*found, *groups]


def _repeats(parts: Sequence[list[str]], at: int, period: int) -> int:
    """The number of times that launches from a place on repeat with a period, with integers that rise in even steps."""
    count = 1
    while at + (count + 1) * period <= len(parts):
        for number in range(at, at + period):
            first, second, here = (parts[number + each * period] for each in (0, 1, count))
            if here[::2] != first[::2]:
                return count
            rising = zip(first[1::2], second[1::2], here[1::2], strict=True)
            if any(int(c) != int(a) + count * (int(b) - int(a)) or int(b) < int(a) for a, b, c in rising):
                return count
        count += 1
    return count


def _references(argument: Any) -> Iterator[tuple[str, int]]:
    if isinstance(argument, dict) and "ref" in argument:
        yield argument["ref"], argument.get("index", 0)
    elif isinstance(argument, dict):
        yield from _references(argument.get("args", []))
    elif isinstance(argument, list):
        for each in argument:
            yield from _references(each)


def axes(dims: Any, rank: int) -> list[int]:
    """Axes as numbers from 0, all where none is named."""
    if dims is None or dims == []:
        return list(range(rank))
    return sorted(d % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims))
