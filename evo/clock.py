"""The time of a run, all its sessions together, and what its limit leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

OVERRUN = 0.05
"""Of its time limit, so much at most may a run take longer."""
CLOSING_S = {"cpu": 1.0, "cuda": 5.0}
"""By target, what a session needs to end its processes and close its store, after all else: a driver takes its time to
give up what a process had on a GPU."""
TICK_S = 1.0
"""A run looks at its clock so often at least."""


ROOM_S = 3600.0
"""How long a full disk is waited for: what makes room at night by itself, such as the rotation of logs and the clearing
of caches, comes within the hour. Who has to be woken for it comes in the morning, and has the machine free by then."""
FORGOTTEN_S = 60.0
"""When nobody has asked for so long whether to wait, the next one who does is another wait."""


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
        """What earlier sessions took."""

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

    def tick_s(self, until_s: float) -> float:
        """How long to wait for something to happen until the clock is looked at again; `until_s` to a known moment."""
        return min(TICK_S, max(until_s, 0.05))


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
