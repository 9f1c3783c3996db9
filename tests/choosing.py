"""The share of parameters and examples that run by default; all of them run with --slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

BRIEF, FULL = "brief", "full"
"""Profiles of Hypothesis, of which tests/conftest.py loads one before it collects."""
BRIEF_EXAMPLES = 10

# No deadline: a busy machine may stop any example for a while.
settings.register_profile(BRIEF, deadline=None, max_examples=BRIEF_EXAMPLES)
settings.register_profile(FULL, deadline=None)


def examples(count: int, **more: Any) -> settings:
    """Settings of a property that `count` examples are drawn for with --slow."""
    brief = settings.get_current_profile_name() == BRIEF
    return settings(max_examples=min(count, BRIEF_EXAMPLES) if brief else count, **more)


def some_slow(values: Iterable[Any], default: int | Collection[Any]) -> list[Any]:
    """Parameters, all of them slow but the first so many, or those that are named; a tuple is several parameters."""
    found = []
    for number, value in enumerate(values):
        chosen = number < default if isinstance(default, int) else value in default
        several = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*several, marks=[] if chosen else [pytest.mark.slow]))
    return found
