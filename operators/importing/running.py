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
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from operators.dtypes import ACCUMULATOR, DTYPES, DType
from operators.errors import OperatorError
from operators.importing.decompositions import RULES as DECOMPOSITIONS
from operators.importing.graphs.graph import TORCH_DTYPES
from operators.importing.graphs.pointwise import COMPARISONS
from operators.importing.graphs.steps import Stepwise
from operators.shared.errors import DIVISION_ULPS, EXP_ULPS, LOG_ULPS, NORMAL_MIN, ROOT_ULPS, SINE_ULPS

FEW_TERMS = 16
"""Sums of so many terms or fewer are off by all their roundings; of more, by the root of their number."""
ALIKE = 1 / 3
"""Share of the roundoffs of equal terms that a bound needs: half of them are added to less than half of the sum."""
LARGEST = 1e300
"""Largest magnitude: the result may be any number, and none."""
INFINITE = 1e299
"""Magnitude where the result may be infinite, on the side where it is."""
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
                    off = _bounded(SAMPLED_FACTOR * (found[name] - y).abs() / moved.granted / moved.unit)
                    largest[name] = torch.maximum(largest[name], off)
        lifted = {name: _lifted(errors) for name, errors in largest.items()}
        return lifted.get("", lifted)

    return magnitude


def _lifted(errors: Tensor) -> Tensor:
    """The errors, none below the median of those that are there: where a number is near zero before a relu, all samples
    of it may be zero by chance, and a result of a right kernel is not."""
    there = errors[(errors > 0) & (errors < LARGEST)]
    return errors.clamp(min=there.median()) if there.numel() else errors


def _bounded(error: Tensor) -> Tensor:
    return torch.nan_to_num(error.double(), nan=LARGEST, posinf=LARGEST).clamp_(max=LARGEST)


def _growth(terms: int) -> float:
    return float(terms) if terms <= FEW_TERMS else math.sqrt(terms)


