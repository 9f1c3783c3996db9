"""Running error analysis: the magnitude of an operator's rounding errors, from its reference alone.

    def magnitude(x, weight, dtype):
        return running(reference, dtype)(x, weight)

Every ATen operator that `reference` calls is executed, and with each number goes a bound of its error, in roundoffs of
the accumulator: what the errors of its arguments come to, and its own (Higham, "Accuracy and Stability of Numerical
Algorithms", section 3.3). Errors need not be small: functions are evaluated at the ends of what their arguments may be.
A sum of n terms is off by as many roundoffs of their magnitudes as the bound grants one of n `terms`; the longest is
the unit, so `terms` in operator.toml is to be the length of the longest sum. In tasks of 16 bits the result of every
operator, its statistics and constants are stored in 16 bits, as vendors' libraries do.

The bound grows with every layer, as no error is taken to cancel another: that of a deep network says nothing. There
`sampled` stands in the place of `running`: it makes each operator's own error, up or down by chance, and sees what the
results become (Parker, "Monte Carlo Arithmetic", UCLA 1997).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from operators.dtypes import DType
from operators.errors import OperatorError
from operators.importing.graphs.decompositions import RULES as DECOMPOSITIONS
from operators.importing.graphs.pointwise import COMPARISONS
from operators.importing.graphs.steps import Stepwise
from operators.importing.rounding.held import FEW_TERMS, LARGEST, HeldErrors, bounded
from operators.importing.rounding.rules import RULES, exchanged, read_there, written_there
from operators.shared.errors import DIVISION_ULPS, EXP_ULPS, LOG_ULPS, ROOT_ULPS, SINE_ULPS

SAMPLES = 12
"""Evaluations of `sampled`. In every third of them all numbers of a result move the same way."""
SAMPLED_FACTOR = 4.0
"""Bound as a multiple of the largest change in these: all samples of a number may be small by chance."""
EXACT = frozenset((
    "relu", "neg", "abs", "maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "floor", "ceil",
    "round", "trunc", "sign", "hardtanh", "threshold", "hardshrink", "where", "masked_fill", "_to_copy", "clone",
    "copy", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "copysign", *COMPARISONS,
))  # fmt: skip
"""Operators without errors of their own."""
CHOICES = frozenset(
    ("where", "masked_fill", "isnan", "isinf", "isfinite", "bitwise_and", "bitwise_or", "bitwise_not", *COMPARISONS)
)
"""Operators that leave out some of their arguments, or tell whether something is so."""
LOCAL: Mapping[str, Callable[..., Any]] = {
    "exp": lambda y, x: (EXP_ULPS + x.abs()) * y.abs(), "exp2": lambda y, x: (EXP_ULPS + x.abs()) * y.abs(),
    "sigmoid": lambda y, x: (EXP_ULPS + DIVISION_ULPS + x.abs()) * y.abs(),
    "div": lambda y, *_: DIVISION_ULPS * y.abs(), "reciprocal": lambda y, x: DIVISION_ULPS * y.abs(),
    "sqrt": lambda y, x: ROOT_ULPS * y.abs(), "rsqrt": lambda y, x: ROOT_ULPS * y.abs(),
    "gelu": lambda y, x, *_: EXP_ULPS * x.abs(), "mish": lambda y, x: EXP_ULPS * (1 + x.abs()),
    "softplus": lambda y, x, *_: EXP_ULPS * (1 + x.abs()), "pow": lambda y, *_: 2 * EXP_ULPS * y.abs(),
    **{name: lambda y, *_: y.abs() / 2 for name in ("add", "sub", "rsub", "mul", "square", "leaky_relu")},
    "lerp": lambda y, a, b, *_: a.abs() + b.abs(),
    **{name: lambda y, *_: LOG_ULPS * (1 + y.abs()) for name in (
        "log", "log2", "log10", "log1p", "lgamma", "log_sigmoid_forward", "elu", "celu", "expm1", "logit", "xlogy")},
    **{name: lambda y, *_: SINE_ULPS * (1 + 0 * y) for name in ("sin", "cos", "tanh", "erf", "erfc")},
}  # fmt: skip
"""The own error of a function, in roundoffs over two, as the bound grants two of them; others have two of |y|."""
SMOOTH = EXACT | LOCAL.keys() | frozenset((
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "hypot", "fmod",
    "remainder", "floor_divide", "hardsigmoid", "hardswish", "softshrink", "addcmul", "addcdiv",
))  # fmt: skip
MOVES = frozenset((
    "cat", "stack", "gather", "index", "_unsafe_index", "index_select", "constant_pad_nd", "embedding", "flip",
    "roll", "repeat", "tril", "triu", "scatter", "slice_scatter", "select_scatter", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "index_put", "_unsafe_index_put", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "amax",
    "amin", "scatter_add", "scatter_reduce", "unfold", "diagonal_copy", "max_unpool2d",
))  # fmt: skip
"""Operators that do to errors what they do to numbers, but for numbers that they bring themselves."""
READS = ("gather", "index", "_unsafe_index", "index_select", "embedding")
"""Those of them that read where an index says."""
POLES: Mapping[str, int] = {
    "div": 1, "reciprocal": 0, "floor_divide": 1, "addcdiv": 2, "rsqrt": 0, "log": 0, "log2": 0, "log10": 0, "xlogy": 1,
    "pow": 0,
}  # fmt: skip
"""The argument of a function that is infinite where that is 0: close to it the result is any number."""
LITERALS = frozenset(("lift_fresh", "full", "full_like", "new_full", "scalar_tensor", "arange"))
"""Operators whose results are numbers of the program."""
CONSTANTS = frozenset((
    "full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "empty", "empty_like", "arange",
    "scalar_tensor", "new_zeros", "new_full", "new_ones", "new_empty", "eye", "empty_strided", "new_empty_strided",
    "_local_scalar_dense", "detach", "lift_fresh", "alias",
))  # fmt: skip


def running(reference: Callable[..., Any], dtype: DType | str = "fp32") -> Callable[..., Any]:
    """The function that returns, in place of what `reference` returns of these arguments, S of the error bound.

    `dtype` is T of the task. It raises OperatorError for an operator of torch whose errors it does not know.
    """

    def magnitude(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), RunningErrors(dtype) as errors:
            result = reference(*args, **kwargs)
        by_name = isinstance(result, Mapping)
        return {n: errors.magnitude(y) for n, y in result.items()} if by_name else errors.magnitude(result)

    return magnitude


def sampled(reference: Callable[..., Any], dtype: DType | str = "fp32") -> Callable[..., Any]:
    """The same as `running` by samples of the errors: for networks, whose bound by analysis grows with every layer."""

    def magnitude(*args: Any, **kwargs: Any) -> Any:
        def results() -> dict[str, Tensor]:
            found = reference(*args, **kwargs)
            return {n: y.double() for n, y in (found if isinstance(found, Mapping) else {"": found}).items()}

        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            right = results()
            largest = {name: torch.zeros_like(y) for name, y in right.items()}
            for number in range(SAMPLES):
                with MovedResults(dtype, number) as moved, Stepwise(moved):
                    found = results()
                for name, y in right.items():
                    off = bounded(SAMPLED_FACTOR * (found[name] - y).abs() / moved.granted / moved.unit)
                    largest[name] = torch.maximum(largest[name], off)
        lifted = {name: _lifted(errors) for name, errors in largest.items()}
        return lifted.get("", lifted)

    return magnitude


def _lifted(errors: Tensor) -> Tensor:
    """The errors, none below the median of those that are there: where a number is near zero before a relu, all samples
    of it may be zero by chance, and a result of a right kernel is not."""
    there = errors[(errors > 0) & (errors < LARGEST)]
    return errors.clamp(min=there.median()) if there.numel() else errors


class RunningErrors(HeldErrors):  # type: ignore[no-untyped-call]
    """Executes operators and keeps the errors of their results."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if func._schema.is_mutable:
            return self._in_place(func, name, args, kwargs)
        out = None if self._knows(name) or func.is_view else self._decomposed(func, args, kwargs)
        if out is not None:
            return out
        out = func(*args, **kwargs)
        if name in LITERALS and out.is_floating_point():
            self.keep(out, off if (off := self._rounded(out)).any() else None)
        elif func.is_view:
            self._viewed(func, args, kwargs, out)
        elif name not in CONSTANTS and out is not None:  # what only checks its argument makes nothing
            self._follow(func, name, args, kwargs, out)
        return out

    def _rounded(self, y: Tensor) -> Tensor:
        """The errors of numbers that are exact until they are stored."""
        off = (y.double() - y.to(self.element).double()).abs() / self.granted
        return torch.where(off.isfinite(), off, 0.0)

    def _viewed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Copy the errors where what may be a view, as `reshape`, is a copy."""
        source, own = args[0], self.of(args[0])
        memory = source.untyped_storage()._cdata
        outs = out if isinstance(out, tuple | list) else [out]
        if own is None or all(y.untyped_storage()._cdata == memory for y in outs):
            return
        moved = func(own, *args[1:], **kwargs)
        for y, error in zip(outs, moved if isinstance(moved, tuple | list) else [moved], strict=True):
            self.keep(y, error)

    @staticmethod
    def _knows(name: str) -> bool:
        return name in SMOOTH or name in MOVES or name in CONSTANTS or name in RULES

    def _decomposed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self:
            out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
            for table in (DECOMPOSITIONS, torch._decomp.decomposition_table):
                if func in table and (out := table[func](*args, **kwargs)) is not NotImplemented:
                    return out
        if not any(self.of(x) is not None or (isinstance(x, Tensor) and x.is_floating_point()) for x in args):
            return None
        raise OperatorError(f'the rounding errors of {func} are not known: write bound = "measured"')

    def _in_place(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operator that changes its first argument, by way of the one that does not."""
        target, plain = args[0], name.removesuffix("_")
        if plain in ("zero", "fill"):
            self.keep(target, None)
            return func(*args, **kwargs)
        if plain == "copy":
            error = self.of(args[1])
            self.keep(target, None if error is None else error.expand(target.shape))
            return func(*args, **kwargs)
        packet = getattr(torch.ops.aten, plain, None)
        if name == plain or packet is None:
            raise OperatorError(f"the rounding errors of {func} are not known: write reference(...) without it")
        with self:
            out = getattr(packet, func._overloadname)(*args, **kwargs)
        error = self.of(out)
        target.copy_(out)
        self.keep(target, error)
        return target

    def _follow(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        outs = out if isinstance(out, tuple | list) else [out]
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not any(x.is_floating_point() or self.of(x) is not None for x in (*given, *outs)):
            return  # integers of integers are exact
        if name in RULES:
            found = RULES[name](self, func, out, *args, **kwargs)
            exact = name in ("max", "min", "sort", "topk") or "max_pool" in name
        elif name in MOVES:
            found, exact = self._moved(func, args, kwargs), name not in ("scatter_add", "scatter_reduce")
        else:
            found, exact = self._smooth(func, name, args, kwargs, outs[0]), name in EXACT
        for y, error in zip(outs, found if isinstance(found, tuple | list) else [found], strict=False):
            if not isinstance(y, Tensor):
                continue
            if y.is_floating_point():
                self.keep_floating(y, error, exact)
            elif error is not None:  # less than half a step changes no integer
                self.keep(y, torch.where(error * self.granted < 1 / 2, 0.0, error))

    def _moved(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        every = [each for arg in args for each in (arg if isinstance(arg, tuple | list) else [arg])]
        own = self._added_up(func, args, kwargs)
        if all(self.of(each) is None for each in every):
            return own
        names = [each.name for each in func._schema.arguments]
        error = self._misplaced(func, names, args, self._errors_moved(func, names, args, kwargs))
        return error if own is None else error + own

    def _added_up(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        """The errors of sums of what is moved to one place; None: nothing is added up."""
        name, x = func._schema.name.split("::")[1], args[0]
        adds = name == "scatter_add" or "sum" in args or (name.endswith("index_put") and True in args[3:])
        if not adds or not x.is_floating_point():
            return None
        *before, source = args[:3] if name.endswith("index_put") else args[:4]
        rest = args[len(before) + 1 :]
        count = func(torch.zeros_like(x), *before[1:], torch.ones_like(source), *rest, **kwargs).double() + 1
        if name.endswith("index_put"):
            self.sums(max(each.numel() for each in args[1] if each is not None))
        else:
            self.sums(source.shape[args[1]] if source.dim() else 1)
        size: Tensor = func(x.double().abs(), *before[1:], source.double().abs(), *rest, **kwargs)
        return torch.where(count <= FEW_TERMS, count, count.sqrt()) * size

    def _misplaced(self, func: Any, names: Sequence[str], args: Sequence[Any], error: Tensor) -> Tensor:
        """The errors of what is moved by an index that errors may make another one."""
        at = next((names.index(name) for name in ("index", "indices") if name in names), None)
        if at is None:
            return error
        indices = args[at] if isinstance(args[at], tuple | list) else [args[at]]
        owns = {number: own for number, index in enumerate(indices) if (own := self.of(index)) is not None}
        moved = {number: own for number, own in owns.items() if bool((own > 0).any())}
        name = func._schema.name.split("::")[1]
        axes = {number: args[names.index("dim")] % args[0].dim() if "dim" in names else number for number in moved}
        if name in READS and moved:
            there = [read_there(func, args, at, number, axes[number], own) for number, own in moved.items()]
            return torch.where(torch.stack(there).any(0), self._elsewhere(func, args, list(axes.values())), error)
        for number, own in moved.items():
            if name == "scatter_add" and bool((own >= LARGEST / 2).any()):
                added = (args[3].double().abs() * (own > 0)).sum(axes[number], True)
                line = [slice(None) if each == axes[number] else slice(size) for each, size in enumerate(own.shape)]
                error[tuple(line)] += added / self.granted
                continue
            if name == "scatter" and len(args) == 4:
                error = error + exchanged(self, own, *args)
                continue
            error = torch.where(written_there(func, args, at, number, axes[number], own), LARGEST, error)
        return error

    def _elsewhere(self, func: Any, args: Sequence[Any], axes: list[int]) -> Tensor:
        """The errors of what is read at any place along these axes."""
        x = args[0].double()
        y, most, least, own = (
            func(each.expand(x.shape), *args[1:])
            for each in (x, x.amax(axes, True), x.amin(axes, True), self.sized(x).amax(axes, True))
        )
        return torch.maximum(most - y, y - least) / self.granted + own  # type: ignore[no-any-return]

    def _errors_moved(self, func: Any, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        def errors(arg: Any, name: str) -> Any:
            if isinstance(arg, tuple | list):
                return type(arg)(errors(each, name) for each in arg)
            if isinstance(arg, Tensor) and name not in ("index", "indices"):
                return self.sized(arg)
            return 0 if name == "value" else arg

        moved = [errors(arg, name) for arg, name in zip(args, names, strict=False)]
        if "pad" in func._schema.name and len(moved) > 2:
            moved[2] = 0
        return func(*moved, **{k: errors(v, k) for k, v in kwargs.items() if k != "dtype"})  # type: ignore[no-any-return]

    def _smooth(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], y: Tensor) -> Tensor | None:
        """The errors that follow from those of the arguments, and the function's own."""
        error = self._at_ends(func, name, args, kwargs, y.double())
        if name in EXACT or not y.is_floating_point():
            is_whole = name == "_to_copy" and y.is_floating_point() and not args[0].is_floating_point()
            return error if not is_whole else self._rounded(y) + (0.0 if error is None else error)
        values = [x.double() if isinstance(x, Tensor) else x for x in args]
        local = LOCAL[name](y.double(), *values) if name in LOCAL else 2 * y.double().abs()
        if kwargs.get("alpha", 1) != 1:  # a product, which is rounded before it is added
            local = local + (kwargs["alpha"] * args[1]).abs() / 2
        # None of a mask, of what is masked, and of functions of it: exp(-inf) is 0, and |x| |y| no number.
        local = torch.where(y.isinf() | (local.isnan() & y.isfinite()), 0.0, local)
        return local if error is None else error + local

    def _at_ends(
        self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], y: Tensor
    ) -> Tensor | None:
        """The largest change of a result where each argument is the least or the largest that it may be."""
        named = {key: self._ends(value) for key, value in kwargs.items()}
        ends = [*map(self._ends, args), *named.values()]
        if all(len(each) == 1 for each in ends):
            return None
        if name in ("sin", "cos"):  # they may be equal at both ends
            return self._without_number(name, args, self.sized(args[0]).clamp(max=2 / self.granted))
        if name in ("eq", "ne"):  # they may be equal between both ends alone
            widths = [0.0 if (own := self.of(x)) is None else self.granted * own for x in args]
            width = sum(widths, torch.zeros(y.shape, dtype=torch.float64, device=y.device))
            apart = args[0].double() - (args[1].double() if isinstance(args[1], Tensor) else float(args[1]))
            return torch.where((width > 0) & (apart.abs() <= width), 1 / self.granted, 0.0)
        error = torch.zeros(y.shape, dtype=torch.float64, device=y.device)
        for chosen in itertools.product(*ends):
            given = dict(zip(named, chosen[len(args) :], strict=True))
            there = func(*chosen[: len(args)], **given).double()
            off = torch.where(there.isnan(), y.abs(), (there - y).abs())  # nan: beyond the end of a root's domain
            off = torch.where(there == y, 0.0, off) / self.granted
            error = torch.maximum(error, torch.nan_to_num(off, nan=0.0, posinf=LARGEST))
        if name in ("remainder", "fmod"):  # they begin anew between both ends
            turns = [torch.div(end, args[1], rounding_mode="floor") for end in ends[0]]
            error = torch.where(turns[0] != turns[-1], abs(args[1]) / self.granted, error)
        if name not in CHOICES:
            error = self._without_number(name, args, error)
        if name in POLES and (name != "pow" or (not isinstance(args[1], Tensor) and args[1] < 0)):
            under, own = args[POLES[name]], self.of(args[POLES[name]])
            if own is not None:
                error = torch.where((own > 0) & (self.granted * own >= under.double().abs()), LARGEST, error)
        return error

    def _without_number(self, name: str, args: Sequence[Any], error: Tensor) -> Tensor:
        """The errors, the largest where there may be no number: of an argument that may be none, of two that may be
        infinite (their difference), or of one (its product with 0, its sine)."""
        lost = [found for x in args if (found := self.lost(x)) is not None]
        none = [own > LARGEST / 2 for x in args if (own := self.of(x)) is not None]
        counts = sum((each.double() for each in lost), torch.zeros_like(error))
        nowhere = counts > (0 if name in ("mul", "addcmul", "sin", "cos") else 1)
        for each in none:
            nowhere = nowhere | each
        return torch.where(nowhere, LARGEST, error) if bool(nowhere.any()) else error

    def _ends(self, x: Any) -> list[Any]:
        """The least and the largest that an argument may be; itself where it has no errors."""
        if isinstance(x, float) and math.isfinite(x):  # a number of the program is rounded to the accumulator
            rounded = torch.tensor(x, dtype=self.sum_type).item()
            return [x] if rounded == x or not math.isfinite(rounded) else [x, rounded]
        own = self.of(x)
        if own is None:
            return [x]
        if x.dtype == torch.bool:
            return [x, torch.where(own > 0, ~x, x)]
        # A little more, for a whole step to be one still where it becomes an integer.
        width = (own * self.granted * (1 + 2.0**-40)).to(x.dtype if x.is_floating_point() else torch.float64)
        return [(x + width).to(x.dtype), (x - width).to(x.dtype)]


class MovedResults(RunningErrors):  # type: ignore[no-untyped-call]
    """Executes operators and moves each number of a result by the operator's own error, up or down by chance."""

    def __init__(self, dtype: DType | str, sample: int) -> None:
        super().__init__(dtype)
        self.sample, self.is_alike = sample, sample % 3 == 2
        self.random: dict[torch.device, torch.Generator] = {}

    def of(self, x: Any) -> Tensor | None:
        """None: errors are in the numbers themselves."""
        return None

    def signs(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Ones, up or down by chance."""
        if device not in self.random:
            self.random[device] = torch.Generator(device).manual_seed(self.sample)
        return torch.empty(shape, device=device).bernoulli_(0.5, generator=self.random[device]).mul_(2).sub_(1)

    def keep(self, x: Tensor, error: Tensor | None) -> None:
        """Make these errors."""
        if error is None or not x.is_floating_point():
            return
        signs = self.signs(() if self.is_alike else x.shape, x.device)
        # No number stands for any number: a norm would make a small one of one that is too large.
        x.add_(torch.where(bounded(error) < LARGEST, error * self.granted * signs, math.nan))
