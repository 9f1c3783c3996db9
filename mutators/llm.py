"""Language models of any provider, by litellm: retries, limits, costs, and answers that are never paid twice."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mutators.base import Call, CallStatus, Message, OutOfBudget, Request
from mutators.ledger import Ledger, Reservation
from operators.errors import UserError
from operators.identity import digest

BYTES_PER_TOKEN = 2
"""Of code and prose, tokenizers make a token of three to four bytes: reserved amounts are upper bounds."""
LONGEST_BACKOFF_S = 60.0
LONGEST_RETRY_AFTER_S = 600.0
"""A provider that wants a longer rest is taken to have failed."""
CONNECT_TIMEOUT_S = 10.0
MAX_ERROR_CHARACTERS = 500

LOG = logging.getLogger(__name__)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Price(BaseModel):
    """Dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    """Of the prompt."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """Of the answer, reasoning included."""


class LlmSettings(BaseModel):
    """Which models, and how they are called. Keys come from the environment, as litellm names them."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    models: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """In litellm's notation, such as `anthropic/claude-sonnet-4-5` or `openai/NAME` for a server of one's own."""
    api_base: str | None = None
    """An OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    max_tokens: int = Field(8192, ge=1)
    """Of one answer."""
    temperature: float | None = Field(None, ge=0, le=2)
    """Sent to the model as it is; none: the provider's default, here and below."""
    top_p: float | None = Field(None, gt=0, le=1)
    """Sent to the model as it is."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much a model that reasons may think before it answers."""
    concurrency: int = Field(16, ge=1, le=1024)
    """Calls in flight at most."""
    timeout_s: Positive = 600.0
    """Of one attempt, from sending it to the last byte of its answer."""
    attempts: int = Field(6, ge=1, le=100)
    """Per call, the first included."""
    backoff_s: Positive = 1.0
    """Before the second attempt, about; doubles with each further one."""
    prices: dict[str, Price] = {}
    """By model; of others litellm's table is asked."""

    @field_validator("api_base")
    @classmethod
    def _plain_address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^/@?#\s]+(/[^@?#\s]*)?", value):
            raise ValueError("write an address such as http://127.0.0.1:8000/v1, without name, password or query")
        if value is not None:
            _ = urlsplit(value).port  # raises ValueError for a number that is none
        return value

    @property
    def parameters(self) -> dict[str, Any]:
        """What is sent besides model and messages."""
        names = ("max_tokens", "temperature", "top_p", "reasoning_effort")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class CallStore(Protocol):
    """Where calls are kept; the only place they are written."""

    def find(self, cache_key: str) -> Call | None:
        """The answer that was stored under this key, if any; calls that failed are no answers."""
        ...

    async def announce(self, call: Call, most_tokens: int, most_usd: float) -> None:
        """Note that a call is about to be made, and the most an attempt may cost; `add` follows, or a crash."""
        ...

    async def add(self, call: Call) -> None:
        """Keep a call, failed ones too; it is safe once this returns."""
        ...


