"""Which language models a run asks, how it calls them and what they cost."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OUTSIDE = "outside"
"""The model whose answers come from outside; `outside/NAME` says which one is meant to give them."""


def is_outside(model: str) -> bool:
    """Whether a model's answers come from outside: people, agents and batch services tell them when they like."""
    return model == OUTSIDE or model.startswith(f"{OUTSIDE}/")


PROGRAM = "cli/"
"""Beginning of the name of a model that is a program of this machine: `cli/claude`."""


def is_program(model: str) -> bool:
    """Whether a model is a program of this machine, which is asked on its standard input."""
    return model.startswith(PROGRAM)


class UserSettings(BaseModel):
    """Anything that a user writes: unknown names are refused, and what is read stays as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Price(UserSettings):
    """Dollars per million tokens."""

    input: float = Field(ge=0, allow_inf_nan=False)
    """Dollars for the prompt's tokens."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """Dollars for the answer's tokens, reasoning included."""

    def cost_usd(self, tokens_in: float, tokens_out: float) -> float:
        """Dollars for so many tokens."""
        return (tokens_in * self.input + tokens_out * self.output) / 1e6


class LlmSettings(UserSettings):
    """The models of a run and how they are called. Keys come from the environment, as litellm names them."""

    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """In litellm's notation, such as `anthropic/claude-sonnet-4-5` or `openai/NAME` for a server of one's own;
    `cli/claude`, `cli/codex` or `cli/PROGRAM` for a program of this machine; answers of `outside`, or `outside/NAME`,
    are told by `evo tell`."""
    api_base: str | None = None
    """An OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    max_tokens: int | None = Field(None, ge=1)
    """The most tokens of one answer, thoughts included; none: the model's own limit, 32,768 at first, more for one that
    was cut."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sent to the model as it is; none: the provider's default, here and below."""
    seeds: bool = False
    """Whether every question is sent with a seed of its own, so that models at temperature 0 may answer it in several
    ways; it is left out for providers that take none."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sent to the model as it is."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """Amount that a model which reasons may think before it answers."""
    concurrency: int = Field(16, ge=1, le=1024)
    """Calls in flight at most; about as many questions to models outside are open besides."""
    timeout_s: Positive = 600.0
    """Seconds of one attempt, from sending it to the last byte of its answer."""
    attempts: int = Field(6, ge=1, le=100)
    """Per call, the first included."""
    backoff_s: Positive = 1.0
    """Before the second attempt, about; doubles with each further one."""
    pause_s: Positive = 10.0
    """Before a model that answered and cannot be asked any more is tried again; doubles with each trial that fails, up
    to ten minutes."""
    prices: dict[str, Price] = {}
    """By model; of others litellm's table is asked. Answers from outside, and of programs, cost what is told with them,
    or these."""

    tools: dict[str, bool] = {}
    """By model, whether it can call tools; of others litellm's table is asked, and what stands nowhere is taken to."""

    @field_validator("api_base")
    @classmethod
    def _plain_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/@?#\s]+(/[^@?#\s]*)?", value):
            raise ValueError("write an address such as http://127.0.0.1:8000/v1, without name, password or query")
        if value is not None:
            _ = urlsplit(value).port  # raises ValueError for a number that is none
        return value

    @property
    def asked(self) -> tuple[str, ...]:
        """The models that the search itself asks: those that are not outside."""
        return tuple(model for model in self.models if not is_outside(model))

    @property
    def greedy(self) -> bool:
        """Whether models answer the same question always alike, as far as that is in our hands."""
        return self.temperature == 0 and not self.seeds

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are sent besides model and messages."""
        names = ("max_tokens", "temperature", "top_p", "reasoning_effort")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
