"""Faults of calls of language models: litellm's exceptions, translated in this one place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from mutators.llm.library import litellm_module
from mutators.llm.wire import BodyTooLong

MAX_ERROR_CHARACTERS = 500
T = TypeVar("T")
_SETUP = frozenset({401, 402, 403, 404})
_TRANSIENT = frozenset({408, 409, 425, 429})
NO_CREDIT = re.compile(r"insufficient[_ ]quota|billing_hard_limit|credit balance", re.IGNORECASE)
NO_LOGIN = re.compile(r"/login|not logged in|invalid api key|\b401\b|unauthori[sz]ed", re.IGNORECASE)
"""Words by which programs say that the account is not known; providers have a status for it."""


@dataclass(frozen=True)
class Fault:
    """Meaning of one failed attempt."""

    text: str
    kind: Literal["transient", "call", "refused", "setup", "budget", "size"]
    """`transient`: again may help. `call`: this conversation cannot be answered. `setup`: none can. `budget`, `size`:
    it was not asked again, because nothing or too little is left to spend."""
    turned_away: bool
    """Whether the provider said so itself, and so bills nothing."""
    retry_after_s: float = 0.0

    @property
    def alive(self) -> bool:
        """Whether the provider showed that it works, or was not asked at all."""
        return self.kind not in ("transient", "setup")


class CallFailed(Exception):
    """A call into litellm raised something; `fault` is what that means."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


@contextmanager
def translated() -> Iterator[None]:
    """The border to litellm: all that its providers' code lets through becomes a CallFailed."""
    try:
        yield
    except CallFailed:  # a program's, which is no exception of the library
        raise
    except Exception as error:
        raise CallFailed(translate(error)) from error


def known(ask: Callable[[], T]) -> T | None:
    """The library's answer on a model or a price; None where it raises instead.

    It says "not in the table" with a bare Exception, and a fault of its arithmetic must not lose a paid answer.
    """
    try:
        with translated():
            return ask()
    except CallFailed:
        return None


def translate(error: Exception) -> Fault:
    """litellm's exceptions, by the HTTP status they carry; the only place that knows them."""
    known = litellm_module().exceptions
    chain = tuple(_causes(error))
    text = one_line(error)
    told = any(type(link).__name__ == "HTTPStatusError" for link in chain)
    status = getattr(error, "status_code", None)
    if long := next((link for link in chain if isinstance(link, BodyTooLong)), None):
        return Fault(str(long), "call", turned_away=False)
    if isinstance(error, TimeoutError):
        return Fault("no answer in time", "transient", turned_away=False)
    if isinstance(error, known.ContentPolicyViolationError):
        return Fault(text, "refused", turned_away=True)
    if "LLM Provider NOT provided" in text:
        return Fault(
            "litellm knows no such model; write provider/model, such as openai/gpt-5", "setup", turned_away=True
        )
    if status in _SETUP or NO_CREDIT.search(text):
        return Fault(text, "setup", turned_away=True)
    if not isinstance(status, int) or status in _TRANSIENT or status >= 500:
        return Fault(text, "transient", turned_away=told, retry_after_s=_retry_after(error))
    return Fault(text, "call", turned_away=True)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(error: Exception) -> float:
    """The pause in seconds that the provider asked for; 0 if it did not, or in a form that is no number."""
    headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
    try:
        return max(float(headers.get("retry-after", 0)), 0.0)
    except ValueError:
        return 0.0


def one_line(error: Exception) -> str:
    """The error's text for people: one line, of bounded length, without anything that might be a key."""
    text = re.sub(r"litellm\.(\w+): (?:\1: )?", r"\1: ", " ".join(str(error).split())) or type(error).__name__
    for name, value in os.environ.items():
        if re.search(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", name, re.IGNORECASE) and len(value) >= 8:
            text = text.replace(value, "***")
    text = text.encode(errors="replace").decode()
    text = re.sub(r"\b(sk-|Bearer )[^\s,;'\"]{4,}", r"\1***", text)
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[:MAX_ERROR_CHARACTERS] + " ..."
