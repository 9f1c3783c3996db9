"""A foreign problem executed on fake tensors with symbols in the places of its sizes, recorded as ATen operators."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any

import sympy
import torch
from torch import fx, nn
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils import _pytree as pytree

from operators.definition.reading import REFERENCE_ARGUMENTS
from operators.definition.spec import CPP_KEYWORDS, RESERVED
from operators.dtypes import DTYPES
from operators.expression import parse
from operators.importing.control import AllRows
from operators.importing.draws import Draws, Reach, number
from operators.importing.foreign import Failed, Hopeless, TooLong, foreign, laid_open, opened, place_of
from operators.importing.graphs.decompositions import decompositions, operator_of
from operators.importing.graphs.symbols import BY_VALUES, Unwritable, argument, integer_text, value_of
from operators.importing.pairs import RealParts, holds_complex, split
from operators.importing.problems import Problem
from operators.importing.randomness import LAWS, MADE, RANDOM, RandomNumbers, drawing, rules_beside
from operators.importing.substitutes import MOST_CONSTANT, NAMESPACE, Seedless, plain_parameters

NAMES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "int64",
    torch.int32: "int32", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip
SAME = {"clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "contiguous"}
"""Operators that hand on what they get."""
VIEWED = {"squeeze_", "unsqueeze_", "transpose_", "t_"}
"""Operators that look at their argument in another way, as a product with a vector does with its result."""
LONGEST = 40
"""Characters of a size's expression that is written where it is used; a longer one gets a name."""
FILLED = ("full", "zeros", "ones", "empty", "arange", "eye", "linspace", "scalar_tensor")
"""Operators whose results have the type that torch takes where none is given, which is another one in fp64."""
OWN_OF_REFERENCE = frozenset({
    "I", "device", "evaluate", "fainter", "integers", "made_inputs", "reference", "running", "sampled",
})  # fmt: skip
"""Names that a reference.py uses for itself, and sympy's imaginary number."""
SUMS = (
    "sum", "mean", "var", "prod", "native_layer_norm", "_softmax", "linalg_vector_norm",
)  # fmt: skip
DROPPED = ("device", "layout", "pin_memory", "memory_format", "non_blocking")
TRACE_S = 100
"""Seconds that one attempt with symbols may take; after it no sizes are symbols."""
MOST_CALLS = 5000
"""Functions of torch that a computation may call: a loop of Python over elements calls some for each."""
REAL_S = 20


class _Named(Source):
    """The name of a symbol, which torch wants to know the origin of."""

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    @property
    def _name_template(self) -> str:
        return self._text  # type: ignore[attr-defined,no-any-return]

    @property
    def name(self) -> str:
        """The knob's."""
        return self._name_template

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and other.name == self.name


