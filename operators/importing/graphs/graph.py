"""A computation as data: `graph.json`, a list of core ATen operators over named tensors, and what evaluates it.

    {"dims": ["rows", "cols"],
     "scalars": [{"name": "eps", "dtype": "ACC"}],
     "inputs": [{"name": "x", "shape": ["rows", "cols"], "dtype": "T"}],
     "constants": [{"name": "taps", "shape": ["3"], "dtype": "T", "values": [1, 2, 1]}],
     "nodes": [{"name": "sum_1", "op": "aten.sum.dim_IntList", "args": [{"ref": "x"}, [1], true], "kwargs": {},
                "outputs": [{"shape": ["rows", "1"], "dtype": "T"}]}],
     "outputs": [{"name": "y", "ref": "sum_1", "index": 0}]}

Shapes are expressions over `dims` (dims and derived dims of the operator, in the language of `operators.expression`).
A dtype is `T`, `ACC`, a name of `operators.dtypes.DTYPES` or `bool`; as an argument it is a text too. An argument is a
number, a truth value, null, a text, a list, or an object:

- `{"ref": "x"}`: an input, a constant, a scalar or an earlier node; `{"ref": "sort_1", "index": 1}`: its second output;
- `{"expr": "rows * cols"}`: an integer over dims;
- `{"calc": "truediv", "args": [1, {"calc": "sqrt", "args": [{"expr": "cols"}]}]}`: a number, by functions of `CALC`.

Nothing of a graph is code: texts are looked up in tables or parsed by `operators.expression`.
"""

from __future__ import annotations

import json
import math
import operator as arithmetic
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from keyword import iskeyword
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from operators.dtypes import ACCUMULATOR, DTYPES
from operators.errors import OperatorError, quote, unknown
from operators.expression import Expression, ExpressionError, parse
from operators.files import read_text

TORCH_DTYPES = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int64": torch.int64,
    "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
