"""The mutator that goes on with the conversation in which a language model wrote a kernel: serial refinement."""

from __future__ import annotations

from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import continued
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Refine:
    """A child of the first parent, by the model that wrote it, in the conversation in which it did.

    The model is told what became of its last answer. Without `request.thread`, or where nothing was answered in that,
    a conversation begins as with `Rewrite`. Params: see `mutators.prompts.conversation`.
    """

    name = "refine"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return True for every kernel of the operator."""
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
        """Return what `mutators.asking.dialogue.ask_for_child` makes of the conversation that goes on."""
        if not parents:
            return Proposal(None, self.name, "refine needs a parent")
        opening = continued(self.name, request, parents[:1], operator, earlier, first="rewrite")
        return await ask_for_child(opening, request, parents[0], operator, client, bench)
