"""The mutator that tries a kernel of another dtype of its operator as it stands: one file often serves two."""

from __future__ import annotations

from mutators.base import Parent, Proposal, Request
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Carry:
    """The last parent itself, which is a kernel of the request's `source_task`."""

    name = "carry"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return True for every kernel of the operator, whatever its dtype."""
        return kernel.operator == operator.name

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """Return the kernel, its tunables included."""
        if not parents or not self.applies(parents[-1].kernel, operator):
            return Proposal(None, self.name, "carry needs a kernel of the same operator")
        return Proposal(parents[-1].kernel, f"the kernel of {request.source_task} as it stands")
