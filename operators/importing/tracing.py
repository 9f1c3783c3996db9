"""Looks at a foreign problem once: `python -m operators.importing.tracing`, in a jail, in a folder with `request.json`.

The problem is executed on fake tensors with symbols in the places of its sizes, its computation is recorded as core
ATen operators, and both are tried for real at small sizes. `result.json` is what is found: data, no code.
"""

from __future__ import annotations

import inspect
import json
import math
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import nn
from torch._decomp import core_aten_decompositions
from torch._guards import Source
from torch._subclasses.fake_impls import register_op_impl
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from operators.definition.forms import tensors_bytes
from operators.expression import MAX_CHARACTERS
from operators.importing.draws import Draws, drawn_otherwise, observed, shrunk, varied
from operators.importing.graph import Graph, checked, evaluate
from operators.importing.problems import Problem, problem_of
from operators.importing.recorded import Recorded, recorded
from operators.importing.running import running
from operators.importing.symbols import at, plain, value_of

LOOK_S = 500
"""Seconds that a whole look may compute."""
TRACE_S = 100
"""Seconds that one attempt with symbols may take; after it no sizes are symbols."""
MOST_CALLS = 5000
"""Functions of torch that a computation may call: a loop of Python over elements calls some for each."""
MOST_ELEMENTS = 3_000_000
"""Elements of all values of a computation that is tried for real."""
MOST_HEAVY = 400e6
"""The same of one that cannot be tried with fewer."""
MOST_WORK = 100_000_000
"""Operations at a hidden shape: plain loops take tenths of a second for them."""
Change = Callable[[torch.Tensor], torch.Tensor]
MOST_DEGENERATE = 4
"""The smallest hidden shapes at which zeros and large numbers are tried: there they make up whole rows."""
MOST_TRIED = 16
"""Inputs that are tried one by one."""
MOST_SMALL = 1 << 29
"""Elements of all values in the workload set `small`: 4 GiB in fp64."""
MOST_QUICK, MOST_QUICK_WORK = 30_000_000, 3e9
"""Elements, and operations, of recorded calls that are workloads of the set `cpu` too: plain loops take a second."""
MOST_LOST = 1 / 2
"""Share of results that may leave the range of the source's type."""
SCALES = (1.0, 1 / 8, 1 / 64, 1 / 512)
"""Factors of what a source draws, tried until results keep to their range."""
REAL_S = 20
BY_VALUES = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
FLOATING = ("T", "ACC", "fp16", "bf16", "fp32", "fp64")
WIDEST = 1e4
"""Largest median of S, as a multiple of the largest result, for which analysed errors tell right from wrong."""
KINDS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "one element": (1, (1,)),
    "small": (2, (1, 2, 3, 4, 5)),
    "odd": (3, (3, 7, 17, 33, 65)),
    "even, no multiple of 8": (2, (2, 6, 10, 34, 100)),
    "divisible by 8": (2, (8, 24, 40, 72)),
    "divisible by 32": (6, (32, 64, 96, 160, 32)),
}
"""Kinds of hidden shapes: how many are wanted, and sizes that make them."""


class Failed(Exception):
    """A problem cannot be imported; the text is one line."""


class Hopeless(Failed):
    """No other sizes would help."""


class Unrolled(Hopeless):
    """A foreign source calls a function of torch for each of many elements."""


class TooLong(Failed):
    """A foreign source computes for longer than it may."""


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


