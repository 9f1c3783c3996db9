"""The mutator that asks a language model to unite the strengths of two kernels."""

from __future__ import annotations

from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import conversation
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Crossover:
    """A child of the first parent that takes over what the second does better. Params as those of `Rewrite`."""

    name = "crossover"

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
        if len(parents) < 2 or parents[0].kernel.source == parents[1].kernel.source:
            return Proposal(None, self.name, "crossover needs two parents with different sources")
        opening = conversation(self.name, request, parents[:2], operator, earlier)
        return await ask_for_child(opening, request, parents[0], operator, client, bench)