class Leaves:
    """The tensors that a call is made of: parameters and buffers of its module, and tensors among its arguments."""

    def __init__(self, call: Callable[..., Any], args: list[Any]) -> None:
        self.call, self.module = call, call if isinstance(call, nn.Module) else None
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.origins: list[str] = []
        self.paths: list[list[Any]] = []
        """Where each is found: the name in its module, or the argument's number and the keys and fields within it."""
        if self.module is not None:
            for each in self.module.modules():
                if isinstance(each, nn.RNNBase):  # one operator, which draws between its layers
                    each.dropout = 0.0
                for name, value in list(vars(each).items()):  # a state that it was made with, and did not register
                    numbers = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
                    if numbers and value.dim():
                        del vars(each)[name]
                        each.register_buffer(name, value)
            self._add(self.module.named_parameters(), "parameter")
            self._add(self.module.named_buffers(), "buffer")
        self.held = len(self.names)
        opened(args)
        flat, self.spec = pytree.tree_flatten_with_path(args)
        self.flat = [leaf for _, leaf in flat]
        names = argument_names(self.module.forward if self.module is not None else call)
        self.places = []
        for index, (path, leaf) in enumerate(flat):
            if isinstance(leaf, torch.Tensor):
                self.places.append(index)
                first = getattr(path[0], "idx", 0)
                parts = [names[first] if first < len(names) else f"x{first}"]
                keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", ""))) for key in path[1:]]
                self.names.append("_".join([*parts, *map(str, keys)]))
                fields = [isinstance(key, pytree.GetAttrKey) for key in path[1:]]
                self.paths.append([first, *({"field": k} if own else k for k, own in zip(keys, fields, strict=True))])
                self.tensors.append(leaf)
                self.origins.append("input")
        self.complex = [tensor.is_complex() for tensor in self.tensors]
        """Whether each of the tensors has pairs of real numbers in the place of complex ones."""
        self.tensors = [split(tensor) for tensor in self.tensors]

    def _add(self, named: Any, origin: str) -> None:
        for name, tensor in named:
            self.names.append(name)
            self.tensors.append(tensor)
            self.origins.append(origin)
            self.paths.append([name])

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Call with these tensors in the places of the leaves; complex results are pairs of real numbers too."""
        paired = zip(tensors, self.complex, strict=True)
        tensors = tuple(torch.view_as_complex(x) if is_complex else x for x, is_complex in paired)
        flat = list(self.flat)
        for place, tensor in zip(self.places, tensors[self.held :], strict=True):
            flat[place] = tensor
        args = pytree.tree_unflatten(flat, self.spec)
        with torch.no_grad():
            if self.module is None:
                found = self.call(*args)
            else:
                held = dict(zip(self.names[: self.held], tensors[: self.held], strict=True))
                found = functional_call(self.module, held, tuple(args))
            return pytree.tree_map_only(torch.Tensor, split, laid_open(found))


def argument_names(function: Any) -> list[str]:
    """The names of the arguments of a function."""
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        return []


class Untraced(Failed):
    """No graph says what a problem computes."""


class Symbolic:
    """One attempt: the problem with symbols for some of its sizes, and its computation recorded."""

    def __init__(self, problem: Problem, fixed: set[str], rows: str = "") -> None:
        self.fixed, self.rows = fixed, rows
        """Knobs that are constants, and the one of rows that are recorded one by one, if any are."""
        self.env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
        self.symbols: dict[str, Any] = {}
        self.draws = Draws()

        def knob(name: str) -> Any:
            value = problem.sizes[name]
            if name in fixed:
                return value
            if name not in self.symbols:
                symbol = self.env.create_symbol(
                    value, source=_Named(name), dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None,
                    do_not_specialize_zero_one=True,
                )  # fmt: skip
                self.symbols[name] = self.env.create_symintnode(symbol, hint=value, source=_Named(name))
            return self.symbols[name]

        self.fake = fake = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        # The choice of a faster convolution would be a condition on sizes.
        with fake, torch.backends.mkldnn.flags(enabled=False), torch.backends.nnpack.flags(enabled=False):
            with self.draws, Seedless():
                self.leaves = Leaves(*problem.made(knob))
                own = Leaves(*problem.made(lambda n: 1 if n == rows else knob(n))) if rows else self.leaves
            self.symbols = {n: s for n, s in self.symbols.items() if isinstance(s, torch.SymInt)}
            self.numbers = RandomNumbers()
            self.module: fx.GraphModule
            with torch.no_grad(), Seedless(MOST_CALLS) as mode, plain_parameters():
                try:
                    self._record(own, mode)
                except BY_VALUES as error:
                    by = "an `if`, a size" if isinstance(error, GuardOnDataDependentSymNode) else str(error)
                    raise Hopeless(
                        f"{place_of(error)}it decides by values of its tensors ({by[:60]}), which no graph can say"
                    ) from None

    def _record(self, leaves: Leaves, mode: Seedless) -> None:
        """Record the computation with these leaves, of one row or of all: as it is, then without complex numbers, then
        of all rows."""

        def one_way(*given: torch.Tensor) -> Any:
            self.numbers.again()
            return leaves(*given)

        held = torch.empty(list(self.symbols.values()))  # for the tracer to know every symbol
        every_way = functionalize(lambda _, *given: mode.branches.all_ways(lambda: one_way(*given)))
        with drawing(self.numbers):
            self.module = recorded(every_way, held, *leaves.tensors)
        if any(map(_changes, self.module.graph.nodes)):
            self.module = recorded(functionalize(self.module), held, *leaves.tensors)
        if holds_complex(self.module):
            self.module = recorded(RealParts(self.module).run, held, *leaves.tensors)
        if self.rows:
            self.module = recorded(self._all_rows, held, *self.leaves.tensors)

    def _all_rows(self, held: torch.Tensor, *tensors: torch.Tensor) -> Any:
        """The computation that is recorded of one row, executed on all rows."""
        count = self.symbols[self.rows]
        found = [[axis for axis, n in enumerate(each.shape) if value_of(n) == value_of(count)] for each in tensors]
        if any(len(each) > 1 for each in found) or not any(found):
            raise Failed("its inputs have not one axis of rows each")
        axes = [None, *(each[0] if each else None for each in found)]
        self.module.graph.eliminate_dead_code(_is_kept)
        return AllRows(self.module, count).of([held, *tensors], axes)

    def expr(self, number: Any) -> Any:
        """A size as an expression of the symbols that are left."""
        found = value_of(number)
        return self.env.replace(found) if isinstance(found, sympy.Basic) else found

    def used(self) -> dict[Any, str]:
        """The symbols that stand for themselves, and their knobs."""
        names = {}
        for name, symbol in self.symbols.items():
            expr = self.expr(symbol)
            if getattr(expr, "is_Symbol", False) and expr not in names:
                names[expr] = name
        return names

    def guards(self) -> list[Any]:
        """Conditions on the symbols for the computation to be this one, but for those of speed alone."""
        found = []
        for guard in self.env.guards:
            expr = self.env.replace(guard.expr)
            ones = expr.is_Relational and any(argument in (0, 1) for argument in expr.args)
            if expr.free_symbols and not (expr.func is sympy.Ne and ones):
                found.append(expr)
        return found


def recorded(function: Callable[..., Any], *tensors: torch.Tensor) -> fx.GraphModule:
    """The operators that a function calls with these tensors."""
    rules: Any = decompositions()
    return make_fx(function, rules | rules_beside(rules), "real", _allow_non_fake_inputs=True)(*tensors)


def _changes(node: fx.Node) -> bool:
    """Whether a function of torch's own, such as a cell of a recurrence, changed a tensor on its way in place."""
    name = operator_of(node)
    if name == "copy_":
        return node.args[0].op != "placeholder"  # type: ignore[union-attr]
    is_view = name == "as_strided_" or name in VIEWED
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable and not is_view


