"""Usage of an answer: the tokens that its provider told, as far as that can be true."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mutators.base import Message
from mutators.llm.tools import content_of

BYTES_PER_TOKEN = 2
"""The fewest bytes of a token; tokenizers make one of three to four bytes of code and prose, so counts are upper
bounds."""
USUAL_BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 16
"""Upper bound of what a message has besides its text."""
MOST_TOLD = 2**31
MOST_SAID = 2_000
"""Characters kept of what a provider says."""
COUNTS = ("prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer, between 0 and what was sent and allowed."""

    tokens_in: int
    tokens_out: int
    said: str = ""
    """The provider's own account, as JSON; empty when it gave none."""
    doubt: str = ""
    """Why that does not count as it stands; empty when it does."""


def counted(said: Any, text: str, *, most_in: int, most_out: int) -> Usage:
    """The tokens to charge for an answer of this text.

    `said` is any JSON value under the names of OpenAI's interface. A count that is missing, no whole number, below 1
    although there is something to count, or above what was sent (`most_in`) and allowed (`most_out`) is replaced by
    the most that it can be, so that a provider's false count never lowers the bill.
    """
    if not isinstance(said, Mapping) or not any(said.get(name) for name in COUNTS):
        doubt = "no usage was told: counted with upper bounds"
        return Usage(most_in, _bound(text, most_out), _kept(said), doubt)
    # A prompt has at least one token, an answer without text may have none.
    asked = _count(said.get(COUNTS[0]), least=1, most=most_in, bound=most_in)
    answered = _count(said.get(COUNTS[1]), least=int(bool(text)), most=most_out, bound=_bound(text, most_out))
    doubts = [
        f"{name} {ascii(said.get(name))[:40]} is {problem}: counted as {tokens}"
        for name, (tokens, problem) in zip(COUNTS, (asked, answered), strict=True)
        if problem
    ]
    return Usage(asked[0], answered[0], _kept(said), "; ".join(doubts))


def counted_outside(said: Any, text: str, asked: str) -> Usage:
    """The tokens of an answer from outside to the text `asked`, as they were told or, where they were not, estimated.

    They are not sent on the search's behalf, so nothing bounds them: an agent may read and think more than asked.
    """
    names = COUNTS if isinstance(said, Mapping) and COUNTS[0] in said else ("input_tokens", "output_tokens")
    counts = [said.get(name) if isinstance(said, Mapping) else None for name in names]
    tokens_in, tokens_out = (count if type(count) is int and 0 <= count < MOST_TOLD else None for count in counts)
    if tokens_in is not None and tokens_out is not None:
        return Usage(tokens_in, tokens_out, _kept(said))
    doubt = "no usage that can be was told: estimated" if said else "no usage was told: estimated"
    return Usage(_usual_tokens(asked), _usual_tokens(text), _kept(said), doubt)


def _usual_tokens(text: str) -> int:
    return -(-len(text.encode(errors="surrogatepass")) // USUAL_BYTES_PER_TOKEN)


def most_tokens(text: str) -> int:
    """An upper bound of the tokens of a text."""
    return len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN + 1


def most_asked(messages: Iterable[Message]) -> int:
    """An upper bound of the tokens of a conversation."""
    return sum(most_tokens(content_of(message)) + TOKENS_PER_MESSAGE for message in messages)


def plain(said: Any) -> Any:
    """The usage of an OpenAI-compatible answer as every library can read it: the same if all of it is sound."""
    if said is None or (isinstance(said, dict) and _sound(said)):
        return said
    counts = [said.get(name) if isinstance(said, dict) else None for name in COUNTS]
    whole = [count if type(count) is int and 0 <= count < 2**31 else 0 for count in counts]
    return {**dict(zip(COUNTS, whole, strict=True)), "total_tokens": sum(whole)}


def _bound(text: str, most_out: int) -> int:
    return min(most_tokens(text), most_out) if text else 0


def _count(value: Any, *, least: int, most: int, bound: int) -> tuple[int, str]:
    """A count, and what is wrong with it if it is replaced."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value % 1:
        return bound, "no count"
    if value < least:
        return bound, f"below {least}"
    return (most, f"above {most}") if value > most else (int(value), "")


def _sound(said: Mapping[str, Any]) -> bool:
    """Whether every number in there is one that a count can be, and every count a number."""
    counts = all(type(said.get(name, 0)) is int for name in COUNTS)
    return counts and all(_sound_value(name, value) for name, value in said.items())


def _sound_value(name: str, value: Any) -> bool:
    if isinstance(value, dict):
        return _sound(value)
    if value is None:
        return True
    if name.endswith("tokens"):
        return type(value) is int and 0 <= value < 2**31
    return not name.endswith("_details") and not (isinstance(value, float) and not math.isfinite(value))


def _kept(said: Any) -> str:
    """The account as JSON of bounded length; numbers that JSON does not know become strings."""
    if said is None:
        return ""
    try:
        text = json.dumps(_finite(said), separators=(",", ":"), default=str)
    except RecursionError:  # JSON may be nested deeper than what goes through it here
        return json.dumps("nested too deeply")
    if len(text) <= MOST_SAID:
        return text
    counts = {name: str(said.get(name))[:100] for name in COUNTS} if isinstance(said, Mapping) else {}
    return json.dumps({**counts, "cut": text[: MOST_SAID // 2]}, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
