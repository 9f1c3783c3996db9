"""The manual for a writer of kernels: what is to be computed, and how a kernel file is written."""

from __future__ import annotations

from mutators.base import Parent, Request
from mutators.llm.usage import most_asked
from mutators.prompts import conversation
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel

ANSWER = "# Your answer"
"""The title of what a system message says of the form of answers, with which it ends."""


def manual(request: Request, operator: Operator, parent: Parent | None = None) -> str:
    """Return the system message of a request of this kind, but for the form of answers.

    It tells of the machine what is known with the request's principal parent, if that is given.
    """
    naive = Kernel(operator.name, request.task.target, operator.naive(request.task.target))
    system = conversation("rewrite", request, (parent or Parent(naive),), operator)[0]["content"]
    return without_form(str(system))


def first_question(operator: Operator, task: Task) -> int:
    """Return the most tokens that a first question about a task may have: for a child of the naive kernel."""
    naive = Kernel(operator.name, task.target, operator.naive(task.target))
    request = Request(task, 0, "rewrite", (naive.id,), 0)
    return most_asked(conversation("rewrite", request, (Parent(naive),), operator))


def without_form(system: str) -> str:
    """Return a system message without what it says of the form of answers."""
    return system.partition(ANSWER)[0].strip()
