"""Amounts in words that people read at a glance."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """For people: `48 s`, `12 min`, `7.5 h`, `3.2 d`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"
