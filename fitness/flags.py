"""Features of a kernel that are legal and suspicious: with them a kernel may tell a timed call from a checked one.

Builds find it in machine code, PTX and symbols, never in a source's text, and keep the reasons as the fact `flagged`:
`fitness.cuda.compile.ptx.FLAGGED` and `fitness.cpu.flagged.flagged` own the lists. No verdict depends on it. Wherever a
level is told, `standing` says both, so that no reader sees `confirmed` and misses the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOCK = "reads a clock"
PLACE = "asks where it runs"
"""The number of a multiprocessor, processor, warp slot or launch, or how many threads a team would have."""
OWN_ADDRESS = "takes its own address for a number"
HELD_ADDRESS = "uses an address that it holds as a number"
UNREAD = "has more code than is looked through"


def flags(facts: Mapping[str, Any]) -> str:
    """The reasons among build facts, as `flagged` of the store has them; empty where there are none."""
    found = facts.get("flagged")
    return ", ".join(found) if isinstance(found, list | tuple) else ""


def standing(level: str | None, flagged: str | None = "") -> str:
    """`confirmed`, `unconfirmed (full)`, `confirmed, flagged: reads a clock`; `-` without a level."""
    if not level:
        return "-"
    return beside(level if level == "confirmed" else f"unconfirmed ({level})", flagged)


def beside(said: str, flagged: str | None) -> str:
    """The standing of a kernel, with the reasons behind it where there are any."""
    return f"{said}, flagged: {flagged}" if flagged else said
