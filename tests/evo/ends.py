"""The ends of a search by the real engine on a machine as busy as those of tests are."""

from __future__ import annotations

from evo.budget import UNDONE


def is_end(reason: str, most: int) -> bool:
    """Whether a search of so many evaluations ends like this; where nothing can be timed, it has fewer."""
    return reason == f"evaluations {most} of {most}" or reason.startswith((UNDONE, "nothing new"))
