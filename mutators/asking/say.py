"""The mutator that makes no kernel: a language model says something, such as a plan, that later prompts may show."""

from __future__ import annotations

import time

from mutators.asking.dialogue import answers, no_answer
from mutators.base import CallStatus, Client, Earlier, Parent, Proposal, Request
from mutators.prompts import continued
from operators.definition.spec import Operator
from operators.kernel import Kernel


class Say:
    """The words that a model answers to the request's template with; the parents are the kernels that it is shown."""

    name = "say"
    asks_model = True
    uses_bench = needs_bench = False

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return False: nothing is made of any kernel."""
        return False

    async def propose(
        self,
        request: Request,
        parents: tuple[Parent, ...],
        operator: Operator,
        client: Client,
        earlier: tuple[Earlier, ...] = (),
    ) -> Proposal:
        """Return the answer as it stands, also one that was cut off at the limit of its length."""
        role = request.role or self.name
        if not request.template:
            return Proposal(None, role, "say needs a template")
        started = time.perf_counter()
        opening = continued(self.name, request, parents, operator, earlier, first=self.name)
        calls = await answers(opening, request, client)
        call = calls[-1]
        seconds = time.perf_counter() - started
        heard = call.status.heard and call.status is not CallStatus.REFUSED
        text = call.answer.strip() if heard else ""
        failure = "" if text else no_answer(call) if not heard else f"{call.model} answered with nothing"
        return Proposal(None, role, failure, seconds=seconds, calls=tuple(calls), text=text)
