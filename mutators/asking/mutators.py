"""The mutator that asks a language model for a faster version of one kernel."""

from __future__ import annotations

from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import conversation
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Rewrite:
    """A child of the first parent. Params: see `mutators.prompts.conversation`."""

    name = "rewrite"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of the operator."""
        return kernel.operator == operator.name

    async def propose(
        self,
        request: Request,
        parents: tuple[Parent, ...],
        operator: Operator,
        client: Client,
        earlier: tuple[Earlier, ...] = (),
        bench: Bench | None = None,
    ) -> Proposal:
        """Return what `mutators.asking.dialogue.ask_for_child` makes of the mutator's prompt."""
        if not parents:
            return Proposal(None, self.name, "rewrite needs a parent")
        opening = conversation(self.name, request, parents[:1], operator, earlier)
        return await ask_for_child(opening, request, parents[0], operator, client, bench)
