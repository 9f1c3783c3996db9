"""Functions of torch that no tracer with symbols takes as they are, and what is called in their places."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._decomp import decomposition_table
from torch._subclasses import fake_tensor
from torch._subclasses.fake_impls import register_op_impl
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.autograd.function import FunctionCtx
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from operators.importing.control import Branches, Selections
from operators.importing.foreign import Unrolled
from operators.importing.graphs.graph import DROPOUT, RECURRENCES, aten
from operators.importing.graphs.symbols import BY_VALUES, plain
from operators.importing.pairs import transformed
from operators.importing.randomness import prepare_dropouts

MOST_CONSTANT = 4096
"""Elements of a tensor of the source's own that is part of a graph."""
NAMESPACE = "evo_import"
"""The place of torch's where operators that tracing leaves whole are named as ATen names them."""
COSINE_EPSILON = 1e-12
"""The number that torch's cosine embedding loss adds to squares of sizes."""
LAWS = {torch.Tensor.uniform_, torch.Tensor.normal_, nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_}


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
    prepare_dropouts()
    numbers.Integral.register(torch.SymInt)  # norms ask whether their shape is one number
    nn.modules.rnn.isinstance = lambda x, kind: isinstance(x, (int, torch.SymInt) if kind is int else kind)  # type: ignore[attr-defined]
    WHOLE.update(whole_recurrences())
    for name in ("constant_pad_nd", *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3))):
        register_op_impl(getattr(torch.ops.aten, name).default)(padded)
    register_op_impl(torch.ops.aten.linalg_solve_triangular.default)(solved)
    register_op_impl(torch.ops.aten.complex.default)(joined)
    for transform in ("_fft_r2c", "_fft_c2c", "_fft_c2r"):
        register_op_impl(getattr(torch.ops.aten, transform).default)(transformed)
    fake_tensor.CONSTANT_NUMEL_LIMIT = MOST_CONSTANT  # a module's own tables may be read while it computes
    FakeTensor.__deepcopy__ = copied  # type: ignore[method-assign]
    torch.SymInt.__deepcopy__ = lambda self, _: self  # type: ignore[attr-defined]
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.cuda.synchronize = lambda *_: None
    applied = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
    torch.autograd.Function.apply = classmethod(  # type: ignore[method-assign, assignment]
        lambda kind, *args, **kwargs: (applied if torch.is_grad_enabled() else forward_of)(kind, *args, **kwargs)
    )


