"""Novelty of an answer: whether its program, or its idea on the same kernel, was tried before.

A program is the same where the text is, but for comments and white space. That decides what a model is asked again
and what is not worth a build; a verdict is only ever inherited by what the compiler made of it (`evo.search.verdicts`).
"""

from __future__ import annotations

import json
import re

from fitness.evaluation import Status
from fitness.sandbox.source import without_comments
from fitness.words import in_words
from mutators.base import Request
from mutators.briefing import Attempt, Briefing
from mutators.llm.settings import is_outside
from operators.errors import PlanError
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.header import read_header

JUDGED = frozenset((Status.CORRECT.value, Status.SLOWER.value, Status.DUPLICATE.value))
"""Verdicts that tell what an idea is worth; one that led to a kernel that fails may be tried again, and better."""


def text_digest(kernel: Kernel) -> str:
    """Return the identity of what a kernel's file says, its plan and its tunables included; empty: it has none.

    Comments, white space and the order of the plan's keys do not count.
    """
    try:
        table = read_header(kernel.source).table
    except PlanError:
        return ""
    code = without_comments(kernel.source.partition("*/")[2])
    plan = json.dumps(table, sort_keys=True, default=str)
    return digest("text", kernel.operator, kernel.target, plan, code, json.dumps(dict(kernel.values)))


def repeated_program(kernel: Kernel, request: Request, briefing: Briefing | None) -> str:
    """Return what became of the program when it was tried before the request was made; empty: it was not."""
    if briefing is None or not _counts(request):
        return ""
    verdict = briefing.verdict_on(text_digest(kernel))
    return f"this program was tried on the task before, and was {in_words(verdict)}" if verdict else ""


def repeated_idea(change: str, request: Request, briefing: Briefing | None) -> str:
    """Return what became of the idea when it was tried on the request's kernel before; empty: it was not."""
    if briefing is None or not _counts(request) or request.mutator == "repair":
        return ""
    for attempt in reversed(briefing.tried):
        if attempt.status in JUDGED and _words(attempt.description) == _words(change) != []:
            return f"this idea was tried on this kernel before, and was {_outcome(attempt)}; take another one"
    return ""


def _counts(request: Request) -> bool:
    """Whether repetitions are held against the request's answers: not in loops that say how many answers they take, nor
    where who is asked again might never answer."""
    return "tries" not in request.params and not is_outside(request.model)


def _words(text: str) -> list[str]:
    """The words that count of an idea, in any order."""
    return sorted(set(re.findall(r"\w+", text.lower())))


def _outcome(attempt: Attempt) -> str:
    gain = f", {attempt.gain} times as fast" if attempt.gain else ""
    return f"{in_words(attempt.status)}{gain}"