class MemoryCalls:
    """Calls of one process, in the order in which they ended."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._answered: dict[str, Call] = {}

    def find(self, cache_key: str) -> Call | None:
        return self._answered.get(cache_key)

    async def announce(self, call: Call, most_tokens: int, most_usd: float) -> None:
        pass

    async def add(self, call: Call) -> None:
        self.calls.append(call)
        if call.status is not CallStatus.FAILED:
            self._answered[call.cache_key] = call


def cache_key(settings: LlmSettings, messages: Sequence[Message], *, request: Request, model: str, sample: int) -> str:
    """What makes two calls the same one."""
    parameters = json.dumps(settings.parameters, sort_keys=True)
    return digest("call", request.digest, sample, model, json.dumps([dict(m) for m in messages]), parameters)


class LLM:
    """`mutators.base.Client` for real models. Lives in one event loop."""

    def __init__(
        self,
        settings: LlmSettings,
        *,
        ledger: Ledger | None = None,
        calls: CallStore | None = None,
        say: Callable[[str], None] = LOG.warning,
    ) -> None:
        """`say` gets what the user should know once, such as that a model has no price."""
        self.settings = settings
        self.ledger = ledger or Ledger()
        self.calls = calls or MemoryCalls()
        self._say = say
        self._prices: dict[str, Price | None] = {}
        self._places = asyncio.Semaphore(settings.concurrency)

    async def complete(
        self, messages: Sequence[Message], *, request: Request, role: str, model: str = "", sample: int = 0
    ) -> Call:
        """See `Client.complete`."""
        model = model or self.settings.models[0]
        key = cache_key(self.settings, messages, request=request, model=model, sample=sample)
        if known := self.calls.find(key):
            return known
        call = Call(request.id, role, model, tuple(messages), sample, key, CallStatus.FAILED)
        call, problem = await self._persist(call)
        await self.calls.add(call)
        if problem:
            raise problem
        return call

    async def check(self) -> None:
        """Ask nobody anything, and raise UserError for what no call could overcome.

        That is a provider that litellm does not know, a key that is missing, a server of one's own that is not there,
        and a limit in dollars on a model whose price nobody knows.
        """
        litellm = await asyncio.to_thread(_litellm)
        for model in self.settings.models:
            _check_provider(litellm, model, self.settings.api_base)
            if self._price(litellm, model) is None and self.ledger.limit_usd < math.inf:
                raise UserError(
                    f"model {model}: its price is not known, so that a budget in dollars would not hold; "
                    "limit tokens, such as --budget 2Mtok, or set llm.prices"
                )
        if self.settings.api_base:
            await _check_server(self.settings.api_base)

    async def _persist(self, call: Call) -> tuple[Call, Exception | None]:
        """Attempts until one succeeds, none is left or no further one makes sense; and what is to be raised then."""
        litellm = await asyncio.to_thread(_litellm)
        began, random = time.monotonic(), Random(call.cache_key)
        problem: Exception | None = None
        for attempt in range(1, self.settings.attempts + 1):
            try:
                call, fault = await self._attempt(litellm, replace(call, attempts=attempt))
            except OutOfBudget as error:
                if attempt == 1:
                    raise
                problem = error
                break
            if fault is None or fault.kind != "transient" or attempt == self.settings.attempts:
                if fault and fault.kind == "setup":
                    problem = UserError(f"model {call.model}: {fault.text}")
                break
            if fault.retry_after_s > LONGEST_RETRY_AFTER_S:
                break
            backoff = min(self.settings.backoff_s * 2 ** (attempt - 1), LONGEST_BACKOFF_S)
            await asyncio.sleep(max(backoff * random.uniform(0.5, 1.5), fault.retry_after_s))
        return replace(call, latency_s=time.monotonic() - began), problem

    async def _attempt(self, litellm: ModuleType, call: Call) -> tuple[Call, _Fault | None]:
        """One request to the provider. Raises OutOfBudget before it is made."""
        price, most_out = self._price(litellm, call.model), self.settings.max_tokens
        most_in = sum(_most_tokens(message["content"]) + 16 for message in call.messages)
        async with self._places, self.ledger.reserve(most_in + most_out, _dollars(price, most_in, most_out)) as room:
            if call.attempts == 1:
                await self.calls.announce(call, room.tokens, room.cost_usd)
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    response = await self._send(litellm, call)
                answer = _read(response)
            except asyncio.CancelledError:  # what it may have cost is not forgotten with it
                await self.calls.add(_failed(call, _Fault("interrupted", "transient", turned_away=False), room))
                raise
            # The border to litellm, which lets through whatever the code of its providers raises.
            except Exception as error:  # noqa: BLE001
                fault = translate(error)
                return _failed(call, fault, room), fault
            if not (answer.tokens_in or answer.tokens_out):  # the server does not count: the upper bounds do
                answer = replace(answer, tokens_in=most_in, tokens_out=min(_most_tokens(answer.text), most_out))
            cost_usd = self._cost(litellm, call.model, price, response, answer)
            room.settle(answer.tokens_in, answer.tokens_out, cost_usd)
        return _answered(call, answer, cost_usd), None

    async def _send(self, litellm: ModuleType, call: Call) -> Any:
        options: dict[str, Any] = dict(self.settings.parameters)
        if self.settings.api_base:
            options["api_base"] = self.settings.api_base
            if call.model.startswith("openai/") and "OPENAI_API_KEY" not in os.environ:
                options["api_key"] = "none"  # the library insists on one, servers of one's own do not
        return await litellm.acompletion(
            model=call.model,
            messages=[dict(message) for message in call.messages],
            timeout=self.settings.timeout_s,
            num_retries=0,
            max_retries=0,
            drop_params=True,
            **options,
        )

    def _price(self, litellm: ModuleType, model: str) -> Price | None:
        """None: unknown, which is said once and counts as 0."""
        if model not in self._prices:
            price = self.settings.prices.get(model) or _listed_price(litellm, model)
            self._prices[model] = price
            if price is None:
                self._say(f"the price of {model} is not known and counts as 0; set llm.prices to have dollars counted")
        return self._prices[model]

    def _cost(self, litellm: ModuleType, model: str, price: Price | None, response: Any, answer: _Answer) -> float:
        """What the call cost; litellm knows of discounts for what the provider had in its cache."""
        if price is None or model in self.settings.prices:
            return _dollars(price, answer.tokens_in, answer.tokens_out)
        try:
            return float(litellm.completion_cost(response.model_copy(update={"model": model}), model=model))
        except Exception:  # noqa: BLE001 - the border to litellm: an answer that is there is not lost to its arithmetic
            return _dollars(price, answer.tokens_in, answer.tokens_out)


@dataclass(frozen=True)
class _Answer:
    text: str
    status: CallStatus
    tokens_in: int
    tokens_out: int


def _read(response: Any) -> _Answer:
    choice, usage = response.choices[0], response.usage
    status = {"length": CallStatus.CUT, "content_filter": CallStatus.REFUSED}.get(choice.finish_reason)
    tokens = (usage.prompt_tokens or 0, usage.completion_tokens or 0) if usage else (0, 0)
    text = (choice.message.content or "").encode(errors="replace").decode()  # half a surrogate pair is no text
    return _Answer(text, status or CallStatus.ANSWERED, *tokens)


def _failed(call: Call, fault: _Fault, room: Reservation) -> Call:
    if fault.turned_away:
        room.free()
    else:
        call = replace(call, lost_tokens=call.lost_tokens + room.tokens, lost_usd=call.lost_usd + room.cost_usd)
    return replace(call, status=CallStatus.REFUSED if fault.kind == "refused" else CallStatus.FAILED, error=fault.text)


def _answered(call: Call, answer: _Answer, cost_usd: float) -> Call:
    return replace(
        call, status=answer.status, answer=answer.text, error="", tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out, cost_usd=cost_usd,
    )  # fmt: skip


def _most_tokens(text: str) -> int:
    return len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN + 1


def _dollars(price: Price | None, tokens_in: int, tokens_out: int) -> float:
    return (tokens_in * price.input + tokens_out * price.output) / 1e6 if price else 0.0


def _listed_price(litellm: ModuleType, model: str) -> Price | None:
    try:
        info = litellm.get_model_info(model)
    except Exception:  # noqa: BLE001 - the border to litellm: a bare Exception is how it says "not in the table"
        return None
    return Price(input=1e6 * (info["input_cost_per_token"] or 0), output=1e6 * (info["output_cost_per_token"] or 0))


def _check_provider(litellm: ModuleType, model: str, api_base: str | None) -> None:
    try:
        litellm.get_llm_provider(model)
        missing = [name for name in litellm.validate_environment(model)["missing_keys"] if name.endswith("_API_KEY")]
    except Exception as error:  # the border to litellm
        raise UserError(f"model {model}: {translate(error).text}") from error
    if missing and not api_base:  # a server of one's own may not want a key
        raise UserError(f"model {model}: set {' and '.join(missing)} in the environment")


async def _check_server(address: str) -> None:
    place = urlsplit(address)
    port = place.port or {"http": 80, "https": 443}[place.scheme]
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(place.hostname, port)
    except (OSError, TimeoutError) as error:
        raise UserError(f"llm.api_base {address}: no server answers there: {_one_line(error)}") from error
    writer.close()


def _litellm() -> ModuleType:
    """The library: seconds and megabytes, so not before the first call; without its fetching of a price list."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    # Cancelled at the wrong moment, it forgets to await its own coroutine, which is not for the user to know.
    warnings.filterwarnings("ignore", "coroutine '.*completion' was never awaited", RuntimeWarning)
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    return litellm


