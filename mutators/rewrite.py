"""The mutator that asks a language model for a faster version of one kernel."""

from __future__ import annotations

from mutators.base import Client, Parent, Proposal, Request
from mutators.dialogue import ask_for_child
from operators.kernel import Kernel
from operators.spec import Operator


class Rewrite:
    """A child of the first parent. Params: see `mutators.prompts.conversation`; `model` names the model."""

    name = "rewrite"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of the operator."""
        return kernel.operator == operator.name

    async def propose(
        self, request: Request, parents: tuple[Parent, ...], operator: Operator, client: Client
    ) -> Proposal:
        if not parents:
            return Proposal(None, self.name, "rewrite needs a parent")
        return await ask_for_child(self.name, request, parents[:1], operator, client)
