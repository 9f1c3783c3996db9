"""The room for an answer: as long as the model can write, thoughts included, and at first no longer than usual.

What is reserved of a budget grows with it, so that answers get more room only when they were cut off for want of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mutators.base import Call, CallStatus, Message
from mutators.llm.settings import LlmSettings
from mutators.llm.tools import content_of

FIRST = 32_768
"""Tokens of a first answer of a model that can write more: a model that reasons takes most of it for that."""
UNKNOWN = 8_192
"""The same of a model whose limit is not known, such as one on a server of one's own."""
GROWTH = 4
"""An answer that was cut gets so many times the room."""
LEAST = 1_024
BYTES_PER_TOKEN = 3
"""The assumed bytes of a prompt per token."""


def most_tokens(
    settings: LlmSettings, listed: Mapping[str, Any] | None, messages: Sequence[Message], *, cuts: int
) -> int:
    """Return the tokens that an answer may have after so many that were cut off.

    `listed` is what litellm knows of the model. Its limit holds, and what its context leaves beside the question; a
    limit of the user's own holds strictly.
    """
    if settings.max_tokens is not None:
        return settings.max_tokens
    known = listed or {}
    limit = known.get("max_output_tokens")
    first = min(FIRST, limit) if limit else UNKNOWN
    wanted = first * GROWTH**cuts
    if limit:
        wanted = min(wanted, limit)
    if context := known.get("max_input_tokens"):
        asked = sum(len(content_of(message).encode(errors="replace")) for message in messages) // BYTES_PER_TOKEN
        wanted = min(wanted, max(context - asked, LEAST))
    return int(wanted)


def cut_before(find: Callable[[int], Call | None], sample: int) -> list[Call]:
    """Return the answers to the same question, the latest first, that were cut off one after the other until now.

    `find` has the stored call of a sample number.
    """
    found: list[Call] = []
    while sample > 0 and (call := find(sample - 1)) and call.status is CallStatus.CUT:
        found.append(call)
        sample -= 1
    return found
