"""What a writer of kernels must know before anything else: what is to be computed, and how a kernel file is written."""

from __future__ import annotations

from mutators.base import Parent, Request
from mutators.prompts import conversation
from operators.kernel import Kernel
from operators.spec import Operator

ANSWER = "# Your answer"
"""The title of what a system message says of the form of answers, with which it ends."""


def manual(request: Request, operator: Operator) -> str:
    """Return the system message of a request of this kind, but for the form of answers."""
    target = request.task.target
    naive = Kernel(operator.name, target, operator.naive(target))
    system = conversation("rewrite", request, (Parent(naive),), operator)[0]["content"]
    return system.partition(ANSWER)[0].strip()
