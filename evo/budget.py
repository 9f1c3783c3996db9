"""What a run may spend, and what it has spent: one object, charged at one place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from mutators.llm.spending import Spending
from operators.errors import UserError

UNITS = {
    "s": ("wall_s", 1.0), "min": ("wall_s", 60.0), "h": ("wall_s", 3600.0),
    "eval": ("evaluations", 1.0), "evals": ("evaluations", 1.0),
    "call": ("calls", 1.0), "calls": ("calls", 1.0), "usd": ("cost_usd", 1.0),
    "tok": ("tokens", 1.0), "ktok": ("tokens", 1e3), "Mtok": ("tokens", 1e6),
    "gpus": ("gpu_s", 1.0), "gpuh": ("gpu_s", 3600.0),
}  # fmt: skip
MOST = 1e15
EXAMPLES = "60s, 10min, 8h, 500evals, 200calls, 5usd, 2Mtok, 4gpuh"


KINDS = ("wall_s", "evaluations", "calls", "tokens", "cost_usd", "evaluator_s", "gpu_s")
"""`evaluations` are candidates that reached the compiler; neither duplicates nor tuning trials count. `calls` are
answers of language models, every turn of a dialogue one; a call that failed is none. `evaluator_s` are seconds in which
evaluators were at what was asked for; `gpu_s` the same on GPUs."""


def parse_limits(texts: tuple[str, ...] | list[str]) -> dict[str, float]:
    """`["8h", "500evals"]` as amounts by kind. Raises UserError with examples."""
    limits: dict[str, float] = {}
    for text in texts:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)", text.strip())
        if not match or match[2] not in UNITS or not 0 < float(match[1]) < MOST:
            raise UserError(f"--budget {text}: write a number and a unit, such as {EXAMPLES}")
        kind, factor = UNITS[match[2]]
        if kind in limits:
            raise UserError(f"--budget {text}: there is already a limit on {kind}")
        limits[kind] = float(match[1]) * factor
    return limits


@dataclass
class Budget:
    """Limits and spending. The caller says what time it is; nothing here reads a clock.

    Calls, tokens and dollars are counted in `spending`, which only the client of language models charges.
    """

    limits: dict[str, float]
    counts_lost: bool = True
    """Whether upper bounds of what lost calls cost count against the limits."""
    trials: int = 0
    duplicates: int = 0
    spending: Spending = field(init=False)
    _charged: dict[str, float] = field(init=False, default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def __post_init__(self) -> None:
        tokens, usd, calls = (self.limits.get(kind, math.inf) for kind in ("tokens", "cost_usd", "calls"))
        self.spending = Spending(tokens, usd, calls, counts_lost=self.counts_lost)

    @property
    def spent(self) -> dict[str, float]:
        """Amounts by kind."""
        spending = self.spending
        return self._charged | {"calls": spending.calls, "tokens": spending.tokens, "cost_usd": spending.dollars}

    def charge(self, kind: str, amount: float) -> None:
        """Add to what is spent of anything but calls, tokens and dollars."""
        self._charged[kind] += amount

    def set_wall(self, seconds: float) -> None:
        """Time of all sessions of this run together."""
        self._charged["wall_s"] = seconds

    def exhausted(self, reserved_s: float = 0.0) -> str | None:
        """Which limit is reached, in words; None while there is something left.

        Of the time, `reserved_s` are for what the run has to do at its end.
        """
        if self.spending.refusal:
            return self.spending.refusal
        spent = self.spent
        for kind, limit in self.limits.items():
            if spent[kind] >= limit:
                return f"{kind} {spent[kind]:g} of {limit:g}"
        if not self.allows("wall_s", reserved_s):
            return f"wall_s {spent['wall_s']:g} of {self.limits['wall_s']:g}, the rest for confirmations"
        return None

    def allows(self, kind: str, under_way: float) -> bool:
        """Whether `kind` would last if all that is under way were charged."""
        return self.spent[kind] + under_way < self.limits.get(kind, math.inf)

    def share(self) -> float:
        """The largest used-up share of any limit, at most 1; 0 without limits."""
        spent = self.spent
        return max((min(spent[k] / limit, 1.0) for k, limit in self.limits.items()), default=0.0)
