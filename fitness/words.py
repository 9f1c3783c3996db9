"""Words for verdicts, the same for every reader: a person at a terminal or a page, a model, the owner of a package.

Among them are features of a kernel that are legal and suspicious: with them a kernel may tell a timed call from a
checked one. Builds find these in machine code, PTX and symbols, never in a source's text, and keep the reasons as the
fact `flagged`: `fitness.cuda.compile.ptx.FLAGGED` and `fitness.cpu.build.flagged` own the lists. A measurement adds
`inputs_told`: a gain that only some inputs have. No verdict depends on either. Wherever a level is told, `standing`
says both, so that no reader sees `confirmed` and misses the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

CLOCK = "reads a clock"
PLACE = "asks where it runs"
"""The number of a multiprocessor, processor, warp slot or launch, or how many threads a team would have."""
OWN_ADDRESS = "takes its own address for a number"
HELD_ADDRESS = "uses an address that it holds as a number"
UNREAD = "has more code than is looked through"
MOST_ENTRIES = 8
"""Tables among build facts that have more entries are not told."""


def inputs_told(times: float, family: str, workload: str) -> str:
    """Return what is told of a kernel whose gain depends on the values, or the structure, of its inputs."""
    return f"gains {digits(times)} times less on `{family}` inputs of {workload} than on the timed ones"


def flags(facts: Mapping[str, Any]) -> str:
    """Return the reasons among build facts, as `flagged` of the store has them; empty where there are none."""
    found = facts.get("flagged")
    return ", ".join(found) if isinstance(found, list | tuple) else ""


def standing(level: str | None, flagged: str | None = "") -> str:
    """Return `confirmed`, `unconfirmed (full)`, `confirmed, flagged: reads a clock`; `-` without a level."""
    if not level:
        return "-"
    return beside(level if level == "confirmed" else f"unconfirmed ({level})", flagged)


def beside(said: str, flagged: str | None) -> str:
    """Return the standing of a kernel, with the reasons behind it where there are any."""
    return f"{said}, flagged: {flagged}" if flagged else said


def in_words(status: str) -> str:
    """Return a status in words: `compile error`."""
    return status.replace("_", " ")


def duration(took_s: float) -> str:
    """Return a time: `48 s`, `12 min`, `7.5 h`, `3.2 d`."""
    if took_s < 120:
        return f"{took_s:.0f} s"
    if took_s < 7200:
        return f"{took_s / 60:.0f} min"
    return f"{took_s / 3600:.1f} h" if took_s < 172_800 else f"{took_s / 86_400:.1f} d"


def counted(number: int, what: str, plural: str = "") -> str:
    """Return a number of things with their name: `1 worker`, `12,345 workers`, `3 families`, `1 kernel waits`."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def digits(value: float) -> str:
    """Return a figure to three digits, all of which are shown: `0.992`, `1.20`, `14.0`, `145`, `2864`."""
    if 0.01 <= value < 999.5:
        return f"{value:#.3g}".rstrip(".")
    return f"{value:.0f}" if 999.5 <= value < 1e6 else f"{value:.3g}"


def ratio(value: float | None) -> str:
    """Return a ratio of times: `1.25x`; `-` for None."""
    return "-" if value is None else f"{digits(value)}x"


def interval(low: float | None, high: float | None) -> str:
    """Return the ends of an interval of ratios: `1.20 to 1.31`; `-` where there are none."""
    if low is None or high is None or math.isinf(low) or math.isinf(high):
        return "-"
    return f"{digits(low)} to {digits(high)}"


def speedup(value: float, low: float | None, high: float | None, more: str = "") -> str:
    """Return a ratio with its interval, for itself: `1.25x (95 %: 1.20 to 1.31)`."""
    return f"{ratio(value)} (95 %: {interval(low, high)}{more})"


def gain(value: float, low: float | None, high: float | None, level: str | None, flagged: str | None = "") -> str:
    """Return what is told of a kernel's speedup over the naive one: `1.97x (95 %: 1.54 to 2.52), unconfirmed (full)`.

    The figures are those of the view `verdicts` of a run's store: by the newest fit to all that was timed.
    """
    return f"{speedup(value, low, high)}, {standing(level, flagged)}"


def certainly(low: float | None) -> str:
    """Return what is certain of a speedup, confirmed or not, by the lower end of its interval: `certainly 1.20x`."""
    return "no gain is certain" if low is None or low <= 1 else f"certainly {ratio(low)}"


def estimate(value: float, low: float, high: float) -> str:
    """Return a ratio with its interval, within a sentence that says of what: `1.02 (0.962 to 1.08, unresolved)`.

    It is unresolved where the interval holds 1: it is not known which of the two is faster.
    """
    if digits(low) == digits(high):
        return digits(value)
    return f"{digits(value)} ({interval(low, high)}{', unresolved' if low <= 1 <= high else ''})"


def time_us(value: float | None) -> str:
    """Return a time in microseconds: `12.3 us`, `14.20 ms`, `3.10 s`; `-` for None."""
    if value is None:
        return "-"
    for limit, unit_us, unit, form in ((0.1, 1.0, "us", ".2g"), (1e4, 1.0, "us", ".1f"), (1e7, 1e3, "ms", ".2f")):
        if value < limit:
            return f"{value / unit_us:{form}} {unit}"
    return f"{value / 1e6:.2f} s" if value < 1e12 else f"{value / 1e6:.3g} s"


def of_bound(error: float) -> str:
    """Return an error beside what is allowed: `0.120 of its bound`."""
    return f"{digits(error)} of its bound"


def fact(value: Any) -> str:
    """Return a build fact; empty where it says nothing."""
    if not value or value == "none":
        return ""
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, Mapping) and len(value) <= MOST_ENTRIES:
        return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, int | str) else ""
