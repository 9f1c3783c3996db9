"""The share of parameters and examples that run by default; all of them run with --slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import repeat
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
    return settings(max_examples=min(count, BRIEF_EXAMPLES) if _brief() else count, **more)


def size(full: int, brief: int) -> int:
    """Return the size of a history or of a budget: `full` with --slow, else `brief`."""
    return brief if _brief() else full


def _brief() -> bool:
    return settings.get_current_profile_name() == BRIEF


def some_slow(
    values: Iterable[Any], default: int | Collection[Any], *, ids: Iterable[str | None] = repeat(None),
    long: Collection[Any] = (),
) -> list[Any]:  # fmt: skip
    """Parameters, all of them slow but the first so many, or those that are named; a tuple is several parameters.

    Without --slow the slow ones are not even collected, which takes a while for thousands. Those of them that are in
    `long` are left to `make test-all`.
    """
    chosen, slow = [], []
    for number, (value, name) in enumerate(zip(values, ids, strict=False)):
        several = value if isinstance(value, tuple) else (value,)
        if number < default if isinstance(default, int) else value in default:
            chosen.append(pytest.param(*several, id=name))
        else:
            marks = [pytest.mark.slow, *([pytest.mark.long] if value in long else [])]
            slow.append(pytest.param(*several, id=name, marks=marks))
    return chosen if chosen and _brief() else chosen + slow


def some_long(values: Iterable[Any], long: Collection[Any]) -> list[Any]:
    """Parameters of a slow test, of which those that are named are left to `make test-all`."""
    return [pytest.param(value, marks=pytest.mark.long) if value in long else value for value in values]
