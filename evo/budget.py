"""The budget of a run and what it has spent, charged at one place; the time of all its sessions together."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fitness.words import counted, duration
from mutators.llm.spending import Spending
from operators.errors import UserError

UNITS = {
    "s": ("wall_s", 1.0), "m": ("wall_s", 60.0), "min": ("wall_s", 60.0), "h": ("wall_s", 3600.0),
    "eval": ("evaluations", 1.0), "evals": ("evaluations", 1.0),
    "call": ("calls", 1.0), "calls": ("calls", 1.0), "usd": ("cost_usd", 1.0),
    "tok": ("tokens", 1.0), "ktok": ("tokens", 1e3), "Mtok": ("tokens", 1e6),
    "gpus": ("gpu_s", 1.0), "gpuh": ("gpu_s", 3600.0),
}  # fmt: skip
TIMES = {"wall_s": "time", "gpu_s": "GPU time"}
"""Kinds of budgets in seconds, and their names in words."""
MOST = 1e15
AMOUNT = r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)"
"""A number and its unit."""
EXAMPLES = "60s, 10min, 1h30m, 500evals, 200calls, 5usd, 2Mtok, 4gpuh"
UNDONE = "the machine is too busy"
"""Beginning of the reason for which a search ends that can have nothing judged."""
OF_MODELS = ("calls", "tokens", "cost_usd")
"""Kinds that only language models spend."""


KINDS = ("wall_s", "evaluations", "calls", "tokens", "cost_usd", "evaluator_s", "gpu_s")
"""`evaluations` are candidates that reached the compiler; neither duplicates nor tuning trials count, nor kernels that
the machine left without a verdict. `calls` are
answers of language models, every turn of a dialogue one; a call that failed is none. `evaluator_s` are seconds in which
evaluators were at what was asked for; `gpu_s` the same on GPUs."""


def is_used_up(reason: str) -> bool:
    """Return whether a search that ended for this reason had reached a limit."""
    return reason.startswith(tuple(f"{TIMES.get(kind, kind)} " for kind in KINDS))


def parse_limits(texts: Sequence[str], option: str = "--budget") -> dict[str, float]:
    """`["1h30m", "500evals"]` as amounts by kind. Raises UserError with examples; `option` is what gave them."""
    limits: dict[str, float] = {}
    for text in texts:
        parts = re.findall(AMOUNT, text) if re.fullmatch(rf"(?:{AMOUNT})+", text.strip()) else []
        kinds = {UNITS[unit][0] for _, unit in parts if unit in UNITS}
        amount = sum(float(number) * UNITS[unit][1] for number, unit in parts if unit in UNITS)
        if strange := next((unit for _, unit in parts if unit not in UNITS), ""):
            raise UserError(f"{option} {text}: there is no unit `{strange}`; write one such as {EXAMPLES}")
        if len(kinds) != 1:
            raise UserError(f"{option} {text}: write a number and a unit, such as {EXAMPLES}")
        if not 0 < amount < MOST:
            raise UserError(f"{option} {text}: more than 0 and less than {MOST:g} is possible, such as {EXAMPLES}")
        (kind,) = kinds
        if kind in limits:
            raise UserError(f"{option} {text}: there is already a limit on {TIMES.get(kind, kind)}; name one")
        limits[kind] = amount
    return limits


def doubled(limits: Mapping[str, float]) -> list[str]:
    """Twice these limits, as `parse_limits` reads them; those that have no unit are left out."""
    units = {
        "wall_s": "s",
        "evaluations": "evals",
        "calls": "calls",
        "cost_usd": "usd",
        "tokens": "tok",
        "gpu_s": "gpus",
    }
    return [f"{2 * limits[kind]:.12g}{unit}" for kind, unit in units.items() if kind in limits]


@dataclass
class Budget:
    """Limits and spending. The caller says what time it is; nothing here reads a clock.

    Calls, tokens and dollars are counted in `spending`, which only the client of language models charges.
    """

    limits: dict[str, float]
    cell: bool = False
    """Whether it is that of a comparison's cell: see `Spending`."""
    trials: int = 0
    duplicates: int = 0
    undone: int = 0
    """Requests in a row of this session that the machine left without a verdict. They use no limit up; as many of them
    as the limit on evaluations end the search."""
    spending: Spending = field(init=False)
    _charged: dict[str, float] = field(init=False, default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    def __post_init__(self) -> None:
        tokens, usd, calls = (self.limits.get(kind, math.inf) for kind in ("tokens", "cost_usd", "calls"))
        self.spending = Spending(tokens, usd, calls, cell=self.cell)

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
                return self._reached(kind)
        if self.undone >= self.limits.get("evaluations", math.inf):
            lost = counted(self.undone, "request in a row was", "requests in a row were")
            return f"{UNDONE}: {lost} left without a verdict; resume when less else runs"
        if not self.allows("wall_s", reserved_s):
            return f"{self._reached('wall_s')}, the rest for confirmations"
        return None

    def _reached(self, kind: str) -> str:
        """The words on a limit and how far it is reached."""
        spent, limit = self.spent[kind], self.limits[kind]
        if kind in TIMES:
            return f"{TIMES[kind]} {duration(spent)} of {duration(limit)}"
        return f"{kind} {spent:g} of {limit:g}"

    def allows(self, kind: str, under_way: float) -> bool:
        """Whether `kind` would last if all that is under way were charged."""
        return self.spent[kind] + under_way < self.limits.get(kind, math.inf)

    def share(self) -> float:
        """The largest used-up share of any limit, at most 1; 0 without limits."""
        spent = self.spent
        return max((min(spent[k] / limit, 1.0) for k, limit in self.limits.items()), default=0.0)


OVERRUN = 0.05
"""The share of its time limit by which a run may exceed it."""
CLOSING_S = {"cpu": 1.0, "cuda": 5.0}
"""By target, what a session needs to end its processes and close its store, after all else: a driver takes its time to
give up what a process had on a GPU."""


ROOM_S = 3600.0
"""Longest wait for a full disk, in seconds: room that is made at night by itself, such as by the rotation of logs and
the clearing of caches, is there within the hour. A person who has to make it comes in the morning, and has the machine
free by then."""
FORGOTTEN_S = 60.0
"""After so long without a question whether to wait, the next question begins another wait."""


class RunClock:
    """It tells a run what time it is, from the command that began the session to the last thing that still runs."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        limit_s: float = math.inf,
        began: float | None = None,
        closing_s: float = CLOSING_S["cpu"],
    ) -> None:
        """`began`: when the session did, by `now`; None: just now. `closing_s` are kept for its end."""
        self.now = now
        self.closing_s = closing_s
        self.limit_s = limit_s
        self.began = now() if began is None else began
        self.earlier_s = 0.0
        """Seconds that earlier sessions took."""

    @property
    def spent_s(self) -> float:
        """Seconds of all sessions so far."""
        return self.earlier_s + self.now() - self.began

    @property
    def left_s(self) -> float:
        """Seconds until the limit; below 0 after it."""
        return self.limit_s - self.spent_s

    @property
    def grace_s(self) -> float:
        """Seconds until what is still under way is given up, so that the run ends within OVERRUN of its limit."""
        return self.left_s + OVERRUN * self.limit_s - self.closing_s

    @property
    def ending_s(self) -> float:
        """Seconds before its limit at which a run must have nothing under way any more; 0 where it may overrun so far.

        The rest of its time, as far as it may be exceeded, is needed to end its processes.
        """
        return max(self.closing_s - OVERRUN * self.limit_s, 0.0)


class Patience:
    """Says how long a run waits for room on a full disk: ROOM_S, and no longer than its time; any thread may ask."""

    def __init__(self, clock: RunClock, say: Callable[[str], None], note: Callable[[str], None]) -> None:
        """`say` tells the user, and `note` the store, that a wait begins."""
        self.over = False
        """Whether nothing is waited for any more."""
        self._clock = clock
        self._say = say
        self._note = note
        self._asked_at = -math.inf

    def waits(self, reason: str, waited_s: float) -> bool:
        """Whether to wait on, after so many seconds."""
        if self.over or waited_s >= ROOM_S or self._clock.left_s <= 0:
            return False
        asked_at, self._asked_at = self._asked_at, time.monotonic()
        if self._asked_at - asked_at > FORGOTTEN_S:
            self._say(f"{reason}; the search waits for that to end, {ROOM_S / 60:.0f} minutes at most")
            self._note(reason)
        return True
