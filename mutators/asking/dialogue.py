"""The conversation that every mutator with a language model has: question, answer, complaints as far as needed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from mutators.asking.novelty import repeated_idea, repeated_program
from mutators.base import Call, CallStatus, Client, Message, Parent, Proposal, Request
from mutators.bench import Bench, Result, Tool
from mutators.edits import AnswerError, child_source, description
from mutators.line_edits import LINES, line_edited
from mutators.prompts import complaint, fault, shortened
from operators.definition.spec import Operator
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

CUT_OFF = "it was cut off at the limit of its length; say less, and prefer edits to whole files"
TRIES = 2
"""Answers asked for until one can be used."""
TRIES_WITH_CHECKS = 4
"""The same where drafts are looked at before one of them is the child."""
DRAFTS = "drafts"
"""The param that says how drafts are looked at: `none`, not at all; `build`, compiled; `check`, run on a few small
shapes besides. Where it is not there, the run's setting `check` decides."""
MENDING = "mend"
"""The role of a model that is asked again because its draft has a fault."""
MAX_ECHO = 64_000
"""Characters of its own answer that a model is shown again; what does not fit is left out of its middle."""


async def ask_for_child(
    opening: Sequence[Message],
    request: Request,
    parent: Parent,
    operator: Operator,
    client: Client,
    bench: Bench | None = None,
) -> Proposal:
    """Return the child of the parent that the request's model makes when it is asked with these messages.

    An answer that holds no child, one whose plan is broken, or one whose program was tried on the task before is asked
    for once more, with the reason. On a `bench` a draft is compiled and looked at first, unless its idea was tried on
    the same kernel before, which it is told once: what is found goes back into the conversation, in which edits are of
    the latest draft then. A kernel that is still at fault at the end is the evaluator's to reject, so that it can be
    repaired like any other failure; a program that was tried is no child. Raises OutOfBudget, also after the first
    answer: asked again with a larger budget, the conversation goes on where it ended. Where only a later question is
    too large for what is left, the latest draft is all there is. Params: `drafts` says how they are looked at, see
    DRAFTS, `tries` how many answers are asked for at most, whatever they repeat, and `form` may be `lines`, see
    `mutators.line_edits`.
    """
    started = time.perf_counter()
    role = request.role or request.mutator
    tries = request.params.get("tries", TRIES_WITH_CHECKS if bench else TRIES)
    messages: list[Message] = list(opening)
    calls: list[Call] = []
    kernel, text, failure, evaluator_s = None, role, "", 0.0
    base, mending = parent.kernel, False
    for number in range(1, tries + 1):
        calls += await answers(messages, request, client, role=MENDING if mending else role)
        call = calls[-1]
        if not call.status.heard or call.status is CallStatus.REFUSED:
            failure = no_answer(call)
            break
        draft, failure = (
            (None, CUT_OFF) if call.status is CallStatus.CUT else child(call.answer, base, operator, request)
        )
        if draft and not failure and (failure := repeated_program(draft, request, parent.briefing)):
            draft = None
        if bench and draft and not failure and number == 1:
            failure = repeated_idea(description(call.answer, ""), request, parent.briefing)
        if draft or not bench:
            text = description(call.answer, text if mending else f"{role} by {call.model}") if draft else role
            kernel = draft
        if number == tries:
            break
        if failure:
            said = complaint(shortened(failure), mending=mending)
        elif bench and draft:
            found = await _looked_at(draft, request, bench)
            evaluator_s += found.seconds
            if not found.failed:
                break
            base, mending, failure, said = draft, True, found.text, fault(found.text)
        else:
            break
        messages += [{"role": "assistant", "content": shortened(call.answer, MAX_ECHO)}, said]
    seconds = time.perf_counter() - started
    return Proposal(
        kernel, text, "" if kernel else failure, seconds=seconds, calls=tuple(calls), evaluator_s=evaluator_s
    )


async def _looked_at(draft: Kernel, request: Request, bench: Bench) -> Result:
    """The result of a look at a draft, as far as the request wants one."""
    if request.params.get(DRAFTS) != "build":
        return await bench.check(draft)
    return await bench.use("build", {"source": draft.source, "values": dict(draft.values)})


async def answers(
    messages: Sequence[Message], request: Request, client: Client, *, role: str = "", tools: Sequence[Tool] = ()
) -> list[Call]:
    """Return the calls that it takes to have a question answered, the one that counts last.

    An answer that was cut is asked for once more, with more room; it counts where that one does not come. `role` is by
    default the request's.
    """
    role = role or request.role or request.mutator
    offered: dict[str, Any] = {"tools": tools} if tools else {}  # clients that know of no tools answer others
    call = await client.complete(messages, request=request, role=role, model=request.model, **offered)
    if call.status is not CallStatus.CUT:
        return [call]
    longer = await client.complete(
        messages, request=request, role=role, model=request.model, sample=call.sample + 1, **offered
    )
    if longer.cache_key == call.cache_key:
        return [call]
    heard = longer.status.heard and longer.status is not CallStatus.REFUSED
    return [call, longer] if heard else [longer, call]


def no_answer(call: Call) -> str:
    """Return why a call brought no words."""
    return f"{call.model} gave no answer: {call.error or 'its provider kept it back'}"


def child(answer: str, parent: Kernel, operator: Operator, request: Request) -> tuple[Kernel | None, str]:
    """Return the child, if the answer holds one, and what is wrong with the answer."""
    try:
        source = (line_edited if request.params.get("form", "") == LINES else child_source)(parent.source, answer)
    except AnswerError as error:
        return None, str(error)
    try:
        plan = parse_plan(source, operator, parent.target).for_dtype(request.task.dtype)
    except PlanError as error:
        return Kernel(parent.operator, parent.target, source), f"the header of the kernel file is broken: {error}"
    if not parent.values:
        return Kernel(parent.operator, parent.target, source), ""
    # A setting of the parent stays where the answer left the tunable's first value alone: else that is the author's.
    before: Mapping[str, Sequence[int]] = {}
    with suppress(PlanError):
        before = parse_plan(parent.source, operator, parent.target).for_dtype(request.task.dtype).tune
    kept = {
        name: value
        for name, value in parent.values.items()
        if value in plan.tune.get(name, ()) and plan.tune[name][0] == before.get(name, (None,))[0]
    }
    if plan.breach({name: kept.get(name, listed[0]) for name, listed in plan.tune.items()}):
        kept = {}
    return Kernel(parent.operator, parent.target, source, kept), ""