def attempts(problem: Problem, rows: str = "") -> Symbolic:
    """The problem with as many symbols as it bears; `rows`: the knob of those that are recorded one by one. Raises
    Failed with the reason of the last attempt."""
    _count_calls(problem, rows)
    found, reason = _attempted(problem, [fixed for fixed in problem.attempts() if rows not in fixed], rows)
    if not rows and (found is None or not found.used()) and problem.sizes:
        try:
            with foreign(REAL_S):
                watched = seen_from_outside(problem)
            found = _attempted(watched, [set()])[0] or found
        except Failed as error:
            reason = reason or str(error)
    if found is None:
        raise Failed(f"its source cannot be traced: {reason}")
    return found


def again(problem: Problem, symbolic: Symbolic, error: Unwritable) -> Symbolic:
    """The problem with constants for the sizes in what a graph has no words for. Raises Failed where there are none."""
    names = symbolic.used()
    more = {names[each] for each in error.symbols if each in names}
    if not more:
        raise Untraced(str(error))
    with foreign(TRACE_S):
        return Symbolic(problem, symbolic.fixed | more, symbolic.rows)


def _count_calls(problem: Problem, rows: str) -> None:
    """Raise Unrolled where the problem calls too many functions: to count them takes a fraction of recording them."""
    try:
        with foreign(TRACE_S), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            with Seedless():
                leaves = Leaves(*problem.made(lambda name: 1 if name == rows else problem.sizes[name]))
            with Seedless(MOST_CALLS):
                leaves(*leaves.tensors)
    except Hopeless:
        raise
    except Failed:  # the attempts tell why
        pass


def _attempted(problem: Problem, attempts: list[set[str]], rows: str = "") -> tuple[Symbolic | None, str]:
    reason, waiting = "", list(attempts)
    while waiting:
        fixed = waiting.pop(0)
        try:
            with foreign(TRACE_S):
                return Symbolic(problem, fixed, rows), ""
        except Hopeless:
            raise
        except TooLong:
            reason, waiting = f"to record all of its operators takes longer than {TRACE_S} s", waiting[-1:]
            if not waiting:
                raise Hopeless(f"{reason}, as where each step of time has its own") from None
        except Failed as error:
            reason = str(error)
    return None, reason


