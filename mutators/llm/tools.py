"""Between tools and what providers are sent and answer: OpenAI's form of tool calling, which litellm speaks to all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mutators.base import Message, ToolCall
from mutators.bench import Tool

MOST_CALLS = 16
"""Tools that one answer may call; of further ones nothing is read."""
MOST_NAME = 64
THOUGHTS = ("thinking", "redacted_thinking")
"""Types of blocks."""
MOST_THOUGHTS = 400_000
"""Characters of one answer's thoughts that go back to its model."""
MOST_ID = 4_096
"""Characters; some providers keep what a model thought in there."""


def described(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return tools as they are offered."""
    fields = ({"name": t.name, "description": t.description, "parameters": dict(t.parameters)} for t in tools)
    return [{"type": "function", "function": function} for function in fields]


def calls_of(message: Any) -> tuple[ToolCall, ...]:
    """Return the tools that an answer calls, as litellm has it. What is no call is left out; every id is its own."""
    found: list[ToolCall] = []
    given = getattr(message, "tool_calls", None)
    for call in given[:MOST_CALLS] if isinstance(given, list | tuple) else ():
        function, own = getattr(call, "function", None), getattr(call, "id", None)
        name, arguments = (getattr(function, field, None) for field in ("name", "arguments"))
        if not isinstance(name, str) or not name:
            continue
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)
        if not isinstance(own, str) or not 0 < len(own) <= MOST_ID or own in {each.id for each in found}:
            own = f"call_{len(found)}"
        found.append(ToolCall(_text(own), _text(name)[:MOST_NAME], _text(text)))
    return tuple(found)


def thoughts_of(message: Any) -> dict[str, Any]:
    """Return what a message tells of the thoughts behind it, as litellm has it and wants it back; often nothing.

    `thinking_blocks` are signed: providers that give them refuse a conversation in which tools were called without
    them. `reasoning_content` is plain text, which models that think between calls of tools go on from. Thoughts are
    given back whole or not at all.
    """
    blocks, text = getattr(message, "thinking_blocks", None), getattr(message, "reasoning_content", None)
    if isinstance(blocks, list | tuple) and blocks and all(isinstance(block, dict) for block in blocks):
        found: dict[str, Any] = {"thinking_blocks": [dict(block) for block in blocks]}
    elif isinstance(text, str) and text:
        found = {"reasoning_content": _text(text)}
    else:
        return {}
    try:
        return found if len(json.dumps(found)) <= MOST_THOUGHTS else {}
    except (TypeError, ValueError, RecursionError):
        return {}


def tidied(given: Any, most_characters: int) -> tuple[Any, int]:
    """Return the `tool_calls` of an OpenAI-compatible answer in its form and of bounded length, and how long they were.

    The same object is returned where there is nothing to tidy up.
    """
    if given is None:
        return None, 0
    kept: list[dict[str, Any]] = []
    characters = 0
    for call in given if isinstance(given, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or len(kept) == MOST_CALLS:
            continue
        arguments, own = function.get("arguments"), call.get("id")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        left = max(most_characters - characters, 0)
        characters += len(text)
        short = {"name": function["name"][:MOST_NAME], "arguments": text[:left]}
        kept.append({"id": own if isinstance(own, str) else f"call_{len(kept)}", "type": "function", "function": short})
    return (given if given == kept else kept or None), characters


def without_odd_thoughts(message: dict[str, Any]) -> bool:
    """Take away thoughts of an OpenAI-compatible answer that are none, of which the library makes a failed call.

    It returns whether there were any.
    """
    odd = [name for name in ("reasoning_content", "reasoning") if not isinstance(message.get(name), str | None)]
    blocks = message.get("thinking_blocks")
    sound = isinstance(blocks, list) and all(isinstance(each, dict) and each.get("type") in THOUGHTS for each in blocks)
    if blocks is not None and not sound:
        odd.append("thinking_blocks")
    for name in odd:
        del message[name]
    return bool(odd)


def content_of(message: Message) -> str:
    """Return all that a message says, what it calls included, for who counts or compares it."""
    if set(message) <= {"role", "content"}:
        return str(message["content"] or "")
    return json.dumps({name: value for name, value in message.items() if name != "role"}, sort_keys=True)


def _text(value: str) -> str:
    """Half a surrogate pair is no text."""
    return value.encode(errors="replace").decode()