# --- what can go wrong --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fault:
    """What one failed attempt means."""

    text: str
    kind: Literal["transient", "call", "refused", "setup"]
    """`transient`: again may help. `call`: this conversation cannot be answered. `setup`: none can."""
    turned_away: bool
    """Whether the provider said so itself, and so bills nothing."""
    retry_after_s: float = 0.0


_SETUP = frozenset({401, 402, 403, 404})
_TRANSIENT = frozenset({408, 409, 425, 429})
_NO_CREDIT = re.compile(r"insufficient[_ ]quota|billing_hard_limit|credit balance", re.IGNORECASE)


def translate(error: Exception) -> _Fault:
    """litellm's exceptions, by the HTTP status they carry; the only place that knows them."""
    known = _litellm().exceptions
    chain = tuple(_causes(error))
    text = _one_line(error)
    told = any(type(link).__name__ == "HTTPStatusError" for link in chain)
    status = getattr(error, "status_code", None)
    if isinstance(error, TimeoutError):
        return _Fault("no answer in time", "transient", turned_away=False)
    if isinstance(error, known.ContentPolicyViolationError):
        return _Fault(text, "refused", turned_away=True)
    if "LLM Provider NOT provided" in text:
        return _Fault(
            "litellm knows no such model; write provider/model, such as openai/gpt-5", "setup", turned_away=True
        )
    if status in _SETUP or _NO_CREDIT.search(text):
        return _Fault(text, "setup", turned_away=True)
    if not isinstance(status, int) or status in _TRANSIENT or status >= 500:
        return _Fault(text, "transient", turned_away=told, retry_after_s=_retry_after(error))
    return _Fault(text, "call", turned_away=True)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(error: Exception) -> float:
    """Seconds the provider asked for; 0 if it did not, or in a form that is no number."""
    headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
    try:
        return max(float(headers.get("retry-after", 0)), 0.0)
    except ValueError:
        return 0.0


def _one_line(error: Exception) -> str:
    """The error's text for people: one line, of bounded length, without anything that might be a key."""
    text = re.sub(r"litellm\.(\w+): (?:\1: )?", r"\1: ", " ".join(str(error).split())) or type(error).__name__
    for name, value in os.environ.items():
        if re.search(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", name, re.IGNORECASE) and len(value) >= 8:
            text = text.replace(value, "***")
    text = re.sub(r"\b(sk-|Bearer )[^\s,;'\"]{4,}", r"\1***", text)
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[:MAX_ERROR_CHARACTERS] + " ..."
