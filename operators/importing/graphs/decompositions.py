"""Rules that make operators of torch out of simpler ones while a problem is recorded: torch's own, and more of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import core_aten_decompositions, decomposition_table

from operators.importing.graphs.symbols import value_of

ATEN = torch.ops.aten
BEYOND_CORE = (
    "adaptive_max_pool2d.default", "adaptive_max_pool3d.default", "grid_sampler_2d.default", "dist.default",
    "upsample_bicubic2d.default", "upsample_trilinear3d.default", "as_strided_scatter.default",
    "diagonal_scatter.default", "tril_indices.default", "triu_indices.default", "remainder.Scalar_Tensor",
    "bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor", "round.decimals",
    "bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor", "ldexp.Tensor", "narrow_copy.default",
    "unbind_copy.int",
)  # fmt: skip
"""Operators that torch has a rule for, and leaves as they are among its core ones."""
FLOAT8: Mapping[torch.dtype, tuple[int, int, int]] = {
    torch.float8_e4m3fn: (3, -6, 8), torch.float8_e5m2: (2, -14, 15),
}  # fmt: skip
"""Bits of the fraction, and the least and the largest exponent."""


@lru_cache(maxsize=1)
def name_of(target: Any) -> str:
    """`add`, of aten.add.Tensor, or the name of another function."""
    return str(target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else target.__name__)


def operator_of(node: fx.Node) -> str:
    """The name of the operator that a node calls; empty for any other node."""
    return name_of(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The rules by operator. An older torch has fewer: an operator without one stays whole."""
    named = [each.split(".") for each in BEYOND_CORE]
    more = [getattr(getattr(ATEN, name, None), overload, None) for name, overload in named]
    beyond = {each: decomposition_table[each] for each in more if each in decomposition_table}
    return dict(core_aten_decompositions()) | beyond | RULES


def _distances(x: Tensor, y: Tensor, p: float, mode: Any = None) -> Tensor:
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    found: Tensor = torch.linalg.vector_norm(apart, p, -1)
    return found


def _strided(x: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    if not x.is_contiguous():
        return NotImplemented
    place: Any = 0 if offset is None else offset
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(count, device=x.device) * step
        place = place + along.reshape([-1, *[1] * (len(size) - axis - 1)])
    return x.reshape(-1)[place if isinstance(place, Tensor) else torch.tensor(place)]


def _smallest(x: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.sort(x, stable=True, dim=dim)
    found = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _median(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _smallest(x, (x.shape[dim] + 1) // 2 if x.dim() else 1, dim, keepdim)


def _median_of_all(x: Tensor) -> Tensor:
    return _median(x.reshape(-1), 0)[0]


def _mean_scattered(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """The mean of what is scattered to one place; other reductions have loops."""
    if reduce != "mean":
        return NotImplemented
    ones = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = ones.scatter_add(dim, index, torch.ones_like(source))
    own = x if include_self else torch.where(count > 0, 0, x)
    return own.scatter_add(dim, index, source) / count.clamp(min=1)


def _put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Any:
    """A choice, where one number is put wherever a mask is true."""
    *whole, mask = indices
    if any(each is not None for each in whole) or mask.dtype != torch.bool or accumulate or values.dim():
        return NotImplemented
    mask = mask.reshape([*mask.shape, *[1] * (x.dim() - len(whole) - mask.dim())])
    return torch.where(mask, values.to(x.dtype), x)


def _found(
    edges: Tensor, x: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None
) -> Any:
    """The number of edges below each element, or of those that are not above it."""
    if sorter is not None or not isinstance(x, Tensor):
        return NotImplemented
    right = right or side == "right"
    before = edges.unsqueeze(-2) if edges.dim() > 1 else edges
    each = x.unsqueeze(-1)
    below = before <= each if right else before < each
    return below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def _bucket(x: Any, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return _found(edges, x, out_int32=out_int32, right=right)


def _float8(x: Tensor, *, dtype: Any = None, **_: Any) -> Any:
    """The nearest number that 8 bits hold, in the type that x has: no tensor of such numbers is an element type here.

    Comparisons find the exponent: they are exact where x is.
    """
    if dtype not in FLOAT8:
        return NotImplemented
    bits, least, most = FLOAT8[dtype]
    size = x.abs()
    step = torch.full_like(x, 2.0 ** (least - bits))
    for exponent in range(least + 1, most + 1):
        step = torch.where(size >= 2.0**exponent, 2.0 ** (exponent - bits), step)
    return torch.round(x / step) * step


def _cholesky_solved(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    half = ATEN.linalg_solve_triangular.default(lower, b, upper=False)
    found: Tensor = ATEN.linalg_solve_triangular.default(lower.mT, half, upper=True)
    return found


def _put_row(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    """The row that is put into a tensor of one row: nothing hangs on what was there."""
    if value_of(x.shape[dim]) == 1:
        return source.unsqueeze(dim).to(x.dtype).expand(x.shape)
    found: Tensor = decomposition_table[ATEN.select_scatter.default](x, source, dim, index)
    return found


RULES: dict[Any, Callable[..., Any]] = {
    ATEN.select_scatter.default: _put_row,
    ATEN._cdist_forward.default: _distances, ATEN.as_strided.default: _strided, ATEN.median.dim: _median,
    ATEN.median.default: _median_of_all, ATEN.kthvalue.default: _smallest,
    ATEN.scatter_reduce.two: _mean_scattered, ATEN.index_put.default: _put,
    ATEN.searchsorted.Tensor: _found, ATEN.bucketize.Tensor: _bucket,
    ATEN._to_copy.default: _float8, ATEN.cholesky_solve.default: _cholesky_solved,
    ATEN.__rshift__.Tensor: ATEN.bitwise_right_shift.Tensor, ATEN.__lshift__.Tensor: ATEN.bitwise_left_shift.Tensor,
    ATEN.__rshift__.Scalar: ATEN.bitwise_right_shift.Tensor_Scalar,
    ATEN.__lshift__.Scalar: ATEN.bitwise_left_shift.Tensor_Scalar,
}  # fmt: skip
"""By operator; one that answers NotImplemented leaves it as it is."""