@contextmanager
def foreign(seconds: int) -> Iterator[None]:
    """Raise Failed for what a foreign source raises, and where it computes for longer, however busy the machine is."""

    def ring(*_: Any) -> None:
        raise TimeoutError(f"it takes longer than {seconds} s")

    before, left = signal.signal(signal.SIGPROF, ring), signal.setitimer(signal.ITIMER_PROF, seconds)[0]
    try:
        yield
    except Failed:
        raise
    except TimeoutError as error:
        raise TooLong(str(error)) from None
    except ModuleNotFoundError as error:
        raise Hopeless(
            f"it needs the package {error.name}, which is not here: install it beside torch, or name the folder that "
            "it lies in by PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the border to a foreign source)
        raise Failed(f"{type(error).__name__}: {' '.join(str(error).split())[:250]}") from None
    finally:
        signal.signal(signal.SIGPROF, before)
        signal.setitimer(signal.ITIMER_PROF, left)


def prepare_torch() -> None:
    """Let modules be built from symbolic sizes, and leave out what a CPU lacks."""
    fan = nn.init._calculate_fan_in_and_fan_out

    def plain_fan(tensor: torch.Tensor) -> tuple[int, int]:
        return fan(torch.empty([plain(size) for size in tensor.shape], device="meta"))

    def plain_correct_fan(tensor: torch.Tensor, mode: str) -> int:
        return plain_fan(tensor)[0 if mode.lower() == "fan_in" else 1]

    nn.init._calculate_fan_in_and_fan_out = plain_fan
    nn.init._calculate_correct_fan = plain_correct_fan
    root = math.sqrt

    def either_root(number: Any) -> Any:
        return torch.sym_sqrt(number) if isinstance(number, torch.SymInt | torch.SymFloat) else root(number)

    math.sqrt = either_root
    nn.functional.linear = linear_of_rows
    register_op_impl(torch.ops.aten.constant_pad_nd.default)(padded)
    FakeTensor.__deepcopy__ = copied  # type: ignore[method-assign]
    torch.SymInt.__deepcopy__ = lambda self, _: self  # type: ignore[attr-defined]
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.cuda.synchronize = lambda *_: None


def linear_of_rows(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The result of torch's own, which makes constants of the sizes of a tensor of more than two axes."""
    if input.dim() <= 2:
        return linear(input, weight, bias)
    rows = linear(input.reshape(math.prod(input.shape[:-1]), input.shape[-1]), weight, bias)
    return rows.reshape(*input.shape[:-1], weight.shape[0])


def padded(mode: Any, func: Any, x: torch.Tensor, pad: Sequence[Any], value: float = 0) -> torch.Tensor:
    """The shape of a padded tensor; torch's own makes constants of the sizes of all its axes."""
    sizes = list(x.shape)
    for axis in range(len(pad) // 2):
        sizes[-1 - axis] = sizes[-1 - axis] + pad[2 * axis] + pad[2 * axis + 1]
    with mode:
        return x.new_empty(sizes)


def copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """The copy of a layer's tensor, whose memory has no size to copy."""
    made = tensor.detach().clone()
    memo[id(tensor)] = made = nn.Parameter(made) if isinstance(tensor, nn.Parameter) else made
    return made


@contextmanager
def plain_parameters() -> Iterator[None]:
    """Let tensors be parameters as they are: a new Parameter would be a constant to the tracer."""
    parameter, assign = nn.Parameter, nn.Module.__setattr__

    class Plain(parameter):  # type: ignore[misc,valid-type]
        def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
            return data

    def assigned(self: nn.Module, name: str, value: Any) -> None:
        if name in self.__dict__.get("_parameters", {}) and type(value) is not parameter:
            del self._parameters[name]
        assign(self, name, value)

    nn.Parameter, nn.Module.__setattr__ = Plain, assigned  # type: ignore[misc,method-assign]
    try:
        yield
    finally:
        nn.Parameter, nn.Module.__setattr__ = parameter, assign  # type: ignore[misc,method-assign]


class Seedless(TorchFunctionMode):
    """Leaves generators out of calls, as symbols have no values to draw, and makes shapes depend on no values."""

    def __init__(self, most_calls: float = math.inf) -> None:
        super().__init__()
        self.left, self.most_calls = most_calls, most_calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function without its generator."""
        kwargs = {name: each for name, each in (kwargs or {}).items() if name != "generator"}
        if kwargs.get("inplace"):  # torch takes those apart by numbers that no symbol can shape
            return args[0].copy_(func(*args, **{**kwargs, "inplace": False}))
        counts = func in (torch.bincount, torch.Tensor.bincount)
        found = counted(*args, **kwargs) if counts else func(*args, **kwargs)
        if func is torch.linspace and isinstance(found, FakeTensor) and not found._has_symbolic_sizes_strides:
            with unset_fake_temporarily():  # rates of layers are read from it
                found.constant = func(*args, **kwargs)
        # A tracer reads attributes of tensors, many for each that it meets: only what makes tensors counts.
        self.left -= isinstance(found, torch.Tensor)
        if self.left < 0:
            raise Unrolled(
                f"it calls more than {self.most_calls:,} functions of torch, as loops of Python over elements do: a "
                "graph needs functions of whole tensors"
            )
        return found


def counted(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """The result of torch.bincount for values below `minlength`; trials tell whether they are."""
    weights = torch.ones_like(x, dtype=torch.int64) if weights is None else weights
    return torch.zeros(minlength, dtype=weights.dtype, device=x.device).scatter_add(0, x.to(torch.int64), weights)


class Leaves:
    """The tensors that a call is made of: parameters and buffers of its module, and tensors among its arguments."""

    def __init__(self, call: Callable[..., Any], args: list[Any]) -> None:
        self.call, self.module = call, call if isinstance(call, nn.Module) else None
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.origins: list[str] = []
        self.paths: list[list[Any]] = []
        """Where each is found: the name in its module, or the argument's number and the keys within it."""
        if self.module is not None:
            for each in self.module.modules():
                if isinstance(each, nn.modules.dropout._DropoutNd):
                    each.p = 0.0
                elif hasattr(each, "dropout") and isinstance(each.dropout, float):
                    each.__dict__["dropout"] = 0.0
                for name, value in list(vars(each).items()):  # a state that it was made with, and did not register
                    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim():
                        del vars(each)[name]
                        each.register_buffer(name, value)
            self._add(self.module.named_parameters(), "parameter")
            self._add(self.module.named_buffers(), "buffer")
        self.held = len(self.names)
        flat, self.spec = pytree.tree_flatten_with_path(args)
        self.flat = [leaf for _, leaf in flat]
        names = argument_names(self.module.forward if self.module is not None else call)
        self.places = []
        for index, (path, leaf) in enumerate(flat):
            if isinstance(leaf, torch.Tensor):
                self.places.append(index)
                first = getattr(path[0], "idx", 0)
                parts = [names[first] if first < len(names) else f"x{first}"]
                keys = [getattr(key, "key", getattr(key, "idx", str(key))) for key in path[1:]]
                self.names.append("_".join([*parts, *map(str, keys)]))
                self.paths.append([first, *keys])
                self.tensors.append(leaf)
                self.origins.append("input")

    def _add(self, named: Any, origin: str) -> None:
        for name, tensor in named:
            self.names.append(name)
            self.tensors.append(tensor)
            self.origins.append(origin)
            self.paths.append([name])

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Call with these tensors in the places of the leaves."""
        flat = list(self.flat)
        for place, tensor in zip(self.places, tensors[self.held :], strict=True):
            flat[place] = tensor
        args = pytree.tree_unflatten(flat, self.spec)
        with torch.no_grad():
            if self.module is None:
                return self.call(*args)
            held = dict(zip(self.names[: self.held], tensors[: self.held], strict=True))
            return functional_call(self.module, held, tuple(args))


def argument_names(function: Any) -> list[str]:
    """The names of the arguments of a function."""
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        return []


class Symbolic:
    """One attempt: the problem with symbols for some of its sizes, and its computation recorded."""

    def __init__(self, problem: Problem, fixed: set[str]) -> None:
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

        fake = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        # The choice of a faster convolution would be a condition on sizes.
        with fake, torch.backends.mkldnn.flags(enabled=False), torch.backends.nnpack.flags(enabled=False):
            with self.draws, Seedless():
                self.leaves = Leaves(*problem.made(knob))
            self.symbols = {n: s for n, s in self.symbols.items() if isinstance(s, torch.SymInt)}
            held = torch.empty(list(self.symbols.values()))  # for the tracer to know every symbol
            tensors = self.leaves.tensors
            with torch.no_grad(), Seedless(MOST_CALLS):
                function = functionalize(lambda _, *given: self.leaves(*given))
                table: Any = core_aten_decompositions()
                with plain_parameters():
                    try:
                        self.module = make_fx(function, table, "real", _allow_non_fake_inputs=True)(held, *tensors)
                    except BY_VALUES:
                        raise Hopeless(
                            "it decides by values of its tensors (an `if`, nonzero, a mask as an index), which no "
                            "graph can say"
                        ) from None

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


def attempts(problem: Problem) -> Symbolic:
    """The problem with as many symbols as it bears. Raises Failed with the reason of the last attempt."""
    found, reason = _attempted(problem, list(problem.attempts()))
    if (found is None or not found.used()) and problem.sizes:
        try:
            with foreign(REAL_S):
                watched = seen_from_outside(problem)
            found = _attempted(watched, [set()])[0] or found
        except Failed as error:
            reason = reason or str(error)
    if found is None:
        raise Failed(f"its source cannot be traced: {reason}")
    return found


def _attempted(problem: Problem, attempts: list[set[str]]) -> tuple[Symbolic | None, str]:
    reason, waiting = "", list(attempts)
    while waiting:
        fixed = waiting.pop(0)
        try:
            with foreign(TRACE_S):
                return Symbolic(problem, fixed), ""
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


# --- real sizes -------------------------------------------------------------------------------------------------------


def real(
    problem: Problem, sizes: Mapping[str, int], seed: int, scale: float = 1.0
) -> tuple[Leaves, list[torch.Tensor], Any]:
    """The problem executed at these sizes: its leaves, `scale` times what it drew, copies of its tensors, and what it
    computes."""
    torch.manual_seed(seed)
    random.seed(seed)
    leaves = Leaves(*problem.made(lambda name: sizes[name]))
    if scale != 1:
        leaves.tensors = [x.detach() * scale if x.is_floating_point() else x for x in leaves.tensors]
    tensors = [tensor.detach().clone() for tensor in leaves.tensors]
    return leaves, tensors, leaves(*leaves.tensors)


def outputs_of(result: Any) -> list[torch.Tensor]:
    """The tensors among what a problem returns."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


class Trials:
    """Executes the problem for real at small sizes, and compares with our evaluation of its graph."""

    def __init__(self, problem: Problem, made: Recorded, symbolic: Symbolic, graph: Graph, scale: float = 1.0) -> None:
        self.problem, self.made, self.symbolic, self.graph = problem, made, symbolic, graph
        self.scale = scale
        """Factor of the numbers that the source draws."""
        self.leaves_range = False
        """Whether most results of some shape are not finite in the source's type, and are in fp64."""
        self.guards, self.used = symbolic.guards(), symbolic.used()
        self.shown: dict[str, tuple[str, float, float, str]] = {}
        self.differences: list[str] = []
        self.constant: list[bool] = []
        self.base = {made.dims[name]: problem.sizes[name] for name in made.dims}
        self.least, self.most_work = float(MOST_ELEMENTS), float(MOST_WORK)
        self.is_heavy = False
        """Whether even its smallest sizes are above these."""

    def values(self, dims: Mapping[str, int]) -> dict[Any, int]:
        """Sizes by symbol; one that no tensor comes from keeps the source's."""
        used, own = self.used, self.problem.sizes
        return {s: dims[self.made.dims[n]] if n in self.made.dims else own[n] for s, n in used.items()}

    def sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """All knobs for these dims: what is unified with a dim goes with it, all else stays."""
        values = self.values(dims)
        sizes = dict(self.problem.sizes)
        for name, symbol in self.symbolic.symbols.items():
            expr = sympy.sympify(self.symbolic.expr(symbol))
            sizes[name] = int(expr.subs(values))
        return sizes

    def allows(self, dims: Mapping[str, int], *, large: bool = False) -> bool:
        """Whether the guards hold there, and it is not too large to be tried."""
        values, known = self.values(dims), dict[Any, Any]()
        try:
            if not all(bool(at(guard, values, known)) for guard in self.guards):
                return False
            if any(int(at(size, values, known)) < 1 for size in self.made.sizes):
                return False
            return large or (self.elements(dims) <= self.least and self.work(dims) <= self.most_work)
        except (TypeError, ValueError, ZeroDivisionError):
            return False

    def refusal(self) -> str:
        """Why no smaller size is tried: the condition that fails at the source's own sizes, or how large these are."""
        values, known, here = self.values(self.base), dict[Any, Any](), _at(self.base)
        try:
            for guard in self.guards:
                if not bool(at(guard, values, known)):
                    return f"no size fits its conditions: {str(guard)[:160]} does not hold at {here}"
            numbers, work = self.elements(self.base), self.work(self.base)
            return (
                f"no size that is small enough fits its conditions: at {here} it has {numbers:.3g} numbers, {work:.3g} "
                f"operations, and at most {self.least:.3g} and {self.most_work:.3g} are tried"
            )
        except (TypeError, ValueError, ZeroDivisionError) as error:
            return f"no size fits its conditions: they cannot be told at {here} ({str(error)[:160]})"

    def elements(self, dims: Mapping[str, int]) -> int:
        """Elements of all values."""
        values, known = self.values(dims), dict[Any, Any]()
        return sum(int(at(count, values, known)) for count in self.made.counts)

    def passes(self, dims: Mapping[str, int]) -> bool:
        """Whether source and graph agree there; what its tensors look like is kept."""
        sizes = self.sizes(dims)
        try:
            with foreign(REAL_S):
                leaves, tensors, result = real(self.problem, sizes, 0, self.scale)
                if self.problem.is_pure and not all(map(torch.equal, leaves.tensors, tensors)):
                    raise Failed("it changes its arguments in place, which a kernel in its place would not")
                ours = evaluate(self.graph, self.made.values(leaves, tensors), self.made.environment(dims))
                theirs = outputs_of(result)
                with torch.no_grad():
                    again = outputs_of(real(self.problem, sizes, 1, self.scale)[2])
        except Failed as error:
            self.differences.append(f"{_at(dims)}: {str(error)[:160]}")
            return False
        if len(ours) != len(theirs):
            self.differences.append(f"{_at(dims)}: {len(theirs)} results, not {len(ours)}")
            return False
        for (name, mine), their in zip(ours.items(), theirs, strict=True):
            if tuple(mine.shape) != tuple(their.shape) or not close(mine, their):
                reason = self._difference(name, leaves, tensors, dims, mine, their)
                if reason:
                    self.differences.append(f"{_at(dims)}: {reason}")
                    return False
        self.constant.append(
            all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(theirs, again, strict=True))
        )
        for name, tensor in zip(leaves.names, tensors, strict=True):
            if tensor.numel() >= self.shown_numel(name):
                self.shown[name] = observed(tensor)
                self._numel[name] = tensor.numel()
        return True

    def _difference(
        self,
        name: str,
        leaves: Leaves,
        tensors: list[torch.Tensor],
        dims: Mapping[str, int],
        mine: torch.Tensor,
        their: torch.Tensor,
    ) -> str:
        """Why a result is another than the source's: in its own type the graph may well compute the same. Nothing where
        few numbers leave that type's range."""
        if their.is_floating_point():
            values, env = self.made.values(leaves, tensors), self.made.environment(dims)
            again = evaluate(self.graph, values, env, their.dtype)[name]
            if tuple(again.shape) == tuple(their.shape) and close(again, their):
                held = their.isfinite()
                lost = float((mine.isfinite() & ~held).double().mean())
                if lost > MOST_LOST:
                    self.leaves_range = True
                    return f"with what the source draws, most numbers of its `{name}` leave the range of its type"
                if not lost or not close(mine[held], their[held]):
                    return f"rounding decides its `{name}`, which differs from the same in fp64"
                return ""
        return f"the graph computes another `{name}` than the source"

    def shown_numel(self, name: str) -> int:
        """Elements of the largest tensor of the name that was looked at."""
        self._numel = getattr(self, "_numel", {})
        return int(self._numel.get(name, 0))

    def hidden(self) -> list[dict[str, Any]]:
        """Shapes of every kind at which source and graph agree."""
        lowest = self.lowest()
        self._raise_limit(lowest)
        found = self._confirmed(lowest)
        if not found and any("rounding decides" in line for line in self.differences):
            # Small images leave a deep network's norms two numbers each, whose signs are chance.
            self.is_heavy, self.least, self.most_work = True, MOST_HEAVY, max(self.most_work, MOST_QUICK_WORK)
            found = self._confirmed(lowest)
        return found

    def _confirmed(self, lowest: Mapping[str, int]) -> list[dict[str, Any]]:
        rng, found, seen = random.Random(0), [], set()
        for kind, (wanted, pool) in KINDS.items():
            kept = tries = 0
            wanted = 1 if self.is_heavy else wanted
            for number in range(400):
                if kept == wanted or tries == 3 * wanted:
                    break
                dims = {dim: self._size(rng, dim, pool, lowest[dim], strict=number == 0) for dim in self.base}
                key = tuple(dims.values())
                if key in seen or not self.allows(dims):
                    continue
                seen.add(key)
                tries += 1
                if self.passes(dims):
                    kept += 1
                    found.append({"source": kind, "dims": dims})
        return found

    def _size(self, rng: random.Random, dim: str, pool: tuple[int, ...], lowest: int, *, strict: bool) -> int:
        """A size of a kind; now and then another one, unless it is `strict`, as conditions may tie dims together."""
        base = self.base[dim]
        if strict or rng.random() < 0.75:
            size = rng.choice(pool)
            step = 2 * (size & -size)  # what is this much larger is even as often
            return size + max(0, -((size - lowest) // step)) * step
        return max(lowest, rng.choice((base, base >> 1, base >> 2, base >> 3, base >> 4, base >> 5, base * 2)))

    def lowest(self) -> dict[str, int]:
        """The smallest sizes that its conditions allow: the largest halved again and again, and then each lowered."""
        *_, dims = self._halved()
        for dim in dims:
            # Conditions may ask for multiples, which a bisection would miss.
            tried = (size for size in (*range(1, 33), *range(40, 257, 8)) if size < dims[dim])
            found = next((size for size in tried if self.allows(dims | {dim: size}, large=True)), None)
            least = found or 1
            while not found and least < dims[dim]:
                middle = (least + dims[dim]) // 2
                if self.allows(dims | {dim: middle}, large=True):
                    dims = dims | {dim: middle}
                else:
                    least = middle + 1
            dims = dims | {dim: found or dims[dim]}
        return dims

    def _raise_limit(self, lowest: Mapping[str, int]) -> None:
        """A problem whose constants are large cannot be tried small; it is tried as small as it can be, and less."""
        try:
            least, work = self.elements(lowest), self.work(lowest)
        except (TypeError, ValueError, ZeroDivisionError):  # half of one is no size
            return
        self.is_heavy = least > self.least or work > self.most_work
        self.least = max(self.least, min(3 * least, MOST_HEAVY))
        self.most_work = max(self.most_work, 3 * work)

    def smaller(self) -> dict[str, int] | None:
        """Sizes like the problem's own that a CPU computes in little time."""
        fitting = (d for d in self._halved() if self.work(d) <= 3e7 and self.allows(d) and self.passes(d))
        return next(fitting, None)

    def follows(self, sizes: Mapping[str, int]) -> bool:
        """Whether the graph computes a workload of these sizes: a recorded one may depart from its conditions."""
        dims = {dim: sizes[knob] for knob, dim in self.made.dims.items()}
        if not self.problem.is_pure or (self.allows(dims, large=True) and self.sizes(dims) == sizes):
            return True
        self.made.notes.append(f"left out, as it computes otherwise there: {_at(sizes)}")
        return False

    def quick(self) -> list[dict[str, int]]:
        """Recorded sizes that a CPU computes in some time."""
        found = [{dim: sizes[knob] for knob, dim in self.made.dims.items()} for sizes in self.problem.workloads]
        fitting = [dims for dims in found if self.allows(dims, large=True) and self.work(dims) <= MOST_QUICK_WORK]
        return [dims for dims in fitting if self.elements(dims) <= MOST_QUICK]

    def small(self) -> dict[str, int] | None:
        """Sizes like the problem's own whose values, the reference's in fp64 included, fit a card of 24 GB."""
        return next((dims for dims in self._halved() if self.elements(dims) <= MOST_SMALL), None)

    def _halved(self) -> Iterator[dict[str, int]]:
        """The problem's own sizes, and ever smaller ones that its conditions allow: the largest is halved."""
        dims = dict(self.base)
        for _ in range(200):
            yield dims
            order = sorted((dim for dim in dims if dims[dim] > 1), key=lambda dim: -dims[dim])
            lower = (dims | {dim: max(1, dims[dim] // 2)} for dim in order)
            found = next((each for each in lower if self.allows(each, large=True)), None)
            if found is None:
                return
            dims = found

    def bound(self, dims: Mapping[str, int]) -> str:
        """`running` where error analysis bounds errors well, `sampled` where it is too wide, and `measured` where it
        does not know an operator."""
        try:
            with foreign(REAL_S), torch.no_grad():
                leaves, tensors, _ = real(self.problem, self.sizes(dims), 2, self.scale)
                values = self.made.values(leaves, tensors)
                names, env = list(values), self.made.environment(dims)

                def reference(*given: torch.Tensor) -> dict[str, torch.Tensor]:
                    return evaluate(self.graph, dict(zip(names, given, strict=True)), env)

                doubles = [varied(v.double()) if v.is_floating_point() else v for v in values.values()]
                outputs, sizes = reference(*doubles), running(reference, "fp32")(*doubles)
        except Failed as error:
            self.made.notes.append(f"errors are measured: {str(error)[:160]}")
            return "measured"
        for name, y in outputs.items():
            if y.is_floating_point() and y.numel():
                largest = float(y.abs().max())
                if not float(sizes[name].median()) <= WIDEST * (largest or 1.0):
                    self.made.notes.append("errors are bounded by samples, as their analysis is too wide")
                    return "sampled"
        return "running"

    def telling(self, dims: Mapping[str, int]) -> float:
        """A spread of inputs that results depend on. It raises Failed where there is none."""
        for scale in (8.0, 64.0):
            with foreign(REAL_S), torch.no_grad():
                leaves, tensors, _ = real(self.problem, self.sizes(dims), 0, self.scale)
                values, found = self.made.values(leaves, tensors), []
                for _ in range(2):
                    drawn = {n: v.normal_(0, scale) if v.is_floating_point() else v for n, v in values.items()}
                    found.append(evaluate(self.graph, drawn, self.made.environment(dims)))
            if any(not torch.equal(y.nan_to_num(), found[1][name].nan_to_num()) for name, y in found[0].items()):
                return scale
        raise Failed("its results do not depend on its inputs, so that every wrong kernel would pass: it is no task")

    def fragile(self, shapes: Sequence[Mapping[str, int]], *kinds: Sequence[Change]) -> list[set[str]]:
        """By kind of changes, the inputs that may not be changed so: results are not finite then, at one of these
        shapes."""
        found: list[set[str]] = [set() for _ in kinds]
        for dims in shapes:
            with foreign(REAL_S), torch.no_grad():
                leaves, tensors, _ = real(self.problem, self.sizes(dims), 0, self.scale)
                values = {
                    n: v.double() if v.is_floating_point() else v for n, v in self.made.values(leaves, tensors).items()
                }
                for names, changes in zip(found, kinds, strict=True):
                    for change in changes:
                        names |= self._fragile(values, self.made.environment(dims), change)
        return found

    def _fragile(self, values: Mapping[str, torch.Tensor], env: Mapping[str, int], change: Change) -> set[str]:
        floating = [name for name, value in values.items() if value.is_floating_point()]

        def finite(names: Sequence[str]) -> bool:
            drawn = {name: change(v) if name in names else v for name, v in values.items()}
            return all(bool(y.isfinite().all()) for y in evaluate(self.graph, drawn, env).values())

        if finite(floating) or not finite([]):
            return set()
        one_by_one = floating if len(floating) <= MOST_TRIED else []
        return {name for name in one_by_one if not finite([name])} or set(floating)

    def work(self, dims: Mapping[str, int]) -> float:
        """Operations of a plain algorithm."""
        values, known = self.values(dims), dict[Any, Any]()
        return float(sum(int(at(count, values, known)) for count in self.made.flops))


def close(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether our fp64 result is what the source computes, but for rounding."""
    if not theirs.is_floating_point():
        return bool((mine == theirs).double().mean() > 0.99) if theirs.numel() else True
    short = theirs.dtype in (torch.float16, torch.bfloat16)
    theirs = theirs.double()
    finite = theirs.isfinite()
    if not bool((mine.isfinite() == finite).all()):
        return False
    scale = float(theirs[finite].abs().max()) if bool(finite.any()) else 0.0
    off = (mine.double() - theirs)[finite].abs()
    return not off.numel() or float(off.max()) <= (5e-2 if short else 2e-3) * scale + 1e-5


def _at(dims: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in dims.items()) or "its sizes"


# --- all of it --------------------------------------------------------------------------------------------------------


def look(problem: Problem) -> dict[str, Any]:
    """The description of a problem. Raises Failed."""
    try:
        symbolic = attempts(problem)
    except Unrolled:
        if not problem.chosen:
            raise
        problem = problem.smallest()
        symbolic = attempts(problem)
    try:
        made = recorded(symbolic, problem)
    except ValueError as error:
        raise Failed(str(error)) from None
    graph = checked(made.graph)
    scale, trials, hidden, cpu = in_range(problem, made, symbolic, graph)
    seen = {made.tensor_names.get(name, name): shown for name, shown in trials.shown.items()}
    described = made.described(symbolic, seen)
    if scale != 1:
        for each in described:
            each |= shrunk(each, scale) if each["role"] == "in" and each["dtype"] in FLOATING else {}
        made.notes.append(
            f"numbers are drawn {1 / scale:g} times smaller than in the source, with whose own most results leave the "
            "range of their type"
        )
    if all(trials.constant):
        scale = trials.telling(cpu)
        for each in described:
            if each["role"] == "in" and each["dtype"] in FLOATING:
                each["distribution"] = f"normal(0, {scale:g})"
        made.notes.append(
            f"the source's own inputs all give one result: numbers are drawn from normal(0, {scale:g}) here"
        )
    smallest = sorted((shape["dims"] for shape in hidden), key=trials.elements)
    shapes = [cpu, *smallest[: 1 if trials.is_heavy else MOST_DEGENERATE]]
    drawn_otherwise(made, trials, [each for each in described if each["role"] == "in"], shapes)
    return {
        "graph": made.graph,
        "derived": made.derived,
        "dims": trials.base,
        "hidden": hidden,
        "cpu": cpu,
        "quick": trials.quick() if problem.is_pure else [],
        "small": trials.small() or cpu,
        "inputs": described,
        "returned": made.returned,
        "flops": written(made, made.flops, trials),
        "bytes": made.bytes() if len(tensors_bytes(described)) > MAX_CHARACTERS else "",
        "terms": next(iter(written(made, made.terms, trials)), "1"),
        "dtype": made.dtype,
        "workloads": [made.workload(symbolic, sizes) if trials.follows(sizes) else {} for sizes in problem.workloads],
        "bound": trials.bound(cpu),
        "notes": [*made.notes, *problem.notes],
        "differences": trials.differences[:3],
    }


def in_range(
    problem: Problem, made: Recorded, symbolic: Symbolic, graph: Graph
) -> tuple[float, Trials, list[dict[str, Any]], dict[str, int]]:
    """The scale at which the source's numbers give results in their type's range, the trials with these, the hidden
    shapes on which graph and source agree, and sizes for a CPU. Raises Failed where there is no such scale or shape."""
    for scale in SCALES:
        trials = Trials(problem, made, symbolic, graph, scale)
        hidden, cpu = trials.hidden(), trials.smaller()
        if not trials.leaves_range:
            break
    else:
        raise Failed(
            f"with what it draws, and with numbers {1 / scale:g} times smaller, most of its results leave the range of "
            "their type: it could not tell a right kernel from a wrong one"
        )
    if not hidden:
        reason = (
            min(trials.differences, key=lambda line: "rounding decides" not in line, default="") or trials.refusal()
        )
        raise Failed(f"its graph cannot be confirmed against its source: {reason}")
    if (least := min(trials.work(shape["dims"]) for shape in hidden)) > MOST_QUICK_WORK:
        made.notes.append(
            f"its smallest sizes take {least:.2g} operations: plain loops on a CPU take longer for them than a verdict "
            "waits, so that its first kernel can be judged on a GPU only"
        )
    return scale, trials, hidden, cpu or hidden[-1]["dims"]


def written(made: Recorded, counts: list[Any], trials: Trials) -> list[str]:
    """Different expressions, the largest at the problem's own sizes first."""
    values = trials.values(trials.base)
    known = {sympy.sympify(count) for count in counts} - {0}
    ordered = sorted(known, key=lambda count: (-int(count.subs(values)), str(count)))
    times = {count: sum(1 for each in counts if sympy.sympify(each) == count) for count in ordered}
    return [made.text(count * times[count]) if counts is made.flops else made.text(count) for count in ordered[:8]]


def main() -> None:
    """Read the request in this folder, and write the result there."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, ".")
    torch.set_num_threads(1)
    request = json.loads(Path("request.json").read_text(encoding="utf-8"))
    prepare_torch()
    try:
        with foreign(LOOK_S):
            found = look(problem_of(request))
    except Failed as error:
        found = {"failed": str(error)}
    Path("result.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
