"""The mutators that ask a language model for a kernel: rewrite, crossover, repair, refine, port."""

from __future__ import annotations

from dataclasses import replace

from fitness.evaluation import Status
from mutators.asking.dialogue import ask_for_child
from mutators.base import Client, Earlier, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.prompts import continued, conversation
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
