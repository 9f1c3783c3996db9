"""The mutator that takes in a kernel that no strategy asked for: its request holds it whole."""

from __future__ import annotations

from mutators.base import Parent, Proposal, Request
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Guest:
    """Params: `source`, the kernel file; `values` of its tunables, `author`, and `note`, what is new in it."""

    name = "guest"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Never: no strategy asks for it."""
        return False

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """Return the guest itself."""
        params = request.params
        kernel = Kernel(operator.name, request.task.target, params["source"], params["values"])
        return Proposal(kernel, params["note"] or f"a guest of {params['author']}")
