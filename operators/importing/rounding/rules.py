"""Rounding errors that operators of torch add to those of their arguments: sums, norms, and what compares numbers.

A rule gets the errors, the operator, its result, and its arguments, and returns the errors of its results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from operators.importing.rounding.held import LARGEST, HeldErrors, axes, length
from operators.shared.errors import DIVISION_ULPS, EXP_ULPS, LOG_ULPS, ROOT_ULPS

# --- sums -------------------------------------------------------------------------------------------------------------


def _bilinear(run: HeldErrors, func: Callable[..., Tensor], a: Tensor, b: Tensor, terms: int, *rest: Any) -> Tensor:
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


def _mm(run: HeldErrors, func: Any, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return _bilinear(run, func, a, b, a.shape[-1])


def _addmm(
    run: HeldErrors, func: Any, y: Tensor, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    product: Tensor = _bilinear(run, torch.matmul, a, b, a.shape[-1]) * abs(alpha)
    apart: Tensor = run.stored * (y.double() - beta * c.double()).abs()  # of a product rounded before it is added
    added: Tensor = abs(beta) * (run.sized(c) + c.abs() / 2)
    return product + added + y.abs() / 2 + apart


def _convolution(run: HeldErrors, func: Any, y: Tensor, x: Tensor, w: Tensor, bias: Any, *rest: Any) -> Tensor:
    transposed, groups = rest[3], rest[5]
    terms = w.numel() // w.shape[1 if transposed else 0] // (groups if transposed else 1)
    total = _bilinear(run, lambda a, b: func(a, b, None, *rest), x, w, terms)
    if bias is None:
        return total
    shape = [-1, *[1] * (x.dim() - 2)]
    apart: Tensor = run.stored * (y.double() - bias.double().reshape(shape)).abs()
    return total + run.sized(bias).reshape(shape) + y.abs() / 2 + apart


def _sum(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dims: Any = None, keep: bool = False, **_: Any) -> Tensor:
    along, size = axes(x, dims), run.sized(x)
    if y.is_floating_point():  # those of integers are exact
        size = size + run.leaning(x, along) * x.double().abs()
    total: Tensor = size.sum(along, keep) if x.dim() else size
    if "mean" in func._schema.name:
        total = total / length(x, along) + (1 + run.stored) * y.abs()
    return run.where_it_fits(total, x.double().abs().sum(along, keep) if x.dim() else x.double().abs(), y)


def _cumsum(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dim: int, **_: Any) -> Tensor:
    count = x.shape[dim] if x.dim() else 1
    if not y.is_floating_point():
        return torch.cumsum(run.sized(x), dim)
    size = x.double().abs()
    return run.where_it_fits(torch.cumsum(run.sums(count) * size + run.sized(x), dim), torch.cumsum(size, dim), y)


def _logcumsumexp(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """The errors of logarithms of sums whose terms are shares of one: no error of an argument grows."""
    if not x.dim():
        return run.sized(x)
    terms, x64 = run.sums(x.shape[dim]), x.double()
    own, log_sum = torch.cummax(run.sized(x), dim)[0], (y.double() - torch.cummax(x64, dim)[0]).abs()
    of_exp = 2 * EXP_ULPS + math.log(x.shape[dim] + 1)
    return own + terms + of_exp + LOG_ULPS * (1 + log_sum) + run.stored * log_sum + y.double().abs() / 2


def _grown(run: HeldErrors, x: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """The errors of a function that grows with the size of each element, as these make them."""
    size = x.double().abs()
    return (func(size + run.granted * run.sized(x)) - func(size)) / run.granted


def _prod(run: HeldErrors, func: Any, y: Tensor, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    count = x.numel() // max(y.numel(), 1)
    return _grown(run, x, lambda size: func(size, *args, **kwargs)) + run.sums(count) * y.double().abs()


def _cumprod(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _grown(run, x, lambda size: size.cumprod(dim)) + run.sums(x.shape[dim]) * y.double().abs()


def _mean_of(run: HeldErrors, func: Any, y: Tensor, x: Tensor, *args: Any) -> Tensor:
    """Weighted means, whose weights are not negative."""
    count = x.numel() // max(y.numel(), 1) + 1
    if "avg_pool" in func._schema.name and "adaptive" not in func._schema.name:
        count = math.prod(args[0]) if len(args[0]) > 1 else args[0][0] ** (x.dim() - 2)
    weights = 4 * max(x.shape[-2:]) if "linear" in func._schema.name else 1
    size: Tensor = func(x.double().abs(), *args)
    return run.where_it_fits(func(run.sized(x), *args) + (run.sums(count) + weights) * size, (count - 1) * size, y)


def _norm(
    run: HeldErrors, func: Any, y: Tensor, x: Tensor, order: Any = 2, dims: Any = None, keep: bool = False, **_: Any
) -> Tensor:
    along = axes(x, dims)
    terms = run.sums(length(x, along))
    if order in (math.inf, -math.inf):
        return run.sized(x).amax(along, keep)
    error = _grown(run, x, lambda size: func(size, order, dims, keep))
    error = error + (terms + 2 * EXP_ULPS * (order not in (1, 2)) + ROOT_ULPS + run.stored) * y.abs()
    over = y.isfinite() & (y.double().square() > run.most_sum)
    return torch.where(over, LARGEST, error) if order == 2 else error


def _cholesky(run: HeldErrors, func: Any, out: Any, x: Tensor, upper: bool = False, **_: Any) -> Any:
    """To first order, what the errors of a matrix and of the products make of its factor."""
    factor = (out[0].mT if upper else out[0]).double()
    size, inverse = factor.abs(), torch.linalg.inv(factor).abs()
    moved = run.sized(x) + run.sums(x.shape[-1]) * (size @ size.mT)
    found = size @ (inverse @ moved @ inverse.mT).tril() + ROOT_ULPS * size
    return found.mT if upper else found, None


def _triangular(
    run: HeldErrors, func: Any, y: Tensor, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, **_: Any
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


# --- norms, statistics and softmax: functions of sums -----------------------------------------------------------------


class _Moments:
    """Deviations from the mean along some axes and the root of their square's mean, with their errors."""

    def __init__(self, run: HeldErrors, x: Tensor, along: list[int]) -> None:
        self.run, x64, self.count = run, x.double(), length(x, along)
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