def forward_of(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a function with a gradient of its own, where nothing asks for one: tracers do not look into it."""
    if kind.setup_context is not torch.autograd.Function.setup_context:
        return kind.forward(*args, **kwargs)
    context = FunctionCtx()
    context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]
    return kind.forward(context, *args, **kwargs)


def linear_of_rows(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The result of torch's own, which makes constants of the sizes of a tensor of more than two axes."""
    if input.dim() <= 2:
        return linear(input, weight, bias)
    rows = linear(input.reshape(math.prod(input.shape[:-1]), input.shape[-1]), weight, bias)
    return rows.reshape(*input.shape[:-1], weight.shape[0])


def whole_recurrences() -> dict[Any, Any]:
    """Operators in the place of torch's recurrences, which tracing would take apart into operators of each step."""
    made = {}
    for own in map(aten, RECURRENCES):
        packet = own.overloadpacket.__name__
        name, schema = f"{NAMESPACE}::{packet}", str(own._schema)
        torch.library.define(name, schema[schema.index("(") :])
        torch.library.impl(name, "CPU", own)
        torch.library.register_fake(name, recurrence_shapes)
        made[getattr(torch, packet)] = getattr(getattr(torch.ops, NAMESPACE), packet).default
    return made


def recurrence_shapes(x: torch.Tensor, states: Any, weights: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
    """The shapes of a recurrence's results: the states of all steps, and the last ones."""
    ends = states if isinstance(states, list | tuple) else [states]
    is_both_ways = rest[4]
    every = x.new_empty([*x.shape[:2], ends[0].shape[2] * (2 if is_both_ways else 1)])
    return every, *(torch.empty_like(each) for each in ends)


def padded(mode: Any, func: Any, x: torch.Tensor, pad: Sequence[Any], value: float = 0) -> torch.Tensor:
    """The shape of a padded tensor; torch's own makes constants of the sizes of all its axes."""
    sizes, mirrored = list(x.shape), "reflection" in func._schema.name
    for axis in range(len(pad) // 2):
        before, after = pad[2 * axis], pad[2 * axis + 1]
        if mirrored and not (before < sizes[-1 - axis] and after < sizes[-1 - axis]):  # a condition on sizes
            raise ValueError("an edge is wider than what it mirrors")
        sizes[-1 - axis] = sizes[-1 - axis] + before + after
    with mode:
        return x.new_empty(sizes)


def joined(mode: Any, func: Any, real: torch.Tensor, imaginary: torch.Tensor) -> Any:
    """The shape of complex numbers of two parts; torch's own makes constants of the sizes of an imaginary one."""
    with mode:
        both = real + imaginary
        return both.new_empty(both.shape, dtype=both.dtype.to_complex())


def solved(mode: Any, func: Any, a: torch.Tensor, b: torch.Tensor, *, left: bool = True, **_: Any) -> Any:
    """The shape of a solution for each matrix; torch's own stretches axes to sizes that are no symbols."""
    if a.shape[-1] != b.shape[-2 if left else -1]:  # a condition on sizes
        raise ValueError("a matrix and the right side of its system have other sizes")
    with mode:
        return b.new_empty([*(b if b.dim() >= a.dim() else a).shape[:-2], *b.shape[-2:]])


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
        self.selections, self.branches = Selections(), Branches()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function without its generator."""
        kwargs = {name: each for name, each in (kwargs or {}).items() if name != "generator"}
        if func in LAWS:  # a symbol among its numbers would become a constant
            args, kwargs = pytree.tree_map_only(torch.SymFloat, plain, (args, kwargs))
        if func in WHOLE and len(args) > DROPOUT and isinstance(args[3], bool):  # no packed sequences
            func, args = WHOLE[func], (*args[: DROPOUT + 1], False, *args[DROPOUT + 2 :])
        if kwargs.get("inplace"):  # torch takes those apart by numbers that no symbol can shape
            return args[0].copy_(func(*args, **{**kwargs, "inplace": False}))
        found = self.selections.called(func, args, kwargs)
        if found is NotImplemented and func is torch.Tensor.__bool__:
            return self._is_true(args[0])
        if found is NotImplemented:
            found = self.selections.follow(func, args, kwargs, INSTEAD.get(func, func)(*args, **kwargs))
        if func is torch.linspace and isinstance(found, FakeTensor) and not found._has_symbolic_sizes_strides:
            with unset_fake_temporarily():  # rates of layers are read from it
                found.constant = func(*args, **kwargs)
        # A tracer reads attributes of tensors, many for each that it meets: only what makes or fills tensors counts.
        self.left -= isinstance(found, torch.Tensor) or func is torch.Tensor.__setitem__
        if self.left < 0:
            raise Unrolled(
                f"it calls more than {self.most_calls:,} functions of torch, as loops of Python over elements do: a "
                "graph needs functions of whole tensors"
            )
        return found

    def _is_true(self, x: torch.Tensor) -> bool:
        """Whether a value is true: both, one way after the other, where it is not known."""
        try:
            return bool(x)
        except BY_VALUES:
            return self.branches.decides(x)


def counted(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    """The result of torch.bincount for values below `minlength`; trials tell whether they are. Others count for
    nothing, in a row more."""
    weights = torch.ones_like(x, dtype=torch.int64) if weights is None else weights
    counts = torch.zeros(minlength + 1, dtype=weights.dtype, device=x.device)
    return counts.scatter_add(0, x.to(torch.int64).clamp(max=minlength), weights)[:minlength]


def framed(
    x: torch.Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, **_: Any,
) -> torch.Tensor:  # fmt: skip
    """The result of torch.stft, which makes constants of all sizes."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    window = torch.ones(width, dtype=x.dtype) if window is None else window
    before = (n_fft - width) // 2
    window = torch.nn.functional.pad(window, (before, n_fft - width - before))
    signal = x if x.dim() == 2 else x[None]
    if center:
        signal = torch.nn.functional.pad(signal[:, None], (n_fft // 2, n_fft // 2), mode=pad_mode)[:, 0]
    frames = signal.unfold(1, n_fft, hop) * window
    whole = onesided is False or x.is_complex()
    found = (torch.fft.fft if whole else torch.fft.rfft)(frames, norm="ortho" if normalized else "backward").mT
    found = found if x.dim() == 2 else found[0]
    return found if return_complex else torch.view_as_real(found)


def stretched(
    x: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """The result of torch's interpolation, which makes constants of all sizes, and which has no rule of torch's against
    aliasing."""
    rank, is_aligned = x.dim() - 2, bool(align_corners)
    operator = getattr(torch.ops.aten, STRETCHED.get(mode, "interpolation in {rank}").format(rank=rank), None)
    rule = None if operator is None else decomposition_table.get(operator.vec)
    if rule is None or (antialias and mode not in FILTERS):
        return torch.nn.functional.interpolate(
            x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )  # fmt: skip
    sizes, factors = ([*each] if isinstance(each, tuple | list) else [each] * rank for each in (size, scale_factor))
    if scale_factor is not None:
        factors = [float(each) for each in factors]
        sizes = [n * int(f) if f.is_integer() else math.floor(n * f) for n, f in zip(x.shape[2:], factors, strict=True)]
    follows = scale_factor is None or bool(recompute_scale_factor) or all(each.is_integer() for each in factors)
    if antialias:
        shares = [
            smoothing(n, count, None if follows else 1 / factor, mode, is_aligned, x)
            for n, count, factor in zip(x.shape[2:], sizes, factors, strict=True)
        ]
        return shares[0] @ (x @ shares[1].mT)
    aligned = [] if "nearest" in mode else [is_aligned]
    return rule(x, sizes if follows else None, *aligned, None if follows else factors)


STRETCHED = {
    "nearest": "upsample_nearest{rank}d", "nearest-exact": "_upsample_nearest_exact{rank}d",
    "linear": "upsample_linear{rank}d", "bilinear": "upsample_bilinear{rank}d",
    "trilinear": "upsample_trilinear{rank}d", "bicubic": "upsample_bicubic{rank}d",
}  # fmt: skip
"""Operators of interpolation by mode."""


def smoothing(n: Any, count: Any, scale: Any, mode: str, is_aligned: bool, like: torch.Tensor) -> torch.Tensor:
    """The shares of n elements in each of `count` new ones, where a wider filter keeps an image that is made smaller
    from aliasing: a row for each new element."""
    if is_aligned:
        scale = (n - 1) / (count - 1) if count > 1 else 0.0
    elif scale is None:
        scale = n / count
    centers = (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) * scale
    places = torch.arange(n, dtype=like.dtype, device=like.device) + 0.5
    shares = FILTERS[mode](((places - centers[:, None]) / (scale if scale > 1 else 1.0)).abs())
    return shares / shares.sum(1, keepdim=True)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


FILTERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bilinear": lambda x: (1 - x).clamp(min=0), "bicubic": _cubic,
}  # fmt: skip
"""Weights of elements by their distances, of filters against aliasing."""


def with_diagonal(x: torch.Tensor, value: float, wrap: bool = False) -> torch.Tensor:
    """The result of fill_diagonal_, which functions without side effects know no other form of."""
    if x.dim() != 2 or wrap:
        return x.fill_diagonal_(value, wrap)
    x.diagonal().fill_(value)
    return x


def normed(
    x: torch.Tensor, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    """The result of batch_norm, whose operator does not say that it changes the statistics that it keeps."""
    if training and mean is not None:
        variance_now, mean_now = torch.var_mean(x, [0, *range(2, x.dim())])
        mean.mul_(1 - momentum).add_(momentum * mean_now)
        variance.mul_(1 - momentum).add_(momentum * variance_now)
        mean = variance = None
    return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training, momentum, eps)


def bags(
    ids: torch.Tensor, table: torch.Tensor, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> torch.Tensor:  # fmt: skip
    """The result of embedding_bag: rows of a table, put together between offsets or along the last axis."""
    if max_norm is not None:
        return torch.nn.functional.embedding_bag(
            ids, table, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )  # fmt: skip
    rows = table[ids] if per_sample_weights is None else table[ids] * per_sample_weights[..., None]
    if ids.dim() == 2 and padding_idx is None:
        return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[mode](1)
    if ids.dim() == 2:
        count = ids.shape[0]
        bag = torch.arange(count, device=ids.device)[:, None].expand(ids.shape).reshape(-1)
        ids, rows = ids.reshape(-1), rows.reshape(-1, table.shape[1])
    else:
        count = offsets.shape[0] - include_last_offset
        bag = torch.bucketize(torch.arange(ids.shape[0], device=ids.device), offsets[:count], right=True) - 1
    if padding_idx is not None:  # one more bag, which is no result, holds these
        bag = torch.where(ids == padding_idx % table.shape[0], count, bag)
    bags_made = count + (padding_idx is not None)
    total = rows.new_zeros([bags_made, table.shape[1]])
    if mode == "max":
        into = bag[:, None].expand(rows.shape)
        return total.scatter_reduce(0, into, rows, "amax", include_self=False)[:count]
    total = total.index_add(0, bag, rows)[:count]
    if mode == "sum":
        return total
    sizes = rows.new_zeros([bags_made]).index_add(0, bag, torch.ones_like(rows[:, 0]))[:count]
    return total / sizes.clamp(min=1)[:, None]


def bilinear(one: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    """The result of torch's own, whose operator has three factors."""
    half = torch.einsum("...i,kij->...kj", one, weight)
    found = (half * other.unsqueeze(-2)).sum(-1)
    return found if bias is None else found + bias


def covariance(x: torch.Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> torch.Tensor:
    """The result of torch.cov, which looks at values first."""
    if x.dim() != 2 or fweights is not None or aweights is not None:
        return torch.cov(x, correction=correction, fweights=fweights, aweights=aweights)
    apart = x - x.mean(1, keepdim=True)
    return apart @ apart.mT / (x.shape[1] - correction)


def correlation(x: torch.Tensor) -> torch.Tensor:
    """The result of torch.corrcoef."""
    found = covariance(x)
    deviations = found.diagonal().sqrt()
    return (found / deviations[:, None] / deviations[None]).clamp(-1, 1)


def gru_cell(x: torch.Tensor, state: torch.Tensor, *weights: Any) -> torch.Tensor:
    """The result of torch.gru_cell, which makes constants of its sizes, as those of the other cells."""
    (reset, update, new), (reset_more, update_more, new_more) = _gates(x, state, 3, *weights)
    update = torch.sigmoid(update + update_more)
    new = torch.tanh(new + torch.sigmoid(reset + reset_more) * new_more)
    return (state - new) * update + new


def lstm_cell(x: torch.Tensor, states: Sequence[torch.Tensor], *weights: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The results of torch.lstm_cell."""
    every = zip(*_gates(x, states[0], 4, *weights), strict=True)
    into, forget, new, out = (one + other for one, other in every)
    kept = torch.sigmoid(forget) * states[1] + torch.sigmoid(into) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(kept), kept


def _gates(
    x: torch.Tensor, state: torch.Tensor, count: int, into: torch.Tensor, within: torch.Tensor, *biases: Any
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]:
    """The terms of each gate: those of the input, and those of the state."""
    own, more = biases or (None, None)
    return linear(x, into, own).chunk(count, -1), linear(state, within, more).chunk(count, -1)


def plain_cell(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the cell of a plain recurrence."""

    def cell(x: torch.Tensor, state: torch.Tensor, *weights: Any) -> torch.Tensor:
        (own,), (more,) = _gates(x, state, 1, *weights)
        return function(own + more)

    return cell


def margin_ranking(
    one: torch.Tensor, other: torch.Tensor, target: torch.Tensor, margin: float = 0.0, *_: Any, reduction: str = "mean",
    **__: Any,
) -> torch.Tensor:  # fmt: skip
    """The loss of torch's own name, which makes constants of its sizes, as those below."""
    return reduced((margin - target * (one - other)).clamp(min=0), reduction)


def hinge_embedding(
    x: torch.Tensor, target: torch.Tensor, margin: float = 1.0, *_: Any, reduction: str = "mean", **__: Any
) -> torch.Tensor:
    """The loss of torch's own name."""
    far = torch.where(target == 1, 0, (margin - x).clamp(min=0))
    return reduced(far + torch.where(target == -1, 0, x), reduction)


def cosine_embedding(
    one: torch.Tensor, other: torch.Tensor, target: torch.Tensor, margin: float = 0.0, *_: Any, reduction: str = "mean",
    **__: Any,
) -> torch.Tensor:  # fmt: skip
    """The loss of torch's own name."""
    sizes = [(each * each).sum(-1) + COSINE_EPSILON for each in (one, other)]
    cosine = (one * other).sum(-1) / (sizes[0] * sizes[1]).sqrt()
    near, far = torch.where(target == 1, 1 - cosine, 0), torch.where(target == -1, (cosine - margin).clamp(min=0), 0)
    return reduced(near + far, reduction)


def gaussian_nll(
    x: torch.Tensor, target: torch.Tensor, variance: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> torch.Tensor:
    """The loss of torch's own name, which looks for a negative variance first."""
    variance = variance if torch.is_tensor(variance) else variance * torch.ones_like(x)
    variance = variance.unsqueeze(-1) if variance.dim() == x.dim() - 1 else variance
    variance = variance.clamp(min=eps)
    loss = 0.5 * (variance.log() + (x - target) ** 2 / variance)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def alignments(
    scores: torch.Tensor, targets: torch.Tensor, steps: Any, lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The result of ctc_loss, which looks at the lengths first: the sum over alignments of a target and a sequence, one
    step of time after the other. Targets one behind the other, whose places their lengths tell, are left to torch."""
    if (scores.dim(), targets.dim()) != (3, 2) or not torch.is_tensor(steps) or not torch.is_tensor(lengths):
        return torch.nn.functional.ctc_loss(scores, targets, steps, lengths, blank, reduction, zero_infinity)
    batch, longest = targets.shape
    targets, lengths = targets.long(), lengths.long()
    # States of an alignment: a blank, then each label with a blank behind it. Paths lead to one at a step of time.
    labels = torch.stack([targets, torch.full_like(targets, blank)], 2).reshape(batch, 2 * longest)
    labels = torch.cat([torch.full_like(targets[:, :1], blank), labels], 1)
    never = torch.full_like(scores[0, :, :1], -math.inf)
    state = torch.arange(2 * longest + 1, device=labels.device)
    skips = (torch.cat([labels[:, :2], labels[:, :-2]], 1) != labels) & (state > 1)
    paths = torch.where(state < 2, scores[0].gather(1, labels), -math.inf)
    for step in range(1, scores.shape[0]):
        one = torch.cat([never, paths[:, :-1]], 1)
        two = torch.where(skips, torch.cat([never, one[:, :-1]], 1), -math.inf)
        moved = torch.logaddexp(torch.logaddexp(paths, one), two) + scores[step].gather(1, labels)
        paths = torch.where((steps > step)[:, None], moved, paths)
    ends = [paths.gather(1, at[:, None])[:, 0] for at in (2 * lengths, (2 * lengths - 1).clamp(min=0))]
    loss = -torch.logaddexp(ends[0], torch.where(lengths > 0, ends[1], -math.inf))
    if zero_infinity:
        loss = torch.where(loss == math.inf, 0.0, loss)
    return (loss / lengths.clamp(min=1)).mean() if reduction == "mean" else reduced(loss, reduction)


def reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    """The mean of a loss, its sum, or itself."""
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


INSTEAD: dict[Any, Callable[..., Any]] = {
    torch.bincount: counted, torch.Tensor.bincount: counted, torch.stft: framed, torch.Tensor.stft: framed,
    torch.Tensor.fill_diagonal_: with_diagonal, torch.gru_cell: gru_cell, torch.lstm_cell: lstm_cell,
    torch.rnn_tanh_cell: plain_cell(torch.tanh), torch.rnn_relu_cell: plain_cell(torch.relu),
    torch.nn.functional.interpolate: stretched, torch.nn.functional.batch_norm: normed,
    torch.nn.functional.embedding_bag: bags, torch.nn.functional.bilinear: bilinear,
    torch.cov: covariance, torch.Tensor.cov: covariance, torch.corrcoef: correlation,
    torch.Tensor.corrcoef: correlation,
    torch.nn.functional.margin_ranking_loss: margin_ranking, torch.nn.functional.gaussian_nll_loss: gaussian_nll,
    torch.nn.functional.hinge_embedding_loss: hinge_embedding, torch.nn.functional.ctc_loss: alignments,
    torch.nn.functional.cosine_embedding_loss: cosine_embedding,
}  # fmt: skip
"""Functions of torch that no tracer with symbols takes as they are, and what is called in their places."""
WHOLE: dict[Any, Any] = {}
"""Operators that tracing leaves whole, by the functions that they stand for."""