def seen_from_outside(problem: Problem) -> Problem:
    """The problem with inputs of the shapes that its own have at several sizes, for generators that symbols stop in."""

    def shapes(sizes: Mapping[str, int]) -> list[torch.Size]:
        return [tensor.shape for tensor in Leaves(*problem.made(lambda name: sizes[name])).tensors]

    call, args = problem.made(lambda name: problem.sizes[name])
    base = shapes(problem.sizes)
    slopes: dict[tuple[int, int], tuple[str, int]] = {}
    for name, size in problem.sizes.items():
        for index, (before, after) in enumerate(zip(base, shapes({**problem.sizes, name: size + 4}), strict=True)):
            for axis, (one, other) in enumerate(zip(before, after, strict=True)):
                if one != other and (other - one) % 4 == 0:
                    slopes[index, axis] = (name, (other - one) // 4)

    def made(knob: Any) -> tuple[Callable[..., Any], list[Any]]:
        leaves, spec = pytree.tree_flatten(args)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        for index, place in enumerate(places):
            shape: list[Any] = list(leaves[place].shape)
            for axis, size in enumerate(shape):
                if (index, axis) in slopes:
                    name, slope = slopes[index, axis]
                    shape[axis] = slope * knob(name) + (size - slope * problem.sizes[name])
            leaves[place] = torch.empty(shape, dtype=leaves[place].dtype)
        return call, pytree.tree_unflatten(leaves, spec)

    return Problem(problem.sizes, made)


# --- in the words of a graph ------------------------------------------------------------------------------------------


class Recorded:
    """One computation, in the words of a graph."""

    def __init__(self, symbolic: Symbolic, problem: Problem) -> None:
        self.symbolic, self.notes = symbolic, list[str]()
        self.module = symbolic.module
        self.changed: list[str] = []
        """Arguments that are results too, after all that is returned, as the source changes them in place."""
        self._clean(problem.changes)
        self.numbers: dict[str, tuple[str, torch.Tensor, list[str]]] = {}
        """Random numbers that the source draws, in its order: the law, a tensor like them, and their shape. Those that
        results hang on are inputs."""
        self.sourced: set[str] = set()
        """Inputs that are made as the source makes them."""
        self.ranges: dict[str, tuple[Any, Any]] = {}
        """The least and the largest number of inputs, by their names in the source, that only their uses tell."""
        self.infinite: set[str] = set()
        """Results that hold the infinite numbers of a mask."""
        self.taken: set[str] = set()
        self.symbols: dict[Any, str] = {}
        self.dims: dict[str, str] = {}
        """Dims by knob."""
        self.derived: dict[str, str] = {}
        self.sizes: list[Any] = []
        self.counts: list[Any] = []
        self.flops: list[Any] = []
        self.terms: list[Any] = []
        """Terms of sums."""
        self.steps: list[Any] = []
        """Steps of time of each recurrence, by its matrices: two for each layer."""
        self.kept: dict[Any, int] = {}
        """The source's own sizes by symbols that no tensor has, such as a number of classes."""
        used = self._used_symbols()
        for symbol, knob in symbolic.used().items():
            if symbol in used:
                self.symbols[symbol] = self.dims[knob] = self._named(knob)
            else:
                self.kept[symbol] = problem.sizes[knob]
        self._inputs()
        self._reach(problem.unbounded)
        self.nodes: list[dict[str, Any]] = []
        self.constants: list[dict[str, Any]] = []
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "get_attr":
                self._constant(node)
        self.graph: dict[str, Any] = {"outputs": self._outputs()}
        self.graph |= {"inputs": self.inputs, "constants": self.constants, "nodes": self._needed()}
        self.graph["dims"] = [*self.dims.values(), *self.derived]
        follows = {n for n, s in symbolic.symbols.items() if getattr(symbolic.expr(s), "free_symbols", None)}
        fixed = [name for name in problem.sizes if name not in {*self.dims, *follows}]
        if fixed and self.dims:
            self.notes.append(f"constant, as the source or its conditions ask for it: {', '.join(fixed)}")

    # --- preparation ------------------------------------------------------------------------------------------------

    def _clean(self, changes: bool) -> None:
        """Take out changes of inputs, but for those that are results, and what nothing needs."""
        graph, leaves = self.module.graph, self.symbolic.leaves
        *nodes, output = graph.nodes
        placeholders = [node for node in nodes if node.op == "placeholder"]
        origins = dict(zip(placeholders[1:], zip(leaves.names, leaves.origins, strict=True), strict=True))
        written: dict[str, fx.Node] = {}
        for node in nodes:
            if node.op == "call_function" and operator_of(node) == "copy_":
                name, origin = origins.get(node.args[0], ("", ""))
                written |= {name: node.args[1]} if origin == "input" else {}
                node.replace_all_uses_with(node.args[1])
                graph.erase_node(node)
        returned = [leaf for leaf in pytree.tree_leaves(output.args[0]) if isinstance(leaf, fx.Node)]
        written = {name: value for name, value in written.items() if value not in returned}
        if changes or not returned:
            self.changed = list(written)
        elif written:
            listed = ", ".join(f"`{name}`" for name in written)
            self.notes.append(f"the source changes {listed} in place too; the task is what it returns")
        output.args = ((output.args[0], [written[name] for name in self.changed]),)
        graph.eliminate_dead_code(_is_kept)

    def _used_symbols(self) -> set[Any]:
        found: set[Any] = set()
        _, *nodes = self.module.graph.nodes  # the first argument has a size of every symbol
        for node in nodes:
            unused = node.op == "placeholder" and not node.users
            for value in [] if unused else pytree.tree_leaves(node.meta.get("val")):
                numbers = value.shape if isinstance(value, torch.Tensor) else [value]
                for each in numbers:
                    expr = self.symbolic.expr(each)
                    found |= getattr(expr, "free_symbols", set())
        return found

    def _named(self, wanted: str) -> str:
        """A name that nothing else has."""
        return free_name(wanted, self.taken)

    def _inputs(self) -> None:
        leaves = self.symbolic.leaves
        placeholders = [node for node in self.module.graph.nodes if node.op == "placeholder"][1:]
        self.refs: dict[fx.Node, dict[str, Any]] = {}
        self.tensor_names: dict[str, str] = {}
        self.inputs: list[dict[str, Any]] = []
        every = zip(placeholders, leaves.names, leaves.tensors, strict=True)
        used = [(node, name, tensor) for node, name, tensor in every if node.users]
        floating = Counter(t.dtype for _, _, t in used if t.is_floating_point())
        common = floating.most_common(1)[0][0] if floating else torch.float32
        if common not in NAMES:
            raise ValueError(f"tensors of type {common} cannot be imported")
        self.dtype = NAMES[common]
        self.is_short = False
        """Whether numbers of another type are rounded to 16 bits on the way."""
        self.converted: list[dict[str, Any]] = []
        for node, name, tensor in used:
            mine = self._named(name)
            self.tensor_names[name] = mine
            shape, dtype = self._shape(tensor), self._dtype(tensor.dtype)
            self.refs[node] = {"ref": mine}
            if dtype == "bool":  # kernels are given bytes
                held = self._named(f"{mine}_true")
                self.refs[node] = {"ref": held}
                value = {"shape": shape, "dtype": "bool"}
                self.converted.append(
                    {"name": held, "op": "aten.ne.Scalar", "args": [{"ref": mine}, 0], "outputs": [value]}
                )
                dtype = "uint8"
            self.inputs.append({"name": mine, "shape": shape, "dtype": dtype})

    def _reach(self, unbounded: set[int]) -> None:
        """Find the ranges of arguments of which the source tells none."""
        leaves, placeholders = self.symbolic.leaves, self.module.graph.find_nodes(op="placeholder")
        for node, name, tensor, path in zip(placeholders[1:], leaves.names, leaves.tensors, leaves.paths, strict=True):
            if name in self.tensor_names and path[0] in unbounded and node.users:
                found = Reach(node, self.symbolic.expr).range(tensor.dtype)
                self.ranges |= {name: found} if found else {}

    # --- nodes ------------------------------------------------------------------------------------------------------

    def text(self, expr: Any) -> str:
        """An integer expression, in our language; a long one gets a name."""
        expr = sympy.sympify(self.symbolic.env.replace(expr) if isinstance(expr, sympy.Basic) else expr).subs(self.kept)
        written = integer_text(expr, self.symbols)
        if len(written) <= LONGEST:
            return written
        for name, known in self.derived.items():
            if known == written:
                return name
        if len(written) > 480:
            raise Unwritable(expr, f"a size is a formula of {len(written)} characters")
        name = self._named(f"size{len(self.derived) + 1}")
        self.derived[name] = written
        return name

    def _shape(self, tensor: torch.Tensor) -> list[str]:
        exprs = [sympy.sympify(self.symbolic.expr(size)) for size in tensor.shape]
        self.sizes += exprs
        self.counts.append(product(exprs))
        return [self.text(expr) for expr in exprs]

    def _dtype(self, dtype: torch.dtype) -> str:
        name = NAMES.get(dtype)
        if name is None:
            raise ValueError(f"tensors of type {str(dtype).removeprefix('torch.')} cannot be imported")
        if name == self.dtype:
            return "T"
        if name in ("fp16", "bf16"):
            if not self.is_short:
                self.notes.append(f"what the source rounds to {name} is T here, which a task in 16 bits alone rounds")
            self.is_short = True
            return "T"
        return "ACC" if name == "fp32" and self.dtype in ("fp16", "bf16") else name

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            if value in self.refs:
                return dict(self.refs[value])
            return argument(self.symbolic.expr(value.meta["val"]), self.symbols)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return argument(self.symbolic.expr(value), self.symbols)
        if isinstance(value, list | tuple):
            return [self._argument(each) for each in value]
        if isinstance(value, torch.dtype):
            return self._dtype(value)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return {"calc": "float", "args": ["inf" if value > 0 else "-inf"]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.device | torch.layout | torch.memory_format):
            return None
        raise ValueError(f"an argument of kind {type(value).__name__} cannot be written")

    def _call(self, node: fx.Node) -> None:
        if not isinstance(node.target, torch._ops.OpOverload):
            if getattr(node.target, "__name__", "") == "getitem" and node.args[0] in self.refs:
                self.refs[node] = {**self.refs[node.args[0]], "index": node.args[1]}  # type: ignore[index]
            return
        name = operator_of(node)
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
            if name in ("_local_scalar_dense", "item"):
                raise ValueError("it reads a value of a tensor while it computes, which no graph can")
            return
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            self._draw(node, name)
            return
        source = node.args[0] if node.args else None
        same = name in SAME or (name == "_to_copy" and value.dtype == source.meta["val"].dtype)  # type: ignore[union-attr]
        if same and source in self.refs:
            self.refs[node] = self.refs[source]  # type: ignore[index]
            return
        if name == "as_strided_" and _same_elements(source, node):
            self.refs[node] = self.refs[source]  # type: ignore[index]
            return
        if name == "copy" and _alike(node.args[0], node.args[1]):
            self.refs[node] = self.refs[node.args[1]]  # type: ignore[index]
            return
        tensors = [each for each in (value if isinstance(value, tuple | list) else [value]) if each is not None]
        given = ({"dtype": tensors[0].dtype} if name in FILLED else {}) | node.kwargs
        made = {
            "name": self._named(node.name),
            "op": _written(node),
            "args": [self._argument(each) for each in node.args],
            "kwargs": {k: self._argument(v) for k, v in given.items() if k not in DROPPED and v is not None},
            "outputs": [{"shape": self._shape(each), "dtype": self._dtype(each.dtype)} for each in tensors],
        }
        self.nodes.append(made)
        self.flops.append(self._work(node, name, tensors[0]))
        self.refs[node] = {"ref": made["name"]}

    def _draw(self, node: fx.Node, name: str) -> None:
        """Numbers that the source draws are an input: in fp32, whatever T is, where the source draws fp32 numbers."""
        if name not in LAWS:
            raise ValueError(f"it draws random numbers by a law that has no rule here (aten.{name})")
        law, value = LAWS[name], node.meta["val"]
        mine = self._named({"uniform": "u", "normal": "z"}[law])
        dtype = "ACC" if value.dtype == torch.float32 and self.dtype != "fp64" else self._dtype(value.dtype)
        shape = self._shape(value)
        self.numbers[mine] = (law, value, shape)
        self.inputs.append({"name": mine, "shape": shape, "dtype": dtype})
        self.refs[node] = {"ref": mine}

    def _constant(self, node: fx.Node) -> None:
        tensor: Any = self.module
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        values = tensor.detach() if getattr(tensor, "constant", None) is None else tensor.constant
        if values.numel() > MOST_CONSTANT or type(values).__name__ == "FakeTensor":
            raise ValueError(f"a constant of {values.numel()} elements is part of it; make it an argument")
        name = self._named(f"constant{len(self.constants) + 1}")
        self.constants.append({"name": name, "shape": [str(size) for size in values.shape],
                               "dtype": self._dtype(values.dtype), "values": values.flatten().tolist()})  # fmt: skip
        self.refs[node] = {"ref": name}

    def _work(self, node: fx.Node, name: str, out: torch.Tensor) -> Any:
        """Operations of a plain algorithm."""

        def shape(tensor: Any) -> list[Any]:
            value = tensor.meta["val"] if isinstance(tensor, fx.Node) else tensor
            return [sympy.sympify(self.symbolic.expr(size)) for size in value.shape]

        count = product(shape(out))
        args = [
            each for each in node.args if isinstance(each, fx.Node) and isinstance(each.meta.get("val"), torch.Tensor)
        ]
        if name in ("mm", "bmm"):
            self.terms.append(shape(args[0])[-1])
            return 2 * count * shape(args[0])[-1]
        if name in ("addmm", "baddbmm"):
            self.terms.append(shape(args[1])[-1])
            return 2 * count * shape(args[1])[-1]
        if name == "convolution":
            weight = shape(args[1])
            self.terms.append(product(weight[1:]))
            return 2 * (product(shape(args[0])) if node.args[6] else count) * product(weight[1:])
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            matrices = [shape(each) for each in node.args[2] if each.meta["val"].dim() == 2]  # type: ignore[union-attr]
            self.terms += [columns for _, columns in matrices]
            self.steps.append(shape(args[0])[1 if node.args[8] else 0] * len(matrices))
            return 2 * product(shape(args[0])[:2]) * sympy.Add(*map(product, matrices))
        if "pool" in name and isinstance(node.args[1], list | tuple) and all(isinstance(k, int) for k in node.args[1]):
            return count * product(node.args[1])
        if name in ("view", "permute", "expand", "unsqueeze", "squeeze", "select", "slice"):
            return sympy.Integer(0)
        whole = product(shape(args[0])) if args else count
        if name in ("sort", "topk", "kthvalue", "mode"):
            dims = [each for each in node.args[1:] if isinstance(each, int) and not isinstance(each, bool)]
            dim: Any = node.kwargs.get("dim", [*dims[name == "topk" :], -1][0])
            return whole * shape(args[0])[dim]  # by the ranks of all elements
        if name in ("cumsum", "logcumsumexp"):
            self.terms.append(shape(args[0])[node.args[1]] if shape(args[0]) else sympy.Integer(1))  # type: ignore[index]
        elif name in SUMS:
            shrunk = sympy.cancel(whole / count) if whole != count else whole
            self.terms.append(shrunk if shrunk.is_polynomial() else whole)
        return whole if whole.free_symbols > count.free_symbols else count

    def _outputs(self) -> list[dict[str, Any]]:
        (output,) = [node for node in self.module.graph.nodes if node.op == "output"]
        result, changed = output.args[0]
        leaves = [leaf for leaf in pytree.tree_leaves(result) if _is_node(leaf, self.refs)] + changed
        if not leaves:
            raise ValueError("it returns no tensor, and changes none of its arguments")
        names = [self._named("y" if len(leaves) == 1 else f"y{index}") for index in range(len(leaves))]
        waiting = iter(names)
        self.returned = structure(
            pytree.tree_map(lambda leaf: next(waiting) if _is_node(leaf, self.refs) else None, result)
        )
        self.described_outputs: list[dict[str, Any]] = []
        self.results = [list(leaf.meta["val"].shape) for leaf in leaves]
        taken = {each["name"] for each in self.inputs}
        made: list[dict[str, Any]] = []
        for name, leaf in zip(names, leaves, strict=True):
            ref, value = self.refs[leaf], leaf.meta["val"]
            shape, dtype = self._shape(value), self._dtype(value.dtype)
            entry = {"name": name, "shape": shape, "dtype": "uint8" if dtype == "bool" else dtype}
            self.described_outputs.append({**entry, "bool": dtype == "bool"})
            if dtype == "bool" or ref["ref"] in taken:
                op = ("aten._to_copy.default", {"dtype": "uint8"}) if dtype == "bool" else ("aten.clone.default", {})
                node = {"name": self._named(f"{name}_made"), "op": op[0], "args": [dict(ref)], "kwargs": op[1],
                        "outputs": [{"shape": shape, "dtype": entry["dtype"]}]}  # fmt: skip
                self.nodes.append(node)
                ref = {"ref": node["name"]}
            taken.add(ref["ref"])
            made.append({"name": name, "ref": ref["ref"], "index": ref.get("index", 0)})
        return made

    def _needed(self) -> list[dict[str, Any]]:
        """The nodes that outputs hang on; inputs that none of them reads are left out."""
        wanted = {out["ref"] for out in self.graph["outputs"]}
        kept = []
        for node in reversed([*self.converted, *self.nodes]):
            if node["name"] in wanted:
                kept.append(node)
                wanted |= set(_references([node["args"], node.get("kwargs", {})]))
        self.inputs[:] = [each for each in self.inputs if each["name"] in wanted]
        self.constants[:] = [each for each in self.constants if each["name"] in wanted]
        return kept[::-1]

    # --- what trials and folders ask --------------------------------------------------------------------------------

    def environment(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Dims with those that follow from them."""
        env = dict(dims)
        for name, text in self.derived.items():
            env[name] = parse(text, tuple(env)).evaluate(env)
        return env

    def values(
        self, leaves: Leaves, tensors: list[torch.Tensor], numbers: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The graph's inputs, from leaves of the problem in the same order, and from random numbers."""
        wanted = {each["name"] for each in self.inputs}
        named = {self.tensor_names.get(name): tensor for name, tensor in zip(leaves.names, tensors, strict=True)}
        return {name: tensor for name, tensor in [*named.items(), *numbers.items()] if name in wanted}  # type: ignore[misc]

    def drawn(self, dims: Mapping[str, int], seed: int) -> dict[str, torch.Tensor]:
        """Random numbers as the source draws them, in the order in which it does."""
        env, found = self.environment(dims), dict[str, torch.Tensor]()
        source = torch.Generator().manual_seed(seed)
        for name, (law, like, shape) in self.numbers.items():
            sizes = [parse(axis, tuple(env)).evaluate(env) for axis in shape]
            own = MADE[law](sizes[1:] if self.symbolic.rows else sizes, dtype=like.dtype, generator=source)
            found[name] = own.expand(sizes)  # each row has the same, however many rows before it drew none
        return found

    def bytes(self) -> str:
        """A formula for the bytes of all tensors, with like terms added up."""
        mine = {ours: name for name, ours in self.tensor_names.items()}
        tensors = dict(zip(self.symbolic.leaves.names, self.symbolic.leaves.tensors, strict=True))
        tensors |= {name: like for name, (_, like, _) in self.numbers.items()}
        every = [(each["dtype"], list(tensors[mine.get(each["name"], each["name"])].shape)) for each in self.inputs]
        every += [(each["dtype"], shape) for each, shape in zip(self.described_outputs, self.results, strict=True)]
        sums: dict[str, Any] = {}
        for dtype, shape in every:
            size = str(DTYPES[dtype].size) if dtype in DTYPES else f"sizeof_{dtype}"
            exprs = [sympy.sympify(self.symbolic.expr(number)) for number in shape]
            sums[size] = sums.get(size, 0) + product(exprs)
        return " + ".join(f"{size} * ({self.text(sympy.expand(count))})" for size, count in sums.items())

    def workload(self, symbolic: Symbolic, sizes: Mapping[str, int]) -> dict[str, int]:
        """The dims of a workload."""
        return {dim: int(sizes[knob]) for knob, dim in self.dims.items()}

    def described(self, symbolic: Symbolic, seen: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The tensors of operator.toml: inputs with what they are drawn from, and outputs."""
        tensors = dict(zip(symbolic.leaves.names, symbolic.leaves.tensors, strict=True))
        origins = dict(zip(symbolic.leaves.names, symbolic.leaves.origins, strict=True))
        paths = dict(zip(symbolic.leaves.names, symbolic.leaves.paths, strict=True))
        listed: list[dict[str, Any]] = []
        self._note_numbers()
        mine = {ours: name for name, ours in self.tensor_names.items()}
        for each in self.inputs:
            if each["name"] in self.numbers:
                listed.append({**each, **self._number(each["name"])})
                continue
            name = mine[each["name"]]
            drawn = ("integers", *self.ranges[name]) if name in self.ranges else symbolic.draws.of(tensors[name])
            entry = {**each, "role": "in", "origin": origins[name], "path": paths[name]}
            law = {} if each["name"] in self.sourced else self._drawn(entry, drawn, seen.get(each["name"]))
            listed.append(entry | law)
        masked = {name: {"specials": ["inf"]} for name in self.infinite}
        return listed + [{**each, "role": "out", **masked.get(each["name"], {})} for each in self.described_outputs]

    def _number(self, name: str) -> dict[str, Any]:
        law, *_ = self.numbers[name]
        told = (
            {"distribution": "normal(0, 1)"} if law == "normal" else {"distribution": "uniform(0, 1)", "bounded": True}
        )
        return {"role": "in", "origin": RANDOM, "path": [law], **told}

    def _note_numbers(self) -> None:
        wanted = {each["name"] for each in self.inputs}
        drawn = {n: by for n, by in zip(self.numbers, self.symbolic.numbers.by, strict=False) if n in wanted}
        if drawn:
            by = ", ".join(f"torch.{each}" for each in dict.fromkeys(drawn.values()))
            listed = ", ".join(f"`{name}`" for name in drawn)
            said = f"these are the inputs {listed}" if len(drawn) > 1 else f"the numbers are the input {listed}"
            self.notes.append(f"the source draws with {by}; here {said}, so that a result is right or wrong")

    def _drawn(self, entry: Mapping[str, Any], drawn: Any, seen: Any) -> dict[str, Any]:
        name = entry["name"]
        is_one = seen and seen[1] == seen[2] and seen[0] != "normal" and not drawn
        if (drawn and drawn[0] == "constant") or is_one:
            value = drawn[1] if drawn and drawn[0] == "constant" else seen[1]
            if entry["dtype"] not in ("T", "ACC", "fp32", "fp64", "fp16", "bf16"):
                if value <= 1:
                    return {"distribution": "integers(0, 1)"}
                self.notes.append(f"`{name}` is {value:g} everywhere in the source, and drawn from 1 to {value:g} here")
                return {"distribution": f"integers(1, {value:g})"}
            low, high = value - 0.5, value + 0.5
            self.notes.append(
                f"`{name}` is {value:g} everywhere in the source, and drawn from {low:g} to {high:g} here"
            )
            return {"distribution": f"uniform({low:g}, {high:g})"}
        if drawn and drawn[0] == "integers":
            low, high = (self.text(sympy.sympify(bound)) for bound in drawn[1:])
            whole = all(re.fullmatch(r"-?\d+", bound) for bound in (low, high))
            return {"distribution": f"integers({low}, {high})"} if whole else {"integers": [low, high]}
        if drawn:
            kind, a, b = drawn
            return {"distribution": f"{kind}({number(a)}, {number(b)})"}
        if seen is None:
            return {"distribution": "normal(0, 1)" if entry["dtype"] in ("T", "ACC") else "integers(0, 1)"}
        kind, a, b, pattern = seen
        if entry["dtype"] not in ("T", "ACC", "fp32", "fp64", "fp16", "bf16"):
            kind = "integers"
        self.notes.append(f"`{name}` is drawn from what its values looked like")
        return {"distribution": f"{kind}({number(a)}, {number(b)})"} | ({"pattern": pattern} if pattern else {})


def free_name(wanted: str, taken: set[str]) -> str:
    """Return a name for a kernel's argument that nothing else has, and add it to those that are taken."""
    name = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or "x"
    name = name if name[0].isalpha() else f"x{name}"
    while name in taken | RESERVED | CPP_KEYWORDS | REFERENCE_ARGUMENTS | OWN_OF_REFERENCE or iskeyword(name):
        name += "_"
    taken.add(name)
    return name


def _is_kept(node: fx.Node) -> bool:
    """Whether a node stays without a use: random numbers are told apart by their order."""
    return node.op in ("placeholder", "output") or operator_of(node) in LAWS


def product(factors: Sequence[Any]) -> Any:
    """The product as sympy has it, of none too."""
    return sympy.Mul(*factors)


def _is_node(leaf: Any, refs: Mapping[fx.Node, Any]) -> bool:
    return isinstance(leaf, fx.Node) and leaf in refs


def structure(value: Any) -> Any:
    """Nested tuples, lists and tables of names, as JSON tells them apart."""
    if isinstance(value, Mapping):
        return {"dict": [[key if isinstance(key, str | int) else str(key), structure(v)] for key, v in value.items()]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [structure(each) for each in value]}
    return value


def _alike(one: Any, other: Any) -> bool:
    """Whether two nodes make tensors of one shape and type."""
    a, b = one.meta["val"], other.meta["val"]
    return list(a.shape) == list(b.shape) and a.dtype == b.dtype


def _same_elements(one: Any, other: fx.Node) -> bool:
    """Whether a tensor that is laid out anew, as averages over whole images are, has each element where it was."""
    before, after = one.meta["val"], other.meta["val"].shape
    strides = [each.meta["val"] if isinstance(each, fx.Node) else each for each in other.args[2]]  # type: ignore[union-attr]
    if not _alike(one, other):
        return False
    axes = zip(map(value_of, after), map(value_of, before.stride()), map(value_of, strides), strict=True)
    return all(size == 1 or here == there for size, here, there in axes)


def _written(node: fx.Node) -> str:
    """`aten.add.Tensor`."""
    name, text = operator_of(node), str(node.target)
    if text.startswith(NAMESPACE):
        return f"aten.{name}.input"
    return text.replace("_.", ".") if name in VIEWED else text


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["ref"]] if "ref" in value else []
        return own + [name for inner in value.values() for name in _references(inner)]
    return [name for inner in value for name in _references(inner)] if isinstance(value, list) else []
