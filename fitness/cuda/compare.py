"""The comparisons of native/checks.cpp for tensors, on whatever device they are: same questions, same answers."""

from __future__ import annotations

import math

import torch

CHUNK = 1 << 24
"""Elements that are looked at in one go, so that temporaries stay small beside the tensors."""
TINY, LARGEST = torch.finfo(torch.float64).tiny, torch.finfo(torch.float64).max


def judgement_parts(
    y: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor
) -> tuple[float, float, int, int | None, int]:
    """The fields of `fitness.compare.Judgement`, for flat tensors."""
    if not y.numel() == expected.numel() == allowed.numel():
        raise ValueError(f"{y.numel()} values against {expected.numel()} answers and {allowed.numel()} bounds")
    largest, squares, bad, first, changes = 0.0, 0.0, 0, None, 0
    last_negative = None
    for begin in range(0, y.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        value, want, bound = y[part].double(), expected[part], allowed[part]
        ratio = _ratios(value, want, bound)
        negative = value < want
        wrong = ratio > 1
        finite = ratio.masked_fill(ratio == math.inf, 0.0)
        found = torch.stack(
            (
                ratio.max(),
                finite.square().sum(),
                wrong.sum().double(),
                wrong.to(torch.uint8).argmax().double(),
                (negative[1:] != negative[:-1]).sum().double(),
                negative[0].double(),
                negative[-1].double(),
            )
        ).tolist()
        largest, squares = max(largest, found[0]), squares + found[1]
        if found[2] and first is None:
            first = begin + int(found[3])
        bad += int(found[2])
        changes += int(found[4]) + (last_negative is not None and last_negative != found[5])
        last_negative = found[6]
    count = y.numel()
    return largest, math.sqrt(squares / max(count, 1)), bad, first, min(2 * changes + 1, count)


def _ratios(value: torch.Tensor, want: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """|value - want| / bound; 0 where anything goes or both are the same infinity or NaN, infinite where none helps."""
    error = (value - want).abs()
    ratio = error / bound.clamp(min=TINY)
    helpless = (bound <= 0) | ~(error <= LARGEST)
    ratio = torch.where(helpless, math.inf, ratio)
    ratio = torch.where((error == 0) | (bound == math.inf), 0.0, ratio)
    same = (value == want) | (value.isnan() & want.isnan())
    return torch.where(want.isfinite(), ratio, torch.where(same, 0.0, math.inf))


def bound_parts(
    y: torch.Tensor,
    s: torch.Tensor,
    rounding: float,
    growth: float,
    eta: float,
    y_limit: float,
    s_limit: float,
    usual_rounding: float,
    usual_growth: float,
) -> tuple[torch.Tensor, float, float]:
    """The fields of `fitness.compare.Bound`, for flat tensors in fp64."""
    if y.numel() != s.numel():
        raise ValueError(f"{y.numel()} values and {s.numel()} magnitudes")
    allowed = torch.empty_like(y)
    sums = torch.zeros(2, dtype=torch.float64, device=y.device)
    for begin in range(0, y.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        value, size, total = y[part], y[part].abs(), s[part].abs()
        bound = rounding * size + growth * total + eta
        overflows = ~((size <= y_limit) & (total <= s_limit))
        allowed[part] = torch.where(overflows, torch.where(value.isfinite(), math.inf, 0.0), bound)
        least = torch.where(overflows, 0.0, usual_rounding * size / bound)
        usual = torch.where(overflows, 0.0, (usual_rounding * size + usual_growth * total) / bound)
        sums += torch.stack((least.square().sum(), usual.square().sum()))
    least_rms, usual_rms = (sums / max(y.numel(), 1)).sqrt().tolist()
    return allowed, least_rms, usual_rms
