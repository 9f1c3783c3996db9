"""Requests of strategies to mutators, and the proposals that answer them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

from fitness.evaluation import Evaluation
from mutators.bench import Bench, Tool
from mutators.briefing import Briefing
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError, PlanError
from operators.identity import digest
from operators.kernel import Kernel


@dataclass(frozen=True)
class Trial:
    """One tried setting of a source file's tunables; `log_speedup` is None when it failed or is still running."""

    values: Mapping[str, int]
    log_speedup: float | None


class Kind(StrEnum):
    """Object of a request."""

    ANCESTOR = "ancestor"
    """A kernel file of the operator's own folder."""
    CHILD = "child"
    """A new kernel, which is charged to the budget as an evaluation."""
    TRIAL = "trial"
    """A setting of a kernel's tunables, which is counted apart."""
    SAY = "say"
    """Words of a language model, such as a plan; they are charged no evaluation."""
    PROFILE = "profile"
    """Measurements of a profiler on the parent; they are charged no evaluation."""
    GUEST = "guest"
    """A kernel from outside that no strategy asked for; strategies are told what became of it."""


@dataclass(frozen=True)
class Migration:
    """An island's offer of a kernel to another one."""

    kernel_id: str
    source_island: int
    island: int
    """The island that it was offered to."""
    kind: str
    """`migration`, which happens by turns, or `restart`: the island was emptied and begins with this kernel."""
    outcome: str
    """`new`, `improved` or `rejected`, as of any kernel that is offered to an archive."""


@dataclass(frozen=True)
class Request:
    """One wish of a strategy: make a child of these parents in this way, say something about them, or profile one.

    Everything a mutator may depend on, besides the parents and the earlier requests that it names, is in here, so that
    the same request always gets the same answer.
    """

    task: Task
    number: int
    """Counts within the task, from 0; guests count from -1 downwards."""
    mutator: str
    """Empty for requests that no mutator answers: profiles."""
    parents: tuple[str, ...]
    """Kernel ids, the principal parent first; of another task (see `source_task`) comes last."""
    seed: int
    """All of the mutator's randomness comes from here."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The mutator's own settings; plain JSON values."""
    trials: tuple[Trial, ...] = ()
    """For tuning: what is known of the principal parent's source file, oldest first."""
    kind: Kind = Kind.CHILD
    role: str = ""
    """Role that a language model is called for, such as `planner`; empty: the mutator's name."""
    model: str = ""
    """The language model; empty: the run's first, where the mutator asks one at all."""
    template: str = ""
    """The prompt's template (see `mutators.prompts`); empty: that of the mutator."""
    context: tuple[str, ...] = ()
    """Ids of earlier requests of the same task, whose words, kernels and verdicts the prompt may show."""
    thread: str = ""
    """Id of the earlier request whose conversation goes on; empty: a new one begins."""
    source_task: str = ""
    """The task that the last parent is a kernel of; empty: that of the request."""
    island: int | None = None
    """The strategy's island that the child belongs to, from 0 on; None: it has none. No answer depends on it."""
    migrations: tuple[Migration, ...] = field(default=(), compare=False)
    """Migrations between the request before and this one, the first that they may matter to. Its JSON lacks them, for
    they are known without it where it is told again."""

    @property
    def id(self) -> str:
        """`operator/dtype/target#number`."""
        return f"{self.task}#{self.number}"

    @property
    def source(self) -> str:
        """The parent that is a kernel of another task; empty: there is none."""
        return self.parents[-1] if self.source_task else ""

    @property
    def earlier(self) -> tuple[str, ...]:
        """Ids of all earlier requests that its answer may depend on, each once."""
        return tuple(dict.fromkeys(filter(None, (*self.context, self.thread))))

    def to_json(self) -> str:
        """Return canonical JSON, without fields that are empty; `from_json` is its inverse."""
        fields: dict[str, Any] = {
            "task": str(self.task), "number": self.number, "mutator": self.mutator, "parents": self.parents,
            "seed": self.seed, "params": dict(self.params),
            "trials": [{"values": dict(t.values), "log_speedup": t.log_speedup} for t in self.trials],
        }  # fmt: skip
        optional = {name: getattr(self, name) for name in _OPTIONAL_FIELDS}
        fields |= {name: value for name, value in optional.items() if value or value == 0}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Return the request that `to_json` made this text of."""
        raw = json.loads(text)
        raw["task"], raw["kind"] = Task.parse(raw["task"]), Kind(raw["kind"])
        raw["trials"] = tuple(Trial(**t) for t in raw["trials"])
        raw |= {name: tuple(raw[name]) for name in ("parents", "context") if name in raw}
        return cls(**raw)

    @property
    def digest(self) -> str:
        """The identity of all that it says."""
        return digest("request", self.to_json())


_OPTIONAL_FIELDS = ("kind", "role", "model", "template", "context", "thread", "source_task", "island")


Message = Mapping[str, Any]
"""`role` and `content`, as chat models have them; of answers that call tools `tool_calls` too, in OpenAI's form, with
the thoughts that led there as litellm has them, and of what a tool came to `tool_call_id`. The content of an answer
that only calls tools is None."""


@dataclass(frozen=True)
class ToolCall:
    """A model's wish that a tool be used."""

    id: str
    """By which what came of it is told."""
    name: str
    arguments: str
    """The arguments in the model's own text, meant to be a JSON object."""


