"""The mutator that gives a language model tools and lets it work: an agentic variation operator.

After AVO (Agentic Variation Operators, arXiv:2603.24517), where a coding agent is the whole of variation. One request
is one dialogue, which ends with a kernel that is handed in; a request with a `thread` goes on with an earlier dialogue,
in which the model hears what became of that kernel. So every version that is handed in is an individual.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutators.asking.dialogue import answers, no_answer
from mutators.asking.manual import without_form
from mutators.base import (
    CALLED_NO_TOOL,
    Call,
    CallStatus,
    Client,
    Earlier,
    Message,
    Parent,
    Proposal,
    Request,
)
from mutators.bench import Bench, Result
from mutators.edits import AnswerError, child_source, description
from mutators.llm.tools import content_of
from mutators.prompts import conversation, follow_up, rendered
from operators.definition.spec import Operator
from operators.kernel import Kernel

MOST_SILENT = 2
"""Answers in a row that call no tool, after which a dialogue ends."""
STAGNATING = 3
"""Judgements in a row that found nothing better, after which the model is told to step back."""
MOST_CONVERSATION = 400_000
"""Characters of a conversation that another request goes on with; a longer one begins anew."""
LIMITS: Mapping[str, float] = {"calls": 16, "evaluations": 3, "tokens": 400_000, "usd": 0}
"""The params that bound a dialogue, and what they are where a request does not say: answers of the model, drafts that
are judged, tokens in and out, dollars (0: no limit of its own)."""
STEP_BACK = (
    "None of your last {} judgements found a better kernel. Step back: ask `profile` what limits it, read `lessons`, "
    "and try another idea rather than the same one again."
)
CALL_TOOLS = "You called no tool, and nothing was handed in. Call `build`, `check` and `submit`."
CUT_OFF = "Your answer was cut off at the limit of its length, and what it called was not done: say less, with `edits`."
HANDED_IN = "It was handed in."
NOT_KEPT = "The dialogue ended here. Use the tool again if you need what this comes to."


class Agent:
    """A child of what the model chooses to go on from, the first parent if it says nothing else.

    It is judged like any child, also where it was judged as a draft: drafts are chosen by their times, so that those of
    the chosen one are too good by chance, and they were not paired with the elite of the child's cell.

    Params: those of LIMITS, and what `mutators.prompts.conversation` says. A dialogue that reaches a limit hands in its
    best draft.
    """

    name = "agent"
    asks_model = uses_bench = needs_bench = True

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
        """Return the kernel that the dialogue handed in, or why there is none."""
        if not parents or bench is None:
            return Proposal(None, self.name, f"{self.name} needs {'a workbench' if parents else 'a parent'}")
        started = time.perf_counter()
        messages = opening(request, parents, operator, earlier)
        dialogue = Dialogue(request, parents[0].kernel, client, bench, messages)
        await dialogue.run()
        return dialogue.proposal(time.perf_counter() - started)


@dataclass
class Dialogue:
    """One dialogue, as far as it has come."""

    request: Request
    start: Kernel
    client: Client
    bench: Bench
    messages: list[Message]
    calls: list[Call] = field(default_factory=list)
    evaluator_s: float = 0.0
    handed_in: Result | None = None
    judged: Result | None = None
    """The fastest draft that was judged correct."""
    passed: Result | None = None
    """The last draft that passed `check`."""
    fruitless: int = 0
    """Judgements in a row that found nothing better."""
    judgings: int = 0
    end: str = ""
    """Why it ended without a kernel being handed in."""

    async def run(self) -> None:
        """Go on until a kernel is handed in or a limit is reached. It raises what the client does."""
        silent = 0
        for number in range(1, self._limit("calls") + 1):
            if self.end or (end := self._spent()):
                self.end = self.end or end
                return
            called = await answers(self.messages, self.request, self.client, tools=self.bench.tools)
            self.calls += called
            call = called[-1]
            if not call.status.heard or call.status is CallStatus.REFUSED:
                self.end = no_answer(call)
                return
            self.messages.append(call.message)
            silent = 0 if call.tool_calls else silent + 1
            if call.tool_calls:
                await self._use(call, number)
            else:
                await self._hear(call, last=silent >= MOST_SILENT)
            if self.handed_in:
                return
        self.end = self.end or f"it reached its {self._limit('calls')} answers"

    def proposal(self, seconds: float) -> Proposal:
        """Return what the dialogue came to."""
        result = self.handed_in or self.judged or self.passed
        more: dict[str, Any] = {"seconds": seconds, "calls": tuple(self.calls), "evaluator_s": self.evaluator_s}
        if result is None or result.kernel is None:
            return Proposal(None, self._role, f"nothing was handed in: {self.end}", **more)
        said = result.change or f"a draft of a dialogue that was not ended: {self.end}"
        return Proposal(result.kernel, said, bases=result.bases, **more)

    @property
    def _role(self) -> str:
        return self.request.role or self.request.mutator

    def _limit(self, name: str) -> int:
        return int(self.request.params.get(name, LIMITS[name]))

    def _spent(self) -> str:
        """Which of its limits the dialogue has reached; empty: none."""
        tokens = sum(call.tokens_in + call.tokens_out + call.lost_tokens for call in self.calls)
        dollars = sum(call.cost_usd + call.lost_usd for call in self.calls)
        most_usd = float(self.request.params.get("usd", LIMITS["usd"]))
        if tokens >= self._limit("tokens"):
            return f"it took {tokens} of {self._limit('tokens')} tokens"
        return f"it cost {dollars:.4g} of {most_usd:g} dollars" if most_usd and dollars >= most_usd else ""

    async def _use(self, call: Call, number: int) -> None:
        """Use the tools that an answer calls, in its order, until it hands a kernel in."""
        for wish in call.tool_calls:
            if call.status is CallStatus.CUT:
                text = CUT_OFF
            else:
                result = await self.bench.use(wish.name, wish.arguments)
                self._learn(wish.name, result)
                if self.handed_in:
                    return
                text = result.text
            self.messages.append({"role": "tool", "tool_call_id": wish.id, "content": text})
        self.messages[-1] = {
            **self.messages[-1],
            "content": f"{self.messages[-1]['content']}\n\n({self._left(number)})",
        }

    def _learn(self, tool: str, result: Result) -> None:
        self.evaluator_s += result.seconds
        if result.change:
            self.handed_in = result
        if not result.bases:  # it is no draft, but a kernel of the search
            return
        if tool == "check" and not result.failed:
            self.passed = result
        if found := result.evaluation:
            self.judgings += 1
            known = self.judged.evaluation.log_speedup if self.judged and self.judged.evaluation else None
            # Against the best kernel known at first, to which its ratio is, then against the best draft.
            gain = (found.log_ratio or 0.0) if known is None else (found.log_speedup or 0.0) - (known or 0.0)
            better = found.correct and (known is None or gain > 0)
            self.judged = result if better else self.judged
            self.fruitless = 0 if found.correct and gain > 0 else self.fruitless + 1

    def _left(self, number: int) -> str:
        """The words that the model is told with the results of its tools: how much is left, and that it stagnates."""
        left = self._limit("calls") - number
        told = f"{left} answers left, {max(self._limit('evaluations') - self.judgings, 0)} judgements"
        if left == 1:
            told += "; your next answer is the last one: hand your best draft in with `submit`"
        if self.fruitless and self.fruitless % STAGNATING == 0:
            told += f". {STEP_BACK.format(self.fruitless)}"
        return told

    async def _hear(self, call: Call, *, last: bool) -> None:
        """An answer in words: where it holds a kernel, in the form of other mutators, that is handed in."""
        try:
            source = child_source(self.start.source, call.answer)
        except AnswerError:
            self.messages.append({"role": "user", "content": CUT_OFF if call.status is CallStatus.CUT else CALL_TOOLS})
            self.end = f"{call.model} {CALLED_NO_TOOL}" if last else ""
            return
        kernel = Kernel(self.start.operator, self.start.target, source)
        found = await self.bench.check(kernel)
        self._learn("check", found)
        if not found.failed or last:
            change = description(call.answer, f"{self._role} by {call.model}")
            self.handed_in = Result(found.text, kernel=kernel, bases=found.bases, change=change)
            return
        self.messages.append({"role": "user", "content": found.text})


def opening(
    request: Request, parents: tuple[Parent, ...], operator: Operator, earlier: tuple[Earlier, ...]
) -> list[Message]:
    """Return the conversation that goes on, with what became of its last kernel, or a new one."""
    said = next((each.messages for each in earlier if each.request.id == request.thread), ())
    if said and sum(len(content_of(message)) for message in said) < MOST_CONVERSATION:
        told = follow_up("agent_next", request, parents[:1], operator, earlier, by_tools=True)
        # Of the answer that handed a kernel in, no call was answered.
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": HANDED_IN if call["function"]["name"] == "submit" else NOT_KEPT,
            }
            for call in said[-1].get("tool_calls", ())
        ]
        return [*said, *results, told]
    system, user = conversation("agent", request, parents[:1], operator, earlier, by_tools=True)
    limits = {name: int(request.params.get(name, LIMITS[name])) for name in ("calls", "evaluations")}
    work = rendered("agent_work", calls=limits["calls"], judgings=limits["evaluations"])
    return [{"role": "system", "content": f"{without_form(system['content'])}\n\n{work}"}, user]
