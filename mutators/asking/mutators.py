"""The mutators that ask a language model for a kernel: rewrite, crossover, repair, refine, port."""

from __future__ import annotations

from dataclasses import replace

from fitness.evaluation import Status
from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Message, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.briefing import Origin
from mutators.prompts import continued, conversation
from operators.definition.spec import Operator
from operators.kernel import Kernel

Parents = tuple[Parent, ...]
REPAIRABLE = frozenset((
    Status.INVALID, Status.COMPILE_ERROR, Status.UNSUPPORTED, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.WRONG,
))  # fmt: skip


class Asking:
    """A mutator that asks for a child of the first parent with the template of its own name.

    Params: see `mutators.prompts.conversation`. A subclass says which parents it needs and how many it shows.
    """

    name: str
    asks_model = True
    uses_bench = True
    needs_bench = False
    shown = 1
    """Parents that the prompt shows, the first ones."""

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return True for every kernel of the operator; what else the prompt needs is for the caller to know."""
        return kernel.operator == operator.name

    def lack(self, parents: Parents) -> str:
        """Return what `parents` lack, as the words behind the mutator's name; empty where they will do."""
        return "" if parents else "needs a parent"

    async def propose(
        self,
        request: Request,
        parents: Parents,
        operator: Operator,
        client: Client,
        earlier: tuple[Earlier, ...] = (),
        bench: Bench | None = None,
    ) -> Proposal:
        """Return what `mutators.asking.dialogue.ask_for_child` makes of the mutator's prompt."""
        if lack := self.lack(parents):
            return Proposal(None, self.name, f"{self.name} {lack}")
        opening = self.opening(request, parents[: self.shown], operator, earlier)
        return await ask_for_child(opening, request, parents[0], operator, client, bench)

    def opening(
        self, request: Request, parents: Parents, operator: Operator, earlier: tuple[Earlier, ...]
    ) -> tuple[Message, ...]:
        """Return the messages that the model is sent first."""
        return conversation(self.name, request, parents, operator, earlier)


class Rewrite(Asking):
    """A child of the first parent."""

    name = "rewrite"


class Crossover(Asking):
    """A child of the first parent that takes over what the second does better."""

    name = "crossover"
    shown = 2

    def lack(self, parents: Parents) -> str:
        """Return what is missing unless two parents differ."""
        differ = len(parents) > 1 and parents[0].kernel.source != parents[1].kernel.source
        return "" if differ else "needs two parents with different sources"


class Repair(Asking):
    """A child of the first parent, which must have failed.

    A second parent is the kernel that the first was made from: the model sees what was changed.
    """

    name = "repair"
    shown = 2

    def lack(self, parents: Parents) -> str:
        """Return what is missing unless the first parent failed in a way that another kernel can mend."""
        verdict = parents[0].evaluation if parents else None
        if verdict is None:
            return "needs a kernel that failed, and was given none with a verdict"
        found = verdict.verdict
        return "" if found in REPAIRABLE else f"needs a kernel that failed, and was given one that is {found.value}"


class Refine(Asking):
    """A child of the first parent, by the model that wrote it, in the conversation in which it did.

    The model is told what became of its last answer. Without `request.thread`, or where nothing was answered in that,
    a conversation begins as with `Rewrite`.
    """

    name = "refine"

    def opening(
        self, request: Request, parents: Parents, operator: Operator, earlier: tuple[Earlier, ...]
    ) -> tuple[Message, ...]:
        """Return the conversation that goes on."""
        return continued(self.name, request, parents, operator, earlier, first="rewrite")


class Port(Asking):
    """A child that has the design of the last parent, a kernel of the request's `source_task`.

    The first parent is the task's own best kernel, which the child is to beat. What is known of the source comes with
    the first parent's briefing.
    """

    name = "port"

    def lack(self, parents: Parents) -> str:
        """Return what is missing unless the first parent's briefing tells of a kernel of another task."""
        return "" if _source(parents) else "needs a kernel of another task beside its own"

    async def propose(
        self,
        request: Request,
        parents: Parents,
        operator: Operator,
        client: Client,
        earlier: tuple[Earlier, ...] = (),
        bench: Bench | None = None,
    ) -> Proposal:
        """Return the child of `Asking.propose`, whose lineage is the source."""
        answer = await super().propose(request, parents, operator, client, earlier, bench)
        source = _source(parents)
        return replace(answer, bases=(source.kernel.id,)) if source else answer


def _source(parents: Parents) -> Origin | None:
    """Return the kernel of another task that the first parent's briefing tells of."""
    briefing = parents[0].briefing if parents else None
    return briefing.origin if briefing else None