class CallStatus(StrEnum):
    """End of a language model's call."""

    ANSWERED = "answered"
    CUT = "cut"
    """The answer ran into the limit on its tokens."""
    REFUSED = "refused"
    """A content filter of the provider kept it back."""
    FAILED = "failed"
    """No answer, after every attempt that was worth making."""
    UNAVAILABLE = "unavailable"
    """No answer, and others would get none either: a key, a credit, a name or a whole server that is gone."""
    WITHDRAWN = "withdrawn"
    """The question to a model outside was taken back before it was answered, to be asked anew about faster kernels."""

    @property
    def heard(self) -> bool:
        """Whether the provider answered, in any way."""
        return self in (CallStatus.ANSWERED, CallStatus.CUT, CallStatus.REFUSED)


@dataclass(frozen=True)
class Call:
    """One call of a language model, its retries included: what was asked, what came back, what it cost."""

    request_id: str
    role: str
    """Role that the model was called for: `rewrite`, `repair`, ..."""
    model: str
    messages: tuple[Message, ...]
    sample: int
    cache_key: str
    """Digest over request, sample, model, messages and parameters."""
    status: CallStatus
    answer: str = ""
    error: str = ""
    """Why there is no answer, or only a part of one; empty when it is whole."""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    """Tokens and dollars by the usage that the provider told, as far as that can be true."""
    latency_s: float = 0.0
    """From the first attempt to the end of the last, waits included."""
    attempts: int = 0
    lost_tokens: int = 0
    """Upper bound of what attempts whose end is not known (timeouts, broken connections) were billed besides."""
    lost_usd: float = 0.0
    usage_json: str = ""
    """The provider's own account of the usage, as JSON; empty when it gave none."""
    usage_doubt: str = ""
    """Why tokens are not counted as the provider said; empty when they are."""
    author: str = ""
    """Who gave an answer from outside, as far as that was told."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the answer calls, besides what it says in `answer`."""
    thoughts: Mapping[str, Any] = field(default_factory=dict)
    """Thoughts behind calls of tools, as far as the provider gave them: see `mutators.llm.tools.thoughts_of`."""

    @property
    def message(self) -> Message:
        """The answer as the conversation goes on with it."""
        if not self.tool_calls:
            return {"role": "assistant", "content": self.answer}
        called = {"content": self.answer or None, "tool_calls": [_echo(call) for call in self.tool_calls]}
        return {"role": "assistant", **called, **self.thoughts}


def _echo(call: ToolCall) -> dict[str, Any]:
    """A call as its model is shown it again: some providers take no conversation with arguments that are no JSON."""
    try:
        sound = isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        sound = False
    function = {"name": call.name, "arguments": call.arguments if sound else "{}"}
    return {"id": call.id, "type": "function", "function": function}


CANNOT_CALL_TOOLS = "the model cannot call tools"
CALLED_NO_TOOL = "called no tool"


def cannot_call_tools(failure: str) -> bool:
    """Return whether a dialogue failed because its model can call no tools, or never does."""
    return CANNOT_CALL_TOOLS in failure or failure.endswith(CALLED_NO_TOOL)


class OutOfBudget(Exception):
    """The budget is spent: the next call of a model might exceed it; the text says which one."""


