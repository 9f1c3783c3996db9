"""What the author of an operator is told where it may be the operator that is wrong, and not the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fitness.oracle.inputs import SCALE_EXPONENT
from operators.definition.spec import Operator
from operators.dtypes import resolve_dtype

ZEROS = ("structured", "mixture")
"""Families that hold zeros, where a tensor has them among its specials."""
SCALES = {"scaled": 12.0, "mixture": 8.0}
"""The largest exponent of a row's factor."""
DOMINATED = 8


def advice(operator: Operator, dtype: str, family: str, *, has_magnitude: bool) -> str:
    """How the bound and the inputs of a family came about, and which keys and functions change them; may be empty."""
    said = [*_of_bound(operator, has_magnitude=has_magnitude), *departures(operator, dtype, family)]
    return "; ".join(said)


def _of_bound(operator: Operator, *, has_magnitude: bool) -> Iterator[str]:
    if not has_magnitude and operator.tolerance.bound not in ("bits", "exact"):
        yield (
            "reference.py has no magnitude(...), so that S of the bound is |y|: return the size of the sums inside, "
            "where it is more than what they come to"
        )


def departures(operator: Operator, dtype: str, family: str) -> Iterator[str]:
    """Where a family's inputs leave the distributions that operator.toml declares, and how it keeps them out."""
    floating = [t for t in operator.inputs if t.distribution is not None and resolve_dtype(t.dtype, dtype).is_float]
    strewn = {t.name: t.specials for t in floating if t.specials}
    if family == "specials" and strewn:
        yield f"specials inputs hold {_listed(strewn)}: `specials = []` there in operator.toml leaves these out"
    zeros = {name: ("zero",) for name, kinds in strewn.items() if "zero" in kinds}
    if family in ZEROS and zeros:
        yield f"{family} inputs may hold {_listed(zeros)}: `specials = []` there in operator.toml leaves these out"
    free = ", ".join(f"`{t.name}`" for t in floating if not t.bounded)
    if free and family in (*SCALES, "structured"):
        most = 2 ** min(SCALES[family], SCALE_EXPONENT.get(dtype, 99.0)) if family in SCALES else DOMINATED
        yield (
            f"{family} inputs are up to {most:,.0f} times what their distributions draw in {free}: `bounded = true` "
            "there in operator.toml keeps them to their ranges"
        )


def _listed(kinds: Mapping[str, tuple[str, ...]]) -> str:
    """`zero in `a`, `c`; inf in `c``: tensors by what they hold."""
    by_kind: dict[str, list[str]] = {}
    for name, found in kinds.items():
        for kind in found:
            by_kind.setdefault(kind, []).append(f"`{name}`")
    return ", ".join(f"{kind} in {', '.join(names)}" for kind, names in by_kind.items())