def _root_error(run: HeldErrors, variance: Tensor, error: Tensor, eps: float) -> Tensor:
    """Relative error of 1 / sqrt(variance + eps); what is computed of a variance is not negative."""
    least = (variance - run.granted * error).clamp(min=0) + eps
    relative = (((variance + eps) / least).sqrt() - 1) / run.granted + ROOT_ULPS
    return torch.where(error < LARGEST, relative, LARGEST)


def _affine(run: HeldErrors, z: Tensor, error: Tensor, weight: Any, bias: Any, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        w = weight.double().reshape(shape)
        error = error * w.abs() + run.sized(weight).reshape(shape) * z.abs() + (z * w).abs() / 2
    if bias is not None:
        error = error + run.sized(bias).reshape(shape) + bias.double().abs().reshape(shape)
    return error


def _layer_norm(
    run: HeldErrors, func: Any, out: Any, x: Tensor, normalized: Any, weight: Any, bias: Any, eps: float
) -> Any:
    found = _Moments(run, x, list(range(x.dim() - len(normalized), x.dim())))
    z, error, _, root_error = found.standardized(eps)
    return _affine(run, z, error, weight, bias, normalized), found.mean_error, root_error


def _group_norm(
    run: HeldErrors,
    func: Any,
    out: Any,
    x: Tensor,
    weight: Any,
    bias: Any,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
) -> Any:
    grouped = x.reshape(n, groups, -1)
    run.keep(grouped, run.sized(x).reshape(grouped.shape))
    found = _Moments(run, grouped, [2])
    z, error, _, root_error = found.standardized(eps)
    shape = [1, c, *[1] * (x.dim() - 2)]
    affine = _affine(run, z.reshape(x.shape), error.reshape(x.shape), weight, bias, shape)
    return affine, found.mean_error.reshape(n, groups), root_error.reshape(n, groups)


def _batch_norm(run: HeldErrors, func: Any, out: Any, x: Tensor, weight: Any, bias: Any, *args: Any) -> Any:
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


def _variance(run: HeldErrors, func: Any, out: Any, x: Tensor, dims: Any = None, *args: Any, **kwargs: Any) -> Any:
    found = _Moments(run, x, axes(x, None if isinstance(dims, bool) else dims))
    y = out[0] if isinstance(out, tuple) else out
    scale = found.count / max(found.count - 1, 1)
    error, mean_error = (found.variance_error * scale).reshape(y.shape), found.mean_error.reshape(y.shape)
    if "std" in func._schema.name:
        y64 = y.double()
        ends = ((y64.square() + turn * run.granted * error).clamp(min=0).sqrt() for turn in (-1, 1))
        error = torch.maximum(*((end - y64).abs() / run.granted for end in ends)) + y64
    return (error, mean_error) if isinstance(out, tuple) else error


def _softmax(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dim: int, *_: Any) -> Tensor:
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
    of_exp, terms = EXP_ULPS + below, run.leaning(p, axes(x, dim))
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


# --- comparisons: the largest, orders, and what is moved by their indices ---------------------------------------------


# The error of an index is LARGEST where it may be any other; where it may be a neighbour's in an order, it is the
# number of what is ordered, over a roundoff.


def _extreme(run: HeldErrors, func: Any, out: Any, x: Tensor, dim: Any = None, keep: bool = False) -> Any:
    found = run.of(x)
    if found is None:
        return None, None
    if not isinstance(out, tuple | list):
        return found.amax()
    largest = found.amax(dim, keep)
    best = out[0] if keep or not x.dim() else out[0].unsqueeze(dim)
    near = ((x - best).abs() <= 2 * run.granted * found.amax(dim, True)).sum(dim, keep) > 1
    return largest, near.double() * LARGEST


def _arg(run: HeldErrors, func: Any, y: Tensor, x: Tensor, dim: Any = None, keep: bool = False) -> Any:
    found = run.of(x)
    if found is None:
        return None
    flat, errors = (x.flatten(), found.flatten()) if dim is None else (x, found)
    axis = 0 if dim is None else dim
    best = flat.amax(axis, True) if "max" in func._schema.name else flat.amin(axis, True)
    near = ((flat - best).abs() <= 2 * run.granted * errors.amax(axis, True)).sum(axis, keep and dim is not None) > 1
    return (near.double() * LARGEST).reshape(y.shape)


def _running_extreme(run: HeldErrors, func: Any, out: Any, x: Tensor, dim: int) -> Any:
    found = run.of(x)
    if found is None:
        return None, None
    largest = torch.cummax(found, dim)[0]
    return largest, torch.where(largest > 0, x.shape[dim] / run.roundoff, 0.0)


def _max_pool(run: HeldErrors, func: Any, out: Any, x: Tensor, *args: Any) -> Any:
    found = run.of(x)
    return (None, None) if found is None else (func(found, *args)[0], None)


def _sorted(run: HeldErrors, func: Any, out: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
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


def read_there(func: Any, args: Sequence[Any], at: int, number: int, axis: int, own: Tensor) -> Tensor:
    """Whether each result is read at a place that may be another: there a probe that holds nothing else has a one."""
    nothing, count = torch.zeros_like(args[0], dtype=torch.float64), args[0].shape[axis]
    probe = torch.cat([nothing, torch.ones_like(nothing.narrow(axis, 0, 1))], axis)
    given = list(args)
    indices = list(given[at]) if isinstance(given[at], tuple | list) else [given[at]]
    indices[number] = torch.where(own > 0, count, indices[number].remainder(count))
    given[0], given[at] = probe, indices if isinstance(given[at], tuple | list) else indices[0]
    return func(*given) > 0  # type: ignore[no-any-return]


def written_there(func: Any, args: Sequence[Any], at: int, number: int, axis: int, own: Tensor) -> Tensor:
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


def exchanged(run: HeldErrors, own: Tensor, x: Tensor, axis: int, index: Tensor, source: Any) -> Tensor:
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


RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _mm), **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    "convolution": _convolution, "convolution_overrideable": _convolution, "sum": _sum, "mean": _sum, "cumsum": _cumsum,
    "logcumsumexp": _logcumsumexp, "prod": _prod, "cumprod": _cumprod, "linalg_vector_norm": _norm,
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
                     "upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d"), _mean_of),
    "linalg_cholesky_ex": _cholesky, "linalg_solve_triangular": _triangular,
    "native_layer_norm": _layer_norm, "native_group_norm": _group_norm,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                     "_native_batch_norm_legit_functional", "cudnn_batch_norm"), _batch_norm),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance), "_softmax": _softmax, "_log_softmax": _softmax,
    **dict.fromkeys(("max", "min"), _extreme), **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("cummax", "cummin"), _running_extreme), **dict.fromkeys(("sort", "topk"), _sorted),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
                     "adaptive_max_pool3d"), _max_pool),
}  # fmt: skip
"""By the name of an operator."""
