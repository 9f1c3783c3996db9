"""Has providers keep what the prompts of a task begin with: most do so by themselves, some only on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ON_REQUEST = frozenset(("anthropic",))
"""Providers, as litellm calls them, that keep a prompt's beginning up to a mark, and nothing without one."""


def marked(messages: Sequence[Mapping[str, Any]], provider: str) -> list[dict[str, Any]]:
    """Return messages as they are sent: with the mark behind the system message, the same in all prompts of a task."""
    sent = [dict(message) for message in messages]
    if provider in ON_REQUEST and sent and sent[0]["role"] == "system" and isinstance(sent[0]["content"], str):
        block = {"type": "text", "text": sent[0]["content"], "cache_control": {"type": "ephemeral"}}
        sent[0]["content"] = [block]
    return sent
