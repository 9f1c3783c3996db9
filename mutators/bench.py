"""The workbench of those who write kernels: its tools before they answer, and what each use came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fitness.evaluation import Evaluation
from operators.kernel import Kernel


@dataclass(frozen=True)
class Tool:
    """Service that a language model, or another client, can use."""

    name: str
    description: str
    """Effect, cost and answer, for a client that chooses among tools."""
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, an object."""


@dataclass(frozen=True)
class Result:
    """Result of a use of a tool: a fault in it is a text, never an exception."""

    text: str
    """Text for the client, of bounded length."""
    failed: bool = False
    """Whether it could not be done, or found fault with the kernel."""
    kernel: Kernel | None = None
    """The draft that it was about."""
    bases: tuple[str, ...] = ()
    """Ids of the kernels that the draft was made from and that are no drafts themselves, the latest first."""
    change: str = ""
    """Change of a draft, in its author's words; only where it is handed in."""
    evaluation: Evaluation | None = None
    """The evaluation of a draft that was judged."""
    evaluations: int = 0
    """Evaluations that are charged to the budget."""
    seconds: float = 0.0
    """Seconds of an evaluation worker."""
    worker: str = ""
    """The worker that took a profile; empty for other tools."""
    unsaid: Mapping[str, Any] = field(default_factory=dict)
    """Facts that a client is not told, plain JSON, such as why a look at a kernel was not possible."""


class Bench(Protocol):
    """The workbench of one request: its tools take jobs to evaluation workers, and what each use came to is stored.

    The same uses in the same order come to the same results, in a session that goes on with the request and in a
    replay. It raises what a pool raises for a broken machine, and nothing for bad arguments or bad kernels.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """Those that can be used."""
        ...

    async def use(self, tool: str, arguments: str | Mapping[str, Any]) -> Result:
        """Return what a tool came to; `arguments` may be JSON as a model wrote it."""
        ...

    async def check(self, kernel: Kernel) -> Result:
        """Return whether a kernel compiles and gives right answers on a few small shapes, by the tool `check`."""
        ...
