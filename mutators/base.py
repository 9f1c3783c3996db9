"""What a strategy asks of a mutator, what it gets back, and the protocol between them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fitness.evaluation import Evaluation
from operators.identity import digest
from operators.kernel import Kernel
from operators.spec import Operator, Task


@dataclass(frozen=True)
class Trial:
    """One tried setting of a source file's tunables; `log_speedup` is None when it failed or is still running."""

    values: Mapping[str, int]
    log_speedup: float | None


@dataclass(frozen=True)
class Request:
    """One wish of a strategy: make a child of these parents in this way.

    Everything a mutator may depend on, besides the parents themselves, is in here, so that the same request always
    makes the same child.
    """

    task: Task
    number: int
    """Counts within the task, from 0."""
    mutator: str
    parents: tuple[str, ...]
    """Kernel ids, the principal parent first."""
    seed: int
    """All of the mutator's randomness comes from here."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The mutator's own settings; plain JSON values."""
    trials: tuple[Trial, ...] = ()
    """For tuning: what is known of the principal parent's source file, oldest first."""

    @property
    def id(self) -> str:
        """`operator/dtype/target#number`."""
        return f"{self.task}#{self.number}"

    def to_json(self) -> str:
        """Canonical JSON; `from_json` is its inverse."""
        fields = vars(self) | {"task": str(self.task), "params": dict(self.params)}
        fields["trials"] = [{"values": dict(t.values), "log_speedup": t.log_speedup} for t in self.trials]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Request:
        raw = json.loads(text)
        raw["task"] = Task.parse(raw["task"])
        raw["parents"] = tuple(raw["parents"])
        raw["trials"] = tuple(Trial(**t) for t in raw["trials"])
        return cls(**raw)

    @property
    def digest(self) -> str:
        return digest("request", self.to_json())


Message = Mapping[str, str]
"""`role` and `content`, as chat models have them."""


class CallStatus(StrEnum):
    """How a call of a language model ended."""

    ANSWERED = "answered"
    CUT = "cut"
    """The answer ran into the limit on its tokens."""
    REFUSED = "refused"
    """A content filter of the provider kept it back."""
    FAILED = "failed"
    """No answer, after every attempt that was worth making."""
    UNAVAILABLE = "unavailable"
    """No answer, and others would get none either: a key, a credit, a name or a whole server that is gone."""

    @property
    def heard(self) -> bool:
        """Whether the provider answered, in whatever way."""
        return self not in (CallStatus.FAILED, CallStatus.UNAVAILABLE)


@dataclass(frozen=True)
class Call:
    """One call of a language model, its retries included: what was asked, what came back, what it cost."""

    request_id: str
    role: str
    """What the model was called for: `rewrite`, `repair`, ..."""
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
    """Upper bound of what attempts whose end nobody knows (timeouts, broken connections) were billed besides."""
    lost_usd: float = 0.0
    usage_json: str = ""
    """What the provider said of its usage, as JSON; empty when it said nothing."""
    usage_doubt: str = ""
    """Why tokens are not counted as the provider said; empty when they are."""


class OutOfBudget(Exception):
    """The budget is spent: the next call of a model might exceed it; the text says which one."""


class Client(Protocol):
    """What a mutator sees of a language model."""

    async def complete(
        self, messages: Sequence[Message], *, request: Request, role: str, model: str = "", sample: int = 0
    ) -> Call:
        """The answer to a conversation, or why there is none; `model` is the client's first unless it is named.

        The same arguments give the same call again, without a new one being paid. Waits while the model is put aside,
        because it answered before and cannot be asked any more. Raises OutOfBudget, and UserError where the model has
        never answered and fails (a wrong key, a model that does not exist).
        """
        ...


@dataclass(frozen=True)
class Proposal:
    """A mutator's answer: a child, or why there is none."""

    kernel: Kernel | None
    description: str
    """What was changed, in a few words; or what was tried."""
    failure: str = ""
    """Why there is no child; empty when there is one."""
    seconds: float = 0.0
    calls: tuple[Call, ...] = ()
    """Of language models, in order; their client has stored them."""

    def __post_init__(self) -> None:
        if (self.kernel is None) == (not self.failure):
            raise ValueError("a proposal has either a kernel or a failure")

    @property
    def model(self) -> str | None:
        """The language model that was asked last, if any was."""
        return self.calls[-1].model if self.calls else None

    @property
    def unavailable(self) -> bool:
        """Whether there is no child because the model cannot be asked at present."""
        return self.kernel is None and bool(self.calls) and self.calls[-1].status is CallStatus.UNAVAILABLE

    @property
    def cost_usd(self) -> float:
        return sum(call.cost_usd for call in self.calls)


@dataclass(frozen=True)
class Parent:
    """A kernel a mutator starts from, with what was known of it when the child was asked for."""

    kernel: Kernel
    evaluation: Evaluation | None = None
    """Its verdict; None: not evaluated yet."""
    profile: tuple[str, ...] = ()
    """What a profiler said of it, in lines for a prompt; of principal parents of language models alone."""


class Mutator(Protocol):
    """Makes one child per request. Pure: the same request and parents give the same proposal.

    A mutator never raises for a bad parent or an impossible wish: it answers with a failure.
    """

    name: str

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Whether asking for a child of `kernel` makes sense at all (cheap: strategies call it for every parent)."""
        ...

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """The child. `parents` are those of the request, in its order."""
        ...


class LlmMutator(Protocol):
    """A mutator that asks a language model, and waits for it without blocking anybody.

    As pure as a `Mutator`, given the client's answers.
    """

    name: str

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """As `Mutator.applies`."""
        ...

    async def propose(
        self, request: Request, parents: tuple[Parent, ...], operator: Operator, client: Client
    ) -> Proposal:
        """As `Mutator.propose`. Raises UserError and OutOfBudget where the client does."""
        ...
