"""A foreign problem executed on fake tensors with symbols in the places of its sizes, recorded as ATen operators."""

from __future__ import annotations

import inspect
import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from operators.importing.draws import Draws
from operators.importing.problems import Problem
from operators.importing.symbols import plain, value_of

TRACE_S = 100
"""Seconds that one attempt with symbols may take; after it no sizes are symbols."""
MOST_CALLS = 5000
"""Functions of torch that a computation may call: a loop of Python over elements calls some for each."""
REAL_S = 20
BY_VALUES = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)


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
