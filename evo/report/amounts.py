"""Words for a run's amounts, the same on every page and terminal; those of verdicts are `fitness.words`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from evo.report.output import printable
from fitness.words import duration


def plain(value: Any) -> str:
    """Return a value as it is, a time to the minute; nothing for None."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M %Z}"
    return "" if value is None else printable(str(value))


def count(value: float) -> str:
    """Return a number of things: `12,345`."""
    return f"{value:,.0f}"


def listed(names: Sequence[str], most: int) -> str:
    """Return `most` names and the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def versions_in_words(host: Mapping[str, Any]) -> str:
    """Return those of the packages that a run's rivals are of: `torch 2.11.0, driver 580.159.04`."""
    return ", ".join(f"{name} {version}" for name, version in host.get("versions", {}).items())


def share(value: float) -> str:
    """Return a share: `75 %`."""
    return f"{100 * value:.0f} %"


def probability(value: float) -> str:
    """Return a probability: `0.031`; `< 0.0001` for the smallest."""
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def seconds(value: float) -> str:
    """Return seconds, for a column that names them: `12.3`."""
    return f"{value:,.1f}"


def tokens(value: float) -> str:
    """Return a number of tokens as budgets have it: `850tok`, `12.5ktok`, `3Mtok`."""
    return f"{value:g}tok" if value < 1e4 else f"{value / 1e3:.3g}ktok" if value < 1e6 else f"{value / 1e6:.3g}Mtok"


def amount(value: float) -> str:
    """Return a number of tokens, for a column that names them: `12.5k`."""
    return tokens(value).removesuffix("tok")


def dollars(value: float) -> str:
    """Return dollars, for a column that names them: `0.0123`."""
    return f"{value:.4g}"


def usd(value: float) -> str:
    """Return dollars: `0.0123 USD`."""
    return f"{dollars(value)} USD"


def of_budget(kind: str, value: float) -> str:
    """Return an amount of a kind of budget: `12 min`, `500 evals`, `3Mtok`, `5 USD`, `7 calls`."""
    written = {"wall_s": duration, "tokens": tokens, "cost_usd": usd, "evaluator_s": duration, "gpu_s": duration}
    if kind in written:
        return written[kind](value)
    name = kind.replace("evaluations", "evals")
    return f"{value:.0f} {name if round(value) != 1 else name.removesuffix('s')}"


def budgeted(limits: Mapping[str, float]) -> str:
    """Return the limits of a run: `12 min, 5 USD`."""
    return ", ".join(of_budget(kind, limit) for kind, limit in limits.items())