class RunningErrors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Executes operators and keeps the errors of their results, by the memory that holds these."""

    def __init__(self, dtype: DType | str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        element = dtype if isinstance(dtype, DType) else DTYPES[dtype]
        self.roundoff = DTYPES[ACCUMULATOR[element.name]].unit_roundoff
        self.granted = 2 * self.roundoff
        """Error that the bound grants a result for S = 1."""
        self.least = NORMAL_MIN[ACCUMULATOR[element.name]]
        """A smaller result may be flushed to zero, or come of what was."""
        ratio = element.unit_roundoff / self.roundoff
        self.stored = ratio / 2 if ratio > 1 else 0.0
        """Error of storing a result, relative to it, in roundoffs over two."""
        self.element = TORCH_DTYPES[element.name]
        self.most = torch.finfo(self.element).max
        self.sum_type = TORCH_DTYPES[ACCUMULATOR[element.name]]
        self.most_sum = torch.finfo(self.sum_type).max
        """A larger result, or sum on the way to one, is infinite: what is made of it may be any number."""
        self.longest = 1
        self._held: dict[int, tuple[StorageWeakRef, Tensor]] = {}

    # --- errors of tensors ---

    def of(self, x: Any) -> Tensor | None:
        """The errors of a tensor; None: it has none."""
        if not isinstance(x, Tensor) or x.untyped_storage()._cdata not in self._held:
            return None
        return self._held[x.untyped_storage()._cdata][1].as_strided(x.size(), x.stride(), x.storage_offset())

    def sized(self, x: Tensor) -> Tensor:
        """The same, zeros where it has none."""
        found = self.of(x)
        return torch.zeros(x.shape, dtype=torch.float64, device=x.device) if found is None else found

    def lost(self, x: Any) -> Tensor | None:
        """Where a tensor may be infinite, so that even its product with 0 is any number; None: nowhere."""
        own = self.of(x)
        found = None if own is None else own * self.granted > self.most_sum
        return found if found is not None and found.any() else None

    def keep(self, x: Tensor, error: Tensor | None) -> None:
        """Let a tensor have these errors."""
        storage = x.untyped_storage()
        if storage._cdata not in self._held:
            if error is None:
                return
            count = storage.nbytes() // x.element_size()
            memory = torch.zeros(count, dtype=torch.float64, device=x.device)
            self._held[storage._cdata] = StorageWeakRef(storage), memory  # type: ignore[no-untyped-call]
        shadow = self._held[storage._cdata][1].as_strided(x.size(), x.stride(), x.storage_offset())
        shadow.copy_(shadow.new_zeros(()) if error is None else _bounded(error))

    def keep_floating(self, y: Tensor, error: Tensor | None, exact: bool = False) -> None:
        """The same for a result that is stored, and rounded unless it is exact: what leaves the range is any number."""
        size = torch.where(y.isinf(), 0.0, y.double().abs())
        over = y.isfinite() & (size > self.most)
        if error is None and over.any():
            error = torch.zeros_like(size)
        if error is not None:
            if not exact:
                error = error + self.stored * size + torch.where(size < self.least, size / (2 * self.roundoff), 0.0)
            self.keep(y, torch.where(over, error.clamp(min=INFINITE), error))

    def where_it_fits(self, error: Tensor, size: Tensor, y: Tensor) -> Tensor:
        """The errors of sums with terms of a total size, the largest where a sum on the way may leave the range."""
        return torch.where((size > self.most_sum) & y.isfinite(), LARGEST, error)

    def magnitude(self, y: Tensor) -> Tensor:
        """S of a result."""
        last = self.stored * torch.nan_to_num(y.double().abs(), nan=0.0, posinf=0.0)
        error = (self.sized(y) - last).clamp(min=0) if self.of(y) is not None else self.sized(y)
        return error / self.unit

    @property
    def unit(self) -> float:
        """Roundoffs of the longest sum so far."""
        return _growth(self.longest)

    # --- execution ---

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for key in [key for key, (reference, _) in self._held.items() if reference.expired()]:  # type: ignore[no-untyped-call]
            del self._held[key]
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
            there = [_read_there(func, args, at, number, axes[number], own) for number, own in moved.items()]
            return torch.where(torch.stack(there).any(0), self._elsewhere(func, args, list(axes.values())), error)
        for number, own in moved.items():
            if name == "scatter_add" and bool((own >= LARGEST / 2).any()):
                added = (args[3].double().abs() * (own > 0)).sum(axes[number], True)
                line = [slice(None) if each == axes[number] else slice(size) for each, size in enumerate(own.shape)]
                error[tuple(line)] += added / self.granted
                continue
            if name == "scatter" and len(args) == 4:
                error = error + _exchanged(self, own, *args)
                continue
            error = torch.where(_written_there(func, args, at, number, axes[number], own), LARGEST, error)
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

    # --- rules ---

    def sums(self, terms: int) -> float:
        """Roundoffs of a sum of so many terms."""
        self.longest = max(self.longest, terms)
        return _growth(terms)

    def leaning(self, x: Tensor, along: Sequence[int]) -> Any:
        """Roundoffs of the sums of x along some axes, which are kept: the roundings of equal terms all go one way, and
        a clamp makes many of the largest or of the smallest."""
        terms = self.sums(_length(x, along))
        if _length(x, along) <= FEW_TERMS:
            return terms
        ends = x.amax(list(along), True), x.amin(list(along), True)
        alike = [(x == end).double().sum(list(along), True) * (end != 0) for end in ends]
        return (ALIKE * torch.maximum(*alike)).clamp(min=terms)


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
        x.add_(torch.where(_bounded(error) < LARGEST, error * self.granted * signs, math.nan))


# --- rules by operator: each gets the errors, the operator, its result, and its arguments -----------------------------

Rule = Callable[..., Any]


def _bilinear(run: RunningErrors, func: Callable[..., Tensor], a: Tensor, b: Tensor, terms: int, *rest: Any) -> Tensor:
    """A sum of products of elements of a and b."""
    size = func(a.double().abs(), b.double().abs(), *rest)
    total = torch.where(size > run.most_sum, LARGEST, run.sums(terms) * size)
    for left, right in ((run.of(a), b.double().abs()), (a.double().abs(), run.of(b))):
        if left is not None and right is not None:
            total = total + func(left, right, *rest)
    if (left := run.of(a)) is not None and (right := run.of(b)) is not None:
        total = total + run.granted * func(left, right, *rest)
    for lost, swap in ((run.lost(a), False), (run.lost(b), True)):
        if lost is not None:
            pair = (torch.ones_like(a), lost.to(b.dtype)) if swap else (lost.to(a.dtype), torch.ones_like(b))
            total = torch.where(func(*pair, *rest) > 0, LARGEST, total)
    return total


def _addmm(
    run: RunningErrors, func: Any, y: Tensor, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    product: Tensor = _bilinear(run, torch.matmul, a, b, a.shape[-1]) * abs(alpha)
    apart: Tensor = run.stored * (y.double() - beta * c.double()).abs()  # of a product rounded before it is added
    added: Tensor = abs(beta) * (run.sized(c) + c.abs() / 2)
    return product + added + y.abs() / 2 + apart


def _convolution(run: RunningErrors, func: Any, y: Tensor, x: Tensor, w: Tensor, bias: Any, *rest: Any) -> Tensor:
    transposed, groups = rest[3], rest[5]
    terms = w.numel() // w.shape[1 if transposed else 0] // (groups if transposed else 1)
    total = _bilinear(run, lambda a, b: func(a, b, None, *rest), x, w, terms)
    if bias is None:
        return total
    shape = [-1, *[1] * (x.dim() - 2)]
    apart: Tensor = run.stored * (y.double() - bias.double().reshape(shape)).abs()
    return total + run.sized(bias).reshape(shape) + y.abs() / 2 + apart


def _axes(x: Tensor, dims: Any) -> list[int]:
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(x.dim()))
    return [d % max(x.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims)]


def _length(x: Tensor, along: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in along) if x.dim() else 1


def _sum(run: RunningErrors, func: Any, y: Tensor, x: Tensor, dims: Any = None, keep: bool = False, **_: Any) -> Tensor:
    along, size = _axes(x, dims), run.sized(x)
    if y.is_floating_point():  # those of integers are exact
        size = size + run.leaning(x, along) * x.double().abs()
    total: Tensor = size.sum(along, keep) if x.dim() else size
    if "mean" in func._schema.name:
        total = total / _length(x, along) + (1 + run.stored) * y.abs()
    return run.where_it_fits(total, x.double().abs().sum(along, keep) if x.dim() else x.double().abs(), y)


def _cumsum(run: RunningErrors, func: Any, y: Tensor, x: Tensor, dim: int, **_: Any) -> Tensor:
    count = x.shape[dim] if x.dim() else 1
    if not y.is_floating_point():
        return torch.cumsum(run.sized(x), dim)
    size = x.double().abs()
    return run.where_it_fits(torch.cumsum(run.sums(count) * size + run.sized(x), dim), torch.cumsum(size, dim), y)


def _logcumsumexp(run: RunningErrors, func: Any, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """The errors of logarithms of sums whose terms are shares of one: no error of an argument grows."""
    if not x.dim():
        return run.sized(x)
    terms, x64 = run.sums(x.shape[dim]), x.double()
    own, log_sum = torch.cummax(run.sized(x), dim)[0], (y.double() - torch.cummax(x64, dim)[0]).abs()
    of_exp = 2 * EXP_ULPS + math.log(x.shape[dim] + 1)
    return own + terms + of_exp + LOG_ULPS * (1 + log_sum) + run.stored * log_sum + y.double().abs() / 2


def _grown(run: RunningErrors, x: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """The errors of a function that grows with the size of each element, as these make them."""
    size = x.double().abs()
    return (func(size + run.granted * run.sized(x)) - func(size)) / run.granted


def _prod(run: RunningErrors, func: Any, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    count = x.numel() // max(y.numel(), 1)
    return _grown(run, x, lambda size: func(size, *args, **kwargs)) + run.sums(count) * y.double().abs()


def _extreme(run: RunningErrors, func: Any, out: Any, x: Tensor, dim: Any = None, keep: bool = False) -> Any:
    found = run.of(x)
    if found is None:
        return None, None
    if not isinstance(out, tuple | list):
        return found.amax()
    largest = found.amax(dim, keep)
    best = out[0] if keep or not x.dim() else out[0].unsqueeze(dim)
    near = ((x - best).abs() <= 2 * run.granted * found.amax(dim, True)).sum(dim, keep) > 1
    return largest, near.double() * LARGEST


def _arg(run: RunningErrors, func: Any, y: Tensor, x: Tensor, dim: Any = None, keep: bool = False) -> Any:
    found = run.of(x)
    if found is None:
        return None
    flat, errors = (x.flatten(), found.flatten()) if dim is None else (x, found)
    axis = 0 if dim is None else dim
    best = flat.amax(axis, True) if "max" in func._schema.name else flat.amin(axis, True)
    near = ((flat - best).abs() <= 2 * run.granted * errors.amax(axis, True)).sum(axis, keep and dim is not None) > 1
    return (near.double() * LARGEST).reshape(y.shape)


def _sorted(run: RunningErrors, func: Any, out: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    given = dict(zip((argument.name for argument in func._schema.arguments[1:]), args, strict=False)) | kwargs
    found, dim = run.of(x), given.get("dim", -1)
    if not x.dim() or (found is None and given.get("stable")):
        return found, None
    none = torch.zeros_like(out[0], dtype=torch.float64)
    largest = none if found is None else found.amax(dim, True).expand(out[0].shape)
    # Which of equal numbers comes first, and of those that errors may make equal, is not told.
    values, every = out[0].double().movedim(dim, -1), x.double().movedim(dim, -1).sort(-1)[0].contiguous()
    reach = (2 * run.granted * largest).movedim(dim, -1)
    ends = (values - reach).contiguous(), (values + reach).contiguous()

    def near(among: Tensor) -> Tensor:
        return torch.searchsorted(among, ends[1], right=True) - torch.searchsorted(among, ends[0])

    rivals = near(every)
    left_out = rivals > near(values.sort(-1)[0].contiguous())
    # Neighbours that no error makes equal have other errors, which tell what may be exchanged from what may not.
    apart = values.diff(dim=-1, prepend=values[..., :1]).abs() > reach + reach.roll(1, -1)
    size = (x.shape[dim] + apart.cumsum(-1) % 2).double() / run.roundoff
    moved = ((rivals > 1) * size).masked_fill(left_out, LARGEST).movedim(-1, dim)
    return None if found is None else largest, moved if bool((moved > 0).any()) else None


def _read_there(func: Any, args: Sequence[Any], at: int, number: int, axis: int, own: Tensor) -> Tensor:
    """Whether each result is read at a place that may be another: there a probe that holds nothing else has a one."""
    nothing, count = torch.zeros_like(args[0], dtype=torch.float64), args[0].shape[axis]
    probe = torch.cat([nothing, torch.ones_like(nothing.narrow(axis, 0, 1))], axis)
    given = list(args)
    indices = list(given[at]) if isinstance(given[at], tuple | list) else [given[at]]
    indices[number] = torch.where(own > 0, count, indices[number].remainder(count))
    given[0], given[at] = probe, indices if isinstance(given[at], tuple | list) else indices[0]
    return func(*given) > 0  # type: ignore[no-any-return]


def _written_there(func: Any, args: Sequence[Any], at: int, number: int, axis: int, own: Tensor) -> Tensor:
    """Whether something is written to each place, or kept from it, as an index may be another."""
    places = torch.zeros_like(args[0], dtype=torch.float64)
    lists = isinstance(args[at], tuple | list)
    if lists:
        if bool((own >= LARGEST / 2).any()) or any(each is None for each in args[at]):
            return torch.ones_like(places, dtype=torch.bool)
        turned = own.reshape([*own.shape, *[1] * (places.dim() - len(args[at]))])
        return places.index_put(tuple(args[at]), turned, accumulate=True) > 0
    line = [slice(None) if each == axis else slice(size) for each, size in enumerate(own.shape)]
    anywhere = (own >= LARGEST / 2).any(axis, True).double()  # it may as well be a place that is not among these
    places[tuple(line)] = anywhere
    return places.scatter_add(axis, args[at], own) > 0


def _exchanged(run: RunningErrors, own: Tensor, x: Tensor, axis: int, index: Tensor, source: Any) -> Tensor:
    """The errors of what is put where an index may be another. A place holds what was there, or what is brought by one
    of those that may be exchanged: neighbours of one error in an order, as equal numbers are; else by any."""
    every = source if isinstance(source, Tensor) else torch.full_like(index, float(source), dtype=torch.float64)
    put, off = (each[tuple(map(slice, index.shape))] for each in (every.double(), run.granted * run.sized(every)))
    before, line = x.double(), [slice(None) if each == axis % x.dim() else slice(n) for each, n in enumerate(own.shape)]
    group = (own.diff(dim=axis, prepend=own.narrow(axis, 0, 1)) != 0).cumsum(axis)
    most, least = (
        torch.zeros_like(put).scatter_reduce(axis, group, end, how, include_self=False).gather(axis, group)
        for end, how in ((put + off, "amax"), (put - off, "amin"))
    )
    was = before.gather(axis, index)
    spread = torch.where(own > 0, torch.maximum(most, was) - torch.minimum(least, was), 0.0)
    error = torch.zeros_like(before).scatter_reduce(axis, index, spread, "amax")
    is_order = (own >= index.shape[axis] / run.roundoff) & (own < LARGEST / 2)
    there = torch.stack([before, before.scatter(axis, index, put)])[:, *line]
    wide = there.amax(0).maximum(most.amax(axis, True)) - there.amin(0).minimum(least.amin(axis, True))
    error[*line] = torch.where(((own > 0) & ~is_order).any(axis, True), wide, error[*line])
    return error / run.granted


def _mean_of(run: RunningErrors, func: Any, y: Tensor, x: Tensor, *args: Any) -> Tensor:
    """Weighted means, whose weights are not negative."""
    count = x.numel() // max(y.numel(), 1) + 1
    if "avg_pool" in func._schema.name and "adaptive" not in func._schema.name:
        count = math.prod(args[0]) if len(args[0]) > 1 else args[0][0] ** (x.dim() - 2)
    weights = 4 * max(x.shape[-2:]) if "linear" in func._schema.name else 1
    size: Tensor = func(x.double().abs(), *args)
    return run.where_it_fits(func(run.sized(x), *args) + (run.sums(count) + weights) * size, (count - 1) * size, y)


class _Moments:
    """Deviations from the mean along some axes and the root of their square's mean, with their errors."""

    def __init__(self, run: RunningErrors, x: Tensor, along: list[int]) -> None:
        self.run, x64, self.count = run, x.double(), _length(x, along)
        grown, own = run.leaning(x, along), run.sized(x)
        self.mean = x64.mean(along, True)
        self.mean_error = own.mean(along, True) + grown * x64.abs().mean(along, True)
        self.deviation = x64 - self.mean
        self.error = own + self.mean_error + self.deviation.abs() / 2
        self.variance = self.deviation.square().mean(along, True)
        changed = own * (2 * self.deviation.abs() + run.granted * own)
        self.variance_error = changed.mean(along, True) + (grown + 1) * self.variance
        self.variance_error += run.granted * self.mean_error.square()
        self.variance_error = run.where_it_fits(self.variance_error, self.variance * self.count, self.variance)

    def standardized(self, eps: float, stored: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Deviations over their root, and that, each with its errors; mean, variance and root may be stored."""
        root = (self.variance + eps).rsqrt()
        relative = _root_error(self.run, self.variance, self.variance_error, eps) + 1 + 1.5 * stored
        error = self.error + stored * self.mean.abs()
        error = root * error * (1 + self.run.granted * relative) + self.deviation.abs() * root * relative
        return self.deviation * root, error, root, root * relative


def _root_error(run: RunningErrors, variance: Tensor, error: Tensor, eps: float) -> Tensor:
    """Relative error of 1 / sqrt(variance + eps); what is computed of a variance is not negative."""
    least = (variance - run.granted * error).clamp(min=0) + eps
    relative = (((variance + eps) / least).sqrt() - 1) / run.granted + ROOT_ULPS
    return torch.where(error < LARGEST, relative, LARGEST)


def _affine(run: RunningErrors, z: Tensor, error: Tensor, weight: Any, bias: Any, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        w = weight.double().reshape(shape)
        error = error * w.abs() + run.sized(weight).reshape(shape) * z.abs() + (z * w).abs() / 2
    if bias is not None:
        error = error + run.sized(bias).reshape(shape) + bias.double().abs().reshape(shape)
    return error


def _layer_norm(run: RunningErrors, func: Any, out: Any, x: Tensor, shape: Any, *affine: Any) -> Any:
    weight, bias, eps = affine
    found = _Moments(run, x, list(range(x.dim() - len(shape), x.dim())))
    z, error, _, root_error = found.standardized(eps)
    return _affine(run, z, error, weight, bias, shape), found.mean_error, root_error


def _group_norm(run: RunningErrors, func: Any, out: Any, x: Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    n, c, _, groups, eps = rest
    grouped = x.reshape(n, groups, -1)
    run.keep(grouped, run.sized(x).reshape(grouped.shape))
    found = _Moments(run, grouped, [2])
    z, error, _, root_error = found.standardized(eps)
    shape = [1, c, *[1] * (x.dim() - 2)]
    affine = _affine(run, z.reshape(x.shape), error.reshape(x.shape), weight, bias, shape)
    return affine, found.mean_error.reshape(n, groups), root_error.reshape(n, groups)


def _batch_norm(run: RunningErrors, func: Any, out: Any, x: Tensor, weight: Any, bias: Any, *args: Any) -> Any:
    name, shape = func._schema.name, [1, x.shape[1], *[1] * (x.dim() - 2)]
    if func._overloadname == "no_stats":
        args = (None, None, *args)
    trained = "no_training" not in name and args[2]
    eps = args[4] if name.endswith("native_batch_norm") else args[-1]
    if trained:
        z, error, _, _ = _Moments(run, x, [0, *range(2, x.dim())]).standardized(eps, run.stored)
    else:
        mean, variance = (v.double().reshape(shape) for v in args[:2])
        mean_error, variance_error = (run.sized(v).reshape(shape) for v in args[:2])
        root = (variance + eps).rsqrt()
        z = (x.double() - mean) * root
        relative = _root_error(run, variance, variance_error, eps) + 1
        error = root * (run.sized(x) + mean_error + x.double().abs() / 2 + mean.abs() / 2)
        error = error * (1 + run.granted * relative) + z.abs() * relative
    return (_affine(run, z, error, weight, bias, shape), *(None for _ in out[1:]))


def _variance(run: RunningErrors, func: Any, out: Any, x: Tensor, dims: Any = None, *args: Any, **kwargs: Any) -> Any:
    found = _Moments(run, x, _axes(x, None if isinstance(dims, bool) else dims))
    y = out[0] if isinstance(out, tuple) else out
    scale = found.count / max(found.count - 1, 1)
    error, mean_error = (found.variance_error * scale).reshape(y.shape), found.mean_error.reshape(y.shape)
    if "std" in func._schema.name:
        y64 = y.double()
        ends = ((y64.square() + turn * run.granted * error).clamp(min=0).sqrt() for turn in (-1, 1))
        error = torch.maximum(*((end - y64).abs() / run.granted for end in ends)) + y64
    return (error, mean_error) if isinstance(out, tuple) else error


def _softmax(run: RunningErrors, func: Any, y: Tensor, x: Tensor, dim: int, *_: Any) -> Tensor:
    x64, own = x.double(), run.sized(x)
    largest = x64.amax(dim, True)
    shifted = x64 - largest
    below = torch.where(shifted.isfinite(), -shifted, 0.0)
    p = torch.softmax(x64, dim)
    none = (own > LARGEST / 2).any(dim, True)  # a sum on the way to it may be inf - inf
    own = torch.where(x64 < -run.most, 0.0, own) * run.granted  # what leaves the range downwards adds nothing
    reach = torch.where(x64.isfinite(), x64 + own, -math.inf).amax(dim, True)
    # The difference of infinities is no number, of which sums of both signs may be one already.
    lost = none | (reach > run.most) | (largest.isfinite() & (largest < -run.most))
    of_exp, terms = EXP_ULPS + below, run.leaning(p, _axes(x, dim))
    of_exp_sum = (p * of_exp).sum(dim, True)
    if "log" in func._schema.name:
        of_sum = (torch.logsumexp(shifted + own, dim, True) - torch.logsumexp(shifted, dim, True)) / run.granted
        log_sum = (below - y.double().abs()).abs()
        own_of_log = LOG_ULPS * (1 + log_sum) + run.stored * log_sum
        error = own / run.granted + of_sum + of_exp_sum + terms + below / 2 + own_of_log + y.abs() / 2
        return torch.where(lost, LARGEST, error)
    ends = (_share(x64, turn * own, dim) for turn in (-1, 1))
    error = torch.maximum(*((end - p).abs() / run.granted for end in ends))
    return torch.where(lost, LARGEST, error + p * (of_exp + of_exp_sum + terms + DIVISION_ULPS))


def _share(x: Tensor, more: Tensor, dim: int) -> Tensor:
    """The softmax of each logit, were it `more` larger and all others as much smaller."""
    others = x - more
    largest, place = others.max(dim, True)
    each = torch.exp(others - largest)
    rest = (each.sum(dim, True) - each).clamp(min=0).log() + largest
    without = others.scatter(dim, place, -math.inf)  # the sum less its largest term may have lost the others
    rest = rest.scatter(dim, place, torch.logsumexp(without, dim, True))
    return torch.sigmoid(x + more - rest)


def _norm(
    run: RunningErrors, func: Any, y: Tensor, x: Tensor, order: Any = 2, dims: Any = None, keep: bool = False, **_: Any
) -> Tensor:
    along = _axes(x, dims)
    terms = run.sums(_length(x, along))
    if order in (math.inf, -math.inf):
        return run.sized(x).amax(along, keep)
    error = _grown(run, x, lambda size: func(size, order, dims, keep))
    error = error + (terms + 2 * EXP_ULPS * (order not in (1, 2)) + ROOT_ULPS + run.stored) * y.abs()
    over = y.isfinite() & (y.double().square() > run.most_sum)
    return torch.where(over, LARGEST, error) if order == 2 else error


def _cholesky(run: RunningErrors, func: Any, out: Any, x: Tensor, upper: bool = False, **_: Any) -> Any:
    """To first order, what the errors of a matrix and of the products make of its factor."""
    factor = (out[0].mT if upper else out[0]).double()
    size, inverse = factor.abs(), torch.linalg.inv(factor).abs()
    moved = run.sized(x) + run.sums(x.shape[-1]) * (size @ size.mT)
    found = size @ (inverse @ moved @ inverse.mT).tril() + ROOT_ULPS * size
    return found.mT if upper else found, None


def _triangular(
    run: RunningErrors, func: Any, y: Tensor, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, **_: Any
) -> Tensor:
    """The errors of a solution that those of a triangle, of the right side and of the products make."""
    triangle = a.double().triu() if upper else a.double().tril()
    size, inverse = triangle.abs(), torch.linalg.inv(triangle).abs()
    grown = run.sized(a) + (run.sums(a.shape[-1]) + DIVISION_ULPS) * size
    if left:
        found: Tensor = inverse @ (run.sized(b) + grown @ y.double().abs())
        return found
    turned: Tensor = (run.sized(b) + y.double().abs() @ grown) @ inverse
    return turned


def _running_extreme(run: RunningErrors, func: Any, out: Any, x: Tensor, dim: int) -> Any:
    found = run.of(x)
    if found is None:
        return None, None
    largest = torch.cummax(found, dim)[0]
    return largest, torch.where(largest > 0, x.shape[dim] / run.roundoff, 0.0)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), lambda run, func, y, a, b: _bilinear(run, func, a, b, a.shape[-1])),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    "convolution": _convolution, "convolution_overrideable": _convolution, "sum": _sum, "mean": _sum, "cumsum": _cumsum,
    "logcumsumexp": _logcumsumexp, "cummax": _running_extreme, "cummin": _running_extreme, "prod": _prod,
    "cumprod": lambda run, _, y, x, dim, **__: (
        _grown(run, x, lambda size: size.cumprod(dim)) + run.sums(x.shape[dim]) * y.double().abs()),
    "max": _extreme, "min": _extreme, "argmax": _arg, "argmin": _arg,
    **dict.fromkeys(("sort", "topk"), _sorted), "native_layer_norm": _layer_norm, "native_group_norm": _group_norm,
    **{f"{a}max_pool{n}d{z}": lambda run, func, _, x, *args: (
        None if (own := run.of(x)) is None else func(own, *args)[0], None)
       for n in (2, 3) for a, z in (("", "_with_indices"), ("adaptive_", ""))},
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
                     "upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d"), _mean_of),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                     "_native_batch_norm_legit_functional", "cudnn_batch_norm"), _batch_norm),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance), "_softmax": _softmax, "_log_softmax": _softmax,
    "linalg_vector_norm": _norm, "linalg_cholesky_ex": _cholesky, "linalg_solve_triangular": _triangular,
}  # fmt: skip