class Client(Protocol):
    """Language model as a mutator sees it."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        request: Request,
        role: str,
        model: str = "",
        sample: int = 0,
        tools: Sequence[Tool] = (),
    ) -> Call:
        """The answer to a conversation, or why there is none; `model` is the client's first unless it is named.

        It may call `tools`; of a model that cannot, the call fails with CANNOT_CALL_TOOLS.

        The same arguments give the same call again, without a new one being paid. The sample that follows one that was
        cut off at the limit of its length gets more room; where there is none, that one is returned. Waits while the
        model is put aside, because it answered before and cannot be asked any more. Raises OutOfBudget, and UserError
        where the model has never answered and fails (a wrong key, a model that does not exist).
        """
        ...


@dataclass(frozen=True)
class Proposal:
    """The answer to a request: exactly one of a kernel, words, metrics, and the reason why there is none of them."""

    kernel: Kernel | None = None
    description: str = ""
    """Description of the change in a few words; or of what was tried."""
    failure: str = ""
    """Why there is no answer."""
    seconds: float = 0.0
    calls: tuple[Call, ...] = ()
    """Calls of language models, in order; their client has stored them."""
    text: str = ""
    """Words of a language model."""
    metrics: Mapping[str, float] | None = None
    """Metrics that a profiler measured, by name."""
    evaluator_s: float = 0.0
    """Seconds that evaluation workers spent for it before it was there: on builds, checks and judgements of drafts."""
    bases: tuple[str, ...] = ()
    """Ids of the kernels that the child was really made from, the principal one first; none: the request's parents."""

    def __post_init__(self) -> None:
        there = (self.kernel is not None, bool(self.text), self.metrics is not None, bool(self.failure))
        if sum(there) != 1:
            raise ValueError("a proposal has exactly one of a kernel, a text, metrics and a failure")

    @property
    def model(self) -> str | None:
        """The language model that was asked last, if any was."""
        return self.calls[-1].model if self.calls else None

    @property
    def author(self) -> str | None:
        """Who gave the answer from outside, if that is where it came from."""
        return (self.calls[-1].author or None) if self.calls else None

    @property
    def unavailable(self) -> bool:
        """Whether there is no answer because the model cannot be asked at present, or was asked something else."""
        without = (CallStatus.UNAVAILABLE, CallStatus.WITHDRAWN)
        return bool(self.failure and self.calls) and self.calls[-1].status in without

    @property
    def cost_usd(self) -> float:
        return sum(call.cost_usd for call in self.calls)


def worked(name: str, child: Callable[[], tuple[Kernel | None, str]], *, refused: str) -> Proposal:
    """Return what a mutator that asks no model works out, and the time that it took.

    `child` returns the kernel and what it is made of, or None and why there is none. Where a plan or an operator does
    not allow it, `refused` says so in words.
    """
    started = time.perf_counter()
    try:
        kernel, text = child()
    except (PlanError, OperatorError) as error:
        kernel, text = None, f"{refused}: {error}"
    seconds = time.perf_counter() - started
    return Proposal(kernel, text, seconds=seconds) if kernel else Proposal(None, name, text, seconds=seconds)


@dataclass(frozen=True)
class Parent:
    """A kernel a mutator starts from, with what was known of it when the child was asked for."""

    kernel: Kernel
    evaluation: Evaluation | None = None
    """Its verdict; None: not evaluated yet."""
    profile: tuple[str, ...] = ()
    """Its profile in lines for a prompt; of principal parents of language models alone."""
    briefing: Briefing | None = None
    """Further knowledge of the task; of principal parents of language models alone."""


@dataclass(frozen=True)
class Earlier:
    """An earlier request that another one names, with what became of it: what a prompt may show of it."""

    request: Request
    kernel: Kernel | None = None
    evaluation: Evaluation | None = None
    """The most severe one of the request, with its timings and errors."""
    text: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    description: str = ""
    failure: str = ""
    messages: tuple[Message, ...] = ()
    """The conversation of its last call that was answered, the answer included; empty where there was none."""


class Mutator(Protocol):
    """Makes one child per request. Pure: the same request and parents give the same proposal.

    A mutator never raises for a bad parent or an impossible wish: it answers with a failure. A class that says nothing
    of `asks_model` asks none, and one that says nothing of `is_quick` works for milliseconds or more: evaluation
    workers have it at work, rather than the process that drives the search.
    """

    name: str

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Whether asking for a child of `kernel` makes sense at all (cheap: strategies call it for every parent)."""
        ...

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """The child. `parents` are those of the request, in its order."""
        ...


class LlmMutator(Protocol):
    """A mutator that asks a language model, and waits for it without blocking the search.

    As pure as a `Mutator`, given the client's answers.
    """

    name: str
    asks_model: Literal[True]
    uses_bench: bool
    """Whether it tries drafts out on a bench where there is one, and takes `bench`."""
    needs_bench: bool
    """Whether it can do nothing without a bench."""

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """See `Mutator.applies`."""
        ...

    async def propose(
        self,
        request: Request,
        parents: tuple[Parent, ...],
        operator: Operator,
        client: Client,
        earlier: tuple[Earlier, ...] = (),
        bench: Bench | None = None,
    ) -> Proposal:
        """Return the child, like `Mutator.propose`; `earlier` are the requests of `request.earlier`, in its order.

        On a `bench`, if there is one, drafts can be tried out. It raises UserError and OutOfBudget where the client
        does.
        """
        ...
