"""The mutator that shows a language model why a kernel failed and asks for one that does not."""

from __future__ import annotations

from fitness.evaluation import Status
from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import conversation
from operators.definition.spec import Operator
from operators.kernel import Kernel

REPAIRABLE = frozenset((
    Status.INVALID, Status.COMPILE_ERROR, Status.UNSUPPORTED, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG,
))  # fmt: skip


class Repair:
    """A child of the first parent, which must have failed.

    A second parent is the kernel that the first was made from: the model sees what was changed. Params as those of
    `Rewrite`.
    """

    name = "repair"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """True for every kernel of the operator; whether it failed is for the caller to know."""
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
        verdict = parents[0].evaluation if parents else None
        if verdict is None or verdict.verdict not in REPAIRABLE:
            found = f"one that is {verdict.verdict.value}" if verdict else "none with a verdict"
            return Proposal(None, self.name, f"repair needs a kernel that failed, and was given {found}")
        opening = conversation(self.name, request, parents[:2], operator, earlier)
        return await ask_for_child(opening, request, parents[0], operator, client, bench)