GRAPH_DTYPES = frozenset(("T", "ACC", "bool", *DTYPES))
CALC: Mapping[str, Callable[..., float]] = {
    "add": arithmetic.add, "sub": arithmetic.sub, "mul": arithmetic.mul, "truediv": arithmetic.truediv,
    "floordiv": arithmetic.floordiv, "neg": arithmetic.neg, "pow": math.pow, "sqrt": math.sqrt, "log": math.log,
    "exp": math.exp, "float": float, "min": min, "max": max,
}  # fmt: skip
"""Functions of numbers that an argument may be made of."""
RECURRENCES = frozenset(f"aten.{name}.input" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Operators that draw numbers at random for nothing but their dropout, which is to be 0."""
DROPOUT = 5
"""The place of that among their arguments."""
MAX_NODES = 20_000
MAX_CONSTANT = 2**16
"""Elements of all constants: larger ones are inputs."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GraphScalar(_Part):
    """A number that every call passes by value."""

    name: str
    dtype: str


class Value(_Part):
    """Shape and type of one output of a node."""

    shape: list[str | int]
    dtype: str


class GraphTensor(Value):
    """An input."""

    name: str


class Constant(GraphTensor):
    """A small tensor that is part of the computation."""

    values: list[float | int | bool]
    """Row-major."""


class Node(_Part):
    """One operator, called with earlier values."""

    name: str
    op: str
    """`aten.add.Tensor`: namespace, operator, overload."""
    args: list[Any]
    kwargs: dict[str, Any] = {}
    outputs: list[Value]
    """In the order in which the operator returns them."""


class GraphOutput(_Part):
    """A result, by the name of the operator's tensor."""

    name: str
    ref: str
    index: int = 0


class Graph(_Part):
    """A whole computation; `read_graph` and `checked` make ones that hold together."""

    dims: list[str]
    scalars: list[GraphScalar] = []
    inputs: list[GraphTensor]
    constants: list[Constant] = []
    nodes: list[Node]
    outputs: list[GraphOutput]

    def expression(self, text: str | int) -> Expression:
        """The expression over the graph's dims that a shape or an argument gives."""
        return _parsed(text, tuple(self.dims))

    def shape(self, value: Value) -> tuple[Expression, ...]:
        """The axes of a value."""
        return tuple(map(self.expression, value.shape))

    def value(self, ref: str, index: int = 0) -> Value:
        """The shape and type of a tensor, by the name of what makes it."""
        made = {node.name: node.outputs for node in self.nodes}
        made |= {tensor.name: [tensor] for tensor in (*self.inputs, *self.constants)}
        return made[ref][index]


@lru_cache(maxsize=4096)
def _parsed(text: str | int, dims: tuple[str, ...]) -> Expression:
    return parse(text, dims)


def read_graph(path: Path) -> Graph:
    """Read a graph.json. Raises OperatorError: one line with the place and what is wrong."""
    try:
        return checked(json.loads(read_text(path)), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise OperatorError(f"{path}: cannot be read as JSON: {' '.join(str(error).split())[:200]}") from None


def write_graph(graph: Graph, path: Path) -> None:
    """Write a graph.json, a line for each node."""
    fields = graph.model_dump()
    lists = [f"{json.dumps(key)}: [{_lines(fields[key])}]" for key in fields if key != "dims"]
    path.write_text("{" + ",\n".join([f'"dims": {json.dumps(graph.dims)}', *lists]) + "}\n", encoding="utf-8")


def _lines(items: Sequence[Any]) -> str:
    return ",\n  ".join(map(json.dumps, items))


def checked(raw: object, where: str = "graph") -> Graph:
    """The graph that nested lists and tables describe. Raises OperatorError."""
    try:
        graph = Graph.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise OperatorError(f"{where}: {place}: {first['msg'].lower()}") from None
    try:
        _check(graph)
    except (ValueError, ExpressionError) as error:
        raise OperatorError(f"{where}: {error}") from None
    return graph


def _check(graph: Graph) -> None:
    """Raise ValueError where the parts do not fit each other."""
    if (count := len(graph.nodes)) > MAX_NODES:
        raise ValueError(f"{count:,} nodes, as loops over time steps make, are more than {MAX_NODES:,}")
    if (count := sum(len(constant.values) for constant in graph.constants)) > MAX_CONSTANT:
        raise ValueError(f"{count:,} numbers in constants are more than {MAX_CONSTANT:,}; write them as inputs")
    counts: dict[str, int] = {}
    for name in (*graph.dims, *(result.name for result in graph.outputs)):
        check_name(name)
    every: list[GraphScalar | GraphTensor] = [*graph.scalars, *graph.inputs, *graph.constants]
    for named in every:
        _name(named.name, counts)
        if named.dtype not in GRAPH_DTYPES:
            raise ValueError(f"{named.name}: {unknown('dtype', named.dtype, GRAPH_DTYPES)}")
    for tensor in (*graph.inputs, *graph.constants):
        graph.shape(tensor)
    for node in graph.nodes:
        if node.op in RECURRENCES and node.args[DROPOUT : DROPOUT + 1] != [0]:
            raise ValueError(f"{node.name}: a recurrence with dropout draws numbers at random, which no graph may")
        for output in node.outputs:
            if output.dtype not in GRAPH_DTYPES:
                raise ValueError(f"{node.name}: {unknown('dtype', output.dtype, GRAPH_DTYPES)}")
            graph.shape(output)
        _check_argument(graph, [*node.args, *node.kwargs.values()], counts, node.name, 0)
        _name(node.name, counts, len(node.outputs))
    for result in graph.outputs:
        _reference({"ref": result.ref, "index": result.index}, counts, f"output {result.name}")


def check_name(name: str) -> None:
    """Raise ValueError for what cannot stand in Python, C++ and TOML as a name: text of a stranger gets no further."""
    if not name.isidentifier() or not name.isascii() or iskeyword(name):
        raise ValueError(f"{quote(name)} is no name; letters, digits and `_` are allowed")


def _name(name: str, counts: dict[str, int], outputs: int = 1) -> None:
    check_name(name)
    if name in counts:
        raise ValueError(f"two values are named {quote(name)}")
    counts[name] = outputs


def _reference(argument: Mapping[str, Any], counts: Mapping[str, int], where: str) -> None:
    name, index = argument["ref"], argument.get("index", 0)
    if not isinstance(name, str) or name not in counts:
        raise ValueError(f"{where}: {unknown('value', str(name), counts)}")
    if type(index) is not int or not 0 <= index < counts[name]:
        raise ValueError(f"{where}: {name} has {counts[name]} output(s), not one of index {index}")


def _check_argument(graph: Graph, argument: Any, counts: Mapping[str, int], where: str, depth: int) -> None:
    if depth > 30:
        raise ValueError(f"{where}: an argument is nested too deeply")
    match argument:
        case None | bool() | int() | float() | str():
            return
        case list():
            inner: Iterable[Any] = argument
        case {"ref": _, **rest} if rest.keys() <= {"index"}:
            _reference(argument, counts, where)
            return
        case {"expr": str() | int() as text, **rest} if not rest:
            graph.expression(text)
            return
        case {"calc": str() as name, "args": list() as inner, **rest} if not rest:
            if name not in CALC:
                raise ValueError(f"{where}: {unknown('function of numbers', name, CALC)}")
        case _:
            raise ValueError(
                f"{where}: {quote(str(argument))} is no argument; write a number, a list, ref, expr or calc"
            )
    for each in inner:
        _check_argument(graph, each, counts, where, depth + 1)


# --- evaluation -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def aten(name: str) -> Any:
    """The operator of torch that a node names; one of ATen that changes nothing and draws nothing at random.

    Raises OperatorError.
    """
    parts = name.split(".")
    packet = getattr(torch.ops.aten, parts[1], None) if len(parts) == 3 and parts[0] == "aten" else None
    found = getattr(packet, parts[2], None) if isinstance(packet, torch._ops.OpOverloadPacket) else None
    if not isinstance(found, torch._ops.OpOverload):
        raise OperatorError(f"there is no ATen operator {quote(name)}")
    is_random = torch.Tag.nondeterministic_seeded in found.tags and name not in RECURRENCES
    if found._schema.is_mutable or is_random:
        raise OperatorError(f"{name} changes its arguments or draws numbers at random, which no graph may")
    return found


def schema_of(name: str) -> Any:
    """The schema of an operator: its arguments with their names and defaults."""
    return aten(name)._schema


def evaluate(
    graph: Graph, values: Mapping[str, Any], dims: Mapping[str, int], dtype: torch.dtype = torch.float64
) -> dict[str, torch.Tensor]:
    """The outputs by name, for tensors and scalars by name; floating values are computed in `dtype`.

    In fp64 all of them are; in another type `ACC` is what accumulates it. Raises OperatorError.
    """
    return _Evaluation(graph, values, dims, dtype).outputs()


class _Evaluation:
    """One evaluation of a graph."""

    def __init__(self, graph: Graph, values: Mapping[str, Any], dims: Mapping[str, int], dtype: torch.dtype) -> None:
        self.graph = graph
        self.dims = {name: dims[name] for name in graph.dims}
        own = next((name for name, known in TORCH_DTYPES.items() if known == dtype and name in ACCUMULATOR), "fp64")
        floating = {name: dtype if own == "fp64" else TORCH_DTYPES[name] for name in ACCUMULATOR}
        self.dtypes = TORCH_DTYPES | floating | {"T": dtype, "ACC": TORCH_DTYPES[ACCUMULATOR[own]]}
        self.made: dict[str, Any] = {scalar.name: values[scalar.name] for scalar in graph.scalars}
        device = torch.device("cpu")
        for tensor in graph.inputs:
            given: torch.Tensor = values[tensor.name]
            device = given.device
            self.made[tensor.name] = given.to(self.dtypes[tensor.dtype])
        for constant in graph.constants:
            flat = torch.tensor(constant.values, dtype=self.dtypes[constant.dtype], device=device)
            self.made[constant.name] = flat.reshape([axis.evaluate(self.dims) for axis in graph.shape(constant)])
        self.device = device

    def outputs(self) -> dict[str, torch.Tensor]:
        """The graph's results by name."""
        for node in self.graph.nodes:
            self.made[node.name] = self._called(node)
        return {out.name: self.argument({"ref": out.ref, "index": out.index}) for out in self.graph.outputs}

    def _called(self, node: Node) -> Any:
        # A view of a view need not be one of memory here: what made the graph may have laid tensors out otherwise.
        function = aten("aten.reshape.default" if node.op == "aten.view.default" else node.op)
        args = [self.argument(each) for each in node.args]
        kwargs = {name: self.argument(each) for name, each in node.kwargs.items()}
        for name, each in kwargs.items():
            kwargs[name] = self.dtypes[each] if name == "dtype" and isinstance(each, str) else each
        for position, parameter in enumerate(function._schema.arguments):
            if parameter.name == "dtype" and position < len(args) and isinstance(args[position], str):
                args[position] = self.dtypes[args[position]]
            if parameter.name == "device" and parameter.kwarg_only:
                kwargs["device"] = self.device
        try:
            return function(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise OperatorError(f"node {node.name} ({node.op}): {reason}") from None

    def argument(self, argument: Any) -> Any:
        """The value of a node's argument."""
        match argument:
            case {"ref": name}:
                made = self.made[name]
                return made[argument.get("index", 0)] if isinstance(made, tuple | list) else made
            case {"expr": text}:
                return self.graph.expression(text).evaluate(self.dims)
            case {"calc": name, "args": inner}:
                return CALC[name](*map(self.argument, inner))
            case list():
                return [self.argument(each) for each in argument]
        return argument
