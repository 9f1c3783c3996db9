"""The mutator that asks a language model to carry a kernel's design over to another operator, or another dtype."""

from __future__ import annotations

from dataclasses import replace

from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import conversation
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Port:
    """A child that has the design of the last parent, a kernel of the request's `source_task`.

    The first parent is the task's own best kernel, which the child is to beat. What is known of the source comes with
    the first parent's briefing. Params as those of `Rewrite`.
    """

    name = "port"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return True for every kernel of the operator; what it is to learn from is for the caller to know."""
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
        """Return what `mutators.asking.dialogue.ask_for_child` makes of the prompt; the source is its lineage."""
        briefing = parents[0].briefing if parents else None
        if briefing is None or briefing.origin is None:
            return Proposal(None, self.name, "port needs a kernel of another task beside its own")
        opening = conversation(self.name, request, parents[:1], operator, earlier)
        answer = await ask_for_child(opening, request, parents[0], operator, client, bench)
        return replace(answer, bases=(briefing.origin.kernel.id,))
