"""Records how a source makes inputs whose elements depend on each other, for `graphs/inputs.py` to make them so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.func import functionalize

from operators.errors import OperatorError
from operators.importing.draws import number
from operators.importing.foreign import Failed, foreign
from operators.importing.graphs.decompositions import operator_of
from operators.importing.graphs.symbols import plain, value_of
from operators.importing.problems import Problem
from operators.importing.substitutes import Seedless
from operators.importing.tracing import REAL_S, Leaves, Recorded, Symbolic, recorded

APART = frozenset((
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "clone",
    "_to_copy", "slice", "select", "full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "empty", "arange",
    "alias", "detach", "lift_fresh_copy", "scalar_tensor",
))  # fmt: skip
"""Operators that leave elements apart, beside those of one element at a time."""


def made_by_source(problem: Problem, symbolic: Symbolic, made: Recorded) -> dict[str, Any]:
    """The making of those inputs whose elements, or other inputs, depend on each other, as JSON; empty without any."""
    leaves = symbolic.leaves
    inputs = [n for n, origin in enumerate(leaves.origins) if origin == "input"]
    used = [n for n in inputs if leaves.names[n] in made.tensor_names]
    if all(symbolic.draws.of(leaves.tensors[n]) for n in used) or any(leaves.complex):
        return {}
    try:
        with foreign(REAL_S):
            return _Making(made, _recorded(problem, symbolic)).making(used)
    except (Failed, OperatorError, ValueError):
        return {}


def _recorded(problem: Problem, symbolic: Symbolic) -> fx.GraphModule:
    """The function that makes the problem, as operators from no argument to all its tensors."""

    def knob(name: str) -> Any:
        return symbolic.symbols.get(name, problem.sizes[name])

    with symbolic.fake, torch.no_grad(), Seedless():
        held = torch.empty(list(symbolic.symbols.values()))
        function = functionalize(lambda _: [each.clone() for each in Leaves(*problem.made(knob)).tensors])
        return recorded(function, held)


class _Making(Recorded):
    """The way to the inputs, in the words of a graph over the dims of the computation's own."""

    def __init__(self, made: Recorded, module: fx.GraphModule) -> None:
        self.__dict__.update(made.__dict__)
        self.made, self.module = made, module
        self.refs, self.nodes, self.constants, self.inputs, self.converted = {}, [], [], [], []
        self.sizes, self.counts, self.flops, self.terms, self.steps = [], [], [], [], []
        self.laws: dict[str, list[str]] = {}
        self.needs: dict[fx.Node, set[str]] = {}
        """The random numbers that a value is made of."""
        self.mixed: set[fx.Node] = set()
        """Values whose elements depend on each other."""

    def making(self, used: Sequence[int]) -> dict[str, Any]:
        """The making of those inputs, by their numbers among the leaves, that need one."""
        *nodes, output = self.module.graph.nodes
        results: Any = output.args[0]
        needed = _before([results[n] for n in used])
        for node in nodes:
            if node in needed:
                self._follow(node)
        needs = {n: self.needs[results[n]] for n in used}
        kinds = {n: results[n].meta["val"].dtype for n in used}
        whole = {n for n, each in kinds.items() if not each.is_floating_point and each != torch.bool}
        chosen = {n for n in used if results[n] in self.mixed or not needs[n]} | whole
        chosen |= {n for n in used if any(needs[n] & needs[other] for other in used if other != n)}
        chosen = {n for n in chosen if not self.symbolic.draws.of(self.symbolic.leaves.tensors[n])}
        shared = set[str]().union(*(needs[n] for n in chosen))
        while more := {n for n in used if needs[n] & shared} - chosen:
            chosen |= more
            shared |= set[str]().union(*(needs[n] for n in more))
        if not chosen:
            return {}
        names = {n: self.tensor_names[self.symbolic.leaves.names[n]] for n in sorted(chosen)}
        outputs = [{"name": name, "ref": "", "index": 0, **self.refs[results[n]]} for n, name in names.items()]
        self.graph = {"outputs": outputs}
        kept = self._needed()
        graph = {"dims": [*self.dims.values(), *self.derived], "inputs": self.inputs, "constants": self.constants}
        types = {each["name"]: each["dtype"] for each in self.made.inputs}
        self.made.sourced |= set(names.values())
        return {
            "graph": {**graph, "nodes": kept, "outputs": outputs},
            "laws": {each["name"]: self.laws[each["name"]] for each in self.inputs},
            "types": {name: types[name] for name in names.values()},
        }

    def _follow(self, node: fx.Node) -> None:
        before = [each for each in node.all_input_nodes if each in self.needs]
        self.needs[node] = set().union(*(self.needs[each] for each in before))
        if node.op == "get_attr":
            self._constant(node)
        if node.op != "call_function":
            return
        if law := _law(node):
            value = node.meta["val"]
            name = self._named(node.name)
            self.inputs.append({"name": name, "shape": self._shape(value), "dtype": self._dtype(value.dtype)})
            self.laws[name] = [law[0], *map(self._bound, law[1:])]
            self.refs[node], self.needs[node] = {"ref": name}, {name}
            self.mixed |= {node} if law[0] == "permutation" else set()
            return
        self._call(node)
        tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else [torch.Tag.pointwise]
        is_apart = torch.Tag.pointwise in tags or operator_of(node) in APART
        if not is_apart or any(each in self.mixed or self._spreads(each, node) for each in before):
            self.mixed.add(node)

    def _spreads(self, before: fx.Node, node: fx.Node) -> bool:
        """Whether an element goes into several of a value: what is drawn for a row is the same in all of it."""
        of, to = (each.meta.get("val") for each in (before, node))
        if not (self.needs[before] and isinstance(of, torch.Tensor) and isinstance(to, torch.Tensor)):
            return False
        return bool(plain(of.numel()) < plain(to.numel()))

    def _bound(self, bound: Any) -> str:
        return number(bound) if isinstance(bound, float) else self.text(sympy.sympify(self.symbolic.expr(bound)))


def _before(results: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that results are made of."""
    found, waiting = set[fx.Node](), list(results)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _law(node: fx.Node) -> tuple[str, Any, Any] | None:
    """The law that an operator draws from; None: it draws nothing, or from one without a name here."""
    args = list(node.args)
    match operator_of(node):
        case "rand" | "rand_like":
            return ("uniform", 0.0, 1.0)
        case "randn" | "randn_like":
            return ("normal", 0.0, 1.0)
        case "uniform":
            low, high = [*map(float, _plain(args[1:3])), 0.0, 1.0][:2] if len(args) > 2 else (0.0, 1.0)
            return ("uniform", low, high)
        case "normal_functional" | "normal":
            mean, deviation = [*map(float, _plain(args[1:3])), *(0.0, 1.0)[len(args[1:3]) :]]
            return ("normal", mean, deviation)
        case "randint":
            bounds = [_size(each) for each in args if not isinstance(each, list | tuple)]
            return ("integers", 0 if len(bounds) == 1 else bounds[0], bounds[-1] - 1)
        case "randperm":
            return ("permutation", 0, 0)
    return None


def _size(argument: Any) -> Any:
    return value_of(argument.meta["val"] if isinstance(argument, fx.Node) else argument)


def _plain(arguments: Sequence[Any]) -> Iterator[Any]:
    for each in arguments:
        if not isinstance(each, int | float):
            raise ValueError("a law has numbers that no graph can say")
        yield each
