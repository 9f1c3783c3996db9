"""Language models of any provider, by litellm: retries, limits, costs, and answers that are never paid twice."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from mutators.base import CANNOT_CALL_TOOLS, Call, CallStatus, Message, OutOfBudget, Request, ToolCall
from mutators.bench import Tool
from mutators.llm import program
from mutators.llm.calls import CallStore, MemoryCalls, cache_key, cut_before, marked, room_for
from mutators.llm.faults import CallFailed, Fault, known, one_line, translated
from mutators.llm.library import litellm_module
from mutators.llm.settings import LlmSettings, Price, is_program
from mutators.llm.spending import Reservation, Spending, TooLarge
from mutators.llm.tools import calls_of, described, thoughts_of
from mutators.llm.usage import Usage, counted, counted_outside, most_asked, most_tokens
from mutators.llm.wire import ARRIVAL, Arrival
from operators.errors import UserError

CHARACTERS_PER_TOKEN = 16
"""The most characters of an answer per token, far more than there are on average. Longer answers are cut."""
LONGEST_BACKOFF_S = 60.0
LONGEST_RETRY_AFTER_S = 600.0
"""A provider that asks for a longer pause is taken to have failed."""
CONNECT_TIMEOUT_S = 10.0

LOG = logging.getLogger(__name__)


class LLM:
    """`mutators.base.Client` for real models. Lives in one event loop."""

    def __init__(
        self,
        settings: LlmSettings,
        *,
        spending: Spending | None = None,
        calls: CallStore | None = None,
        say: Callable[[str], None] = LOG.warning,
    ) -> None:
        """`say` gets what the user should know once, such as that a model has no price."""
        self.settings = settings
        self.spending = spending or Spending()
        self.calls = calls or MemoryCalls()
        self._say = say
        self._prices: dict[str, Price | None] = {}
        self._places = asyncio.Semaphore(settings.concurrency)
        self._breakers: defaultdict[str, Breaker] = defaultdict(lambda: Breaker(settings.pause_s))
        self._under_way: set[asyncio.Task[Any]] = set()
        self._finishing = False
        self._begun: set[str] = set()
        """Ids of requests that something was answered to."""

    def finish(self) -> None:
        """Send nothing more: calls that are not sent yet raise OutOfBudget. What is under way is paid, and goes on."""
        self._finishing = True

    def under_way(self) -> set[asyncio.Task[Any]]:
        """Tasks that wait for a provider's answer, and not for their turn."""
        return set(self._under_way)

    def held(self) -> set[asyncio.Task[Any]]:
        """Tasks that wait for models that are put aside; they take no place from others."""
        return {task for breaker in self._breakers.values() for task in breaker.held}

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
        """Answer a conversation as `Client.complete` says."""
        model = model or self.settings.models[0]
        key = partial(cache_key, self.settings, messages, request=request, model=model, tools=tools)

        def find(sample: int) -> Call | None:
            return self.calls.find(key(sample=sample))

        if stored := find(sample):
            self._begun.add(request.id)
            return stored
        cut = cut_before(find, sample)
        litellm = await asyncio.to_thread(litellm_module)
        room = self._room(litellm, model, messages, len(cut))
        if cut and room <= self._room(litellm, model, messages, len(cut) - 1):
            return cut[0]  # it would be cut at the same place
        call = Call(request.id, role, model, tuple(messages), sample, key(sample=sample), CallStatus.FAILED)
        if tools and not self._calls_tools(litellm, model):
            call = replace(call, error=CANNOT_CALL_TOOLS)
            await self.calls.add(call)
            return call
        breaker = self._breakers[model]
        async with breaker.turn() as trial:
            began = time.monotonic()
            # A trial holds back every call that waits for this model, so it asks once.
            course = _Course(call, room, tuple(tools))
            call, fault = await self._persist(course, attempts=1 if trial else self.settings.attempts)
            if fault and not fault.alive and (fault.kind == "setup" or breaker.silent_since(began)):
                call = replace(call, status=CallStatus.UNAVAILABLE)
            await self.calls.add(call)
            if fault and fault.kind == "budget":
                raise OutOfBudget(fault.text)
            await self._learn(breaker, call, fault, began)
        if call.status.heard:
            self._begun.add(request.id)
        return call

    async def check(self, asked: int = 0) -> None:
        """Raise UserError for what no call could overcome, without a call of a model; say which price is not known.

        That is a provider that litellm does not know, a key that is missing, a server of one's own that is not there,
        and limits as `check_limits` says. A server that answered before is only away.
        """
        if not self.settings.asked:
            return
        await asyncio.to_thread(check_models, self.settings)
        litellm = litellm_module()
        if not self.spending.calls:
            self.check_limits(asked)
            for model in self.settings.asked:
                self._price(litellm, model)  # one that is not known is said before anything is paid
        if self.settings.api_base and not self.calls.heard():
            await _check_server(self.settings.api_base)

    def check_limits(self, asked: int = 0) -> None:
        """Raise UserError where a limit in dollars is on a model whose price is not known, and where none of a limit's
        calls could begin: `asked` are the most tokens that a first question may have."""
        for model in self.settings.asked:
            litellm = litellm_module()
            price = self.settings.prices.get(model) or listed_price(litellm, model)
            room = self._most_out(litellm, self._room(litellm, model, (), 0))
            if price is None and self.spending.limit_usd < math.inf:
                raise UserError(
                    f"model {model}: its price is not known, so that a budget in dollars would not hold; "
                    "limit tokens instead, or set llm.prices"
                )
            limits = (
                (self.spending.limit_tokens, asked + room, "tokens"),
                (self.spending.limit_usd, _dollars(price, asked, room), "dollars"),
            )
            for limit, most, unit in limits:
                if limit < most:
                    raise UserError(
                        f"a budget of {limit:,.10g} {unit} does not pay for a first answer of {model}, which may take "
                        f"{most:,.5g} ({asked:,} tokens asked, {room:,} answered); give more, or limit answers with "
                        "llm.max_tokens"
                    )

    async def _learn(self, breaker: Breaker, call: Call, fault: Fault | None, began: float) -> None:
        """Put the model aside, or take it back, for what became of a call.

        Raises UserError for what is wrong with the settings (a key, a model's name), as long as no model of the run has
        answered: that is its start, and a user is there to mend it. Later a search goes on with what it has.
        """
        if fault and fault.kind == "setup" and not self.calls.heard():
            raise UserError(f"model {call.model} has not answered yet and fails: {fault.text}")
        if fault and call.status is CallStatus.UNAVAILABLE:
            if breaker.failed(began, fault.retry_after_s):
                await self.calls.note("model_out", {"model": call.model, "error": call.error})
                self._say(f"model {call.model} is put aside and tried again later: {call.error}")
        elif (fault is None or fault.alive) and breaker.answered(began):
            await self.calls.note("model_back", {"model": call.model})
            self._say(f"model {call.model} answers again")

    async def _persist(self, course: _Course, attempts: int) -> tuple[Call, Fault | None]:
        """Attempts until one succeeds, none is left or no further one makes sense; and what was wrong with the last.

        Raises OutOfBudget before the first one. Cancelled at any place, it keeps what attempts may have cost.
        """
        litellm = await asyncio.to_thread(litellm_module)
        began = time.monotonic()
        try:
            fault = await self._attempts(litellm, course, attempts)
        except asyncio.CancelledError:
            if course.call.attempts:
                await self.calls.add(replace(course.call, latency_s=time.monotonic() - began))
            raise
        return replace(course.call, latency_s=time.monotonic() - began), fault

    async def _attempts(self, litellm: ModuleType, course: _Course, attempts: int) -> Fault | None:
        """The fault of the last attempt."""
        # Calls that fail together come back at different times; the key makes the waits of one call repeatable.
        random = Random(course.call.cache_key)
        for attempt in range(1, attempts + 1):
            try:
                fault = await self._attempt(litellm, course)
            except (OutOfBudget, TooLarge) as error:
                # What a dialogue has come to counts where no later session will go on with it.
                ends = self.spending.cell and course.call.request_id in self._begun and not self._finishing
                if isinstance(error, TooLarge) or ends:
                    fault = Fault(f"it is too large for the budget: {error}", "size", turned_away=True)
                    course.call = replace(course.call, error=fault.text)
                elif attempt == 1:
                    raise
                else:
                    fault = Fault(str(error), "budget", turned_away=True)
            if fault is None or fault.kind != "transient" or fault.retry_after_s > LONGEST_RETRY_AFTER_S:
                break
            if attempt == attempts:
                break
            backoff = min(self.settings.backoff_s * 2 ** (attempt - 1), LONGEST_BACKOFF_S)
            await asyncio.sleep(max(backoff * random.uniform(0.5, 1.5), fault.retry_after_s))
        return fault

    async def _attempt(self, litellm: ModuleType, course: _Course) -> Fault | None:
        """One request to the provider. Raises OutOfBudget and TooLarge before it is made."""
        call = course.call
        price, most_out = self._price(litellm, call.model), self._most_out(litellm, course.room)
        most_in = most_asked(call.messages)
        most_in += most_tokens(json.dumps(described(course.tools))) if course.tools else 0
        dollars = partial(_dollars, price)
        async with self._places, self.spending.reserve(call.model, most_in, most_out, dollars) as room:
            if self._finishing:
                room.free()
                raise OutOfBudget("the search has ended")
            with self._paid():
                if not call.attempts:
                    await self.calls.announce(call, room.most_in, room.tokens, room.cost_usd)
                return await self._sent(litellm, course, room, most_in, most_out)

    async def _sent(
        self, litellm: ModuleType, course: _Course, room: Reservation, most_in: int, most_out: int
    ) -> Fault | None:
        """Send one request that has room in the budget; what was wrong with what came of it."""
        call = replace(course.call, attempts=course.call.attempts + 1)
        arrival = Arrival(CHARACTERS_PER_TOKEN * course.room)
        price = self._price(litellm, call.model)
        try:
            with translated():
                async with asyncio.timeout(self.settings.timeout_s):
                    asked = program.ask(call.model, call.messages) if is_program(call.model) else None
                    response = await (asked or self._send(litellm, course, arrival))
                if isinstance(response, program.Said):
                    answer = _read_program(response, arrival.most_characters, program.as_text(call.messages))
                else:
                    answer = _read(response, arrival, most_in=most_in, most_out=most_out)
        except asyncio.CancelledError:
            course.call = _failed(call, Fault("interrupted", "transient", turned_away=False), room)
            raise
        except CallFailed as failed:
            course.call = _failed(call, failed.fault, room)
            return failed.fault
        usage = answer.usage
        if isinstance(response, program.Said):  # what it sends besides is its own, so that nothing bounds its cost
            told = response.cost_usd
            cost_usd = _dollars(price, usage.tokens_in, usage.tokens_out) if told is None else told
        else:
            cost_usd = min(self._cost(litellm, call.model, price, response, usage), room.cost_usd)
        room.settle(usage.tokens_in, usage.tokens_out, cost_usd, told=not usage.doubt)
        course.call = _answered(call, answer, cost_usd)
        return None

    @contextmanager
    def _paid(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task
        self._under_way.add(task)
        try:
            yield
        finally:
            self._under_way.discard(task)

    def _calls_tools(self, litellm: ModuleType, model: str) -> bool:
        """Whether a model can call tools, as far as is known."""
        if is_program(model):
            return False
        if model in self.settings.tools:
            return self.settings.tools[model]
        info = _listed(litellm, model)
        return info is None or bool(info.get("supports_function_calling"))

    def _room(self, litellm: ModuleType, model: str, messages: Sequence[Message], cuts: int) -> int:
        """See `room_for`."""
        return room_for(self.settings, _listed(litellm, model), messages, cuts=cuts)

    def _most_out(self, litellm: ModuleType, room: int) -> int:
        """Tokens that an answer may have, thoughts included: some providers count these apart."""
        effort = (self.settings.reasoning_effort or "none").upper()
        thoughts: int = getattr(litellm.constants, f"DEFAULT_REASONING_EFFORT_{effort}_THINKING_BUDGET", 0)
        return room + thoughts

    async def _send(self, litellm: ModuleType, course: _Course, arrival: Arrival) -> Any:
        """The provider's answer as the library has it; `arrival` gets what was seen of it before."""
        call = course.call
        options: dict[str, Any] = {**self.settings.parameters, "max_tokens": course.room}
        if self.settings.seeds:
            options["seed"] = int(call.cache_key[:7], 16)
        if course.tools:
            # Our tools are no MCP servers'; litellm would import the package `mcp` to find that out.
            options |= {"tools": described(course.tools), "_skip_mcp_handler": True}
        if self.settings.api_base:
            options["api_base"] = self.settings.api_base
            if call.model.startswith("openai/") and "OPENAI_API_KEY" not in os.environ:
                options["api_key"] = "none"  # the library insists on one, servers of one's own do not
        token = ARRIVAL.set(arrival)
        try:
            return await litellm.acompletion(
                model=call.model,
                messages=marked(call.messages, _provider(litellm, call.model)),
                timeout=self.settings.timeout_s,
                num_retries=0,
                max_retries=0,
                drop_params=True,
                **options,
            )
        finally:
            ARRIVAL.reset(token)

    def _price(self, litellm: ModuleType, model: str) -> Price | None:
        """The model's price; None where it is unknown, which the user is told once and which counts as 0."""
        if model not in self._prices:
            price = self.settings.prices.get(model) or listed_price(litellm, model)
            self._prices[model] = price
            if price is None:
                counts = "counts as it tells, else as 0" if is_program(model) else "counts as 0"
                self._say(f"the price of {model} is not known and {counts}; set llm.prices to have dollars counted")
        return self._prices[model]

    def _cost(self, litellm: ModuleType, model: str, price: Price | None, response: Any, usage: Usage) -> float:
        """The cost of the call; litellm knows of discounts for what the provider had in its cache."""
        usual = _dollars(price, usage.tokens_in, usage.tokens_out)
        if price is None or model in self.settings.prices or usage.doubt:
            return usual
        cost_usd = known(
            lambda: float(litellm.completion_cost(response.model_copy(update={"model": model}), model=model))
        )
        return cost_usd if cost_usd is not None and 0 <= cost_usd < math.inf else usual


@dataclass
class _Course:
    """A call as far as it has come."""

    call: Call
    room: int
    """Tokens that its answer may have."""
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True)
class _Answer:
    text: str
    status: CallStatus
    usage: Usage
    error: str
    tool_calls: tuple[ToolCall, ...] = ()
    thoughts: Mapping[str, Any] = field(default_factory=dict)


def _read(response: Any, arrival: Arrival, *, most_in: int, most_out: int) -> _Answer:
    choice, usage = response.choices[0], getattr(response, "usage", None)
    status = {"length": CallStatus.CUT, "content_filter": CallStatus.REFUSED}.get(choice.finish_reason)
    text = (choice.message.content or "").encode(errors="replace").decode()  # half a surrogate pair is no text
    error, characters = "", max(arrival.characters, len(text))
    if characters > arrival.most_characters:
        text, status = text[: arrival.most_characters], CallStatus.CUT
        error = f"of {characters} characters, more than its limit of tokens can hold, the first {len(text)} are kept"
    said = arrival.usage if arrival.read else usage.model_dump() if usage else None
    tools = calls_of(choice.message)
    written = "".join((text, *(call.name + call.arguments for call in tools)))
    counts = counted(said, written, most_in=most_in, most_out=most_out)
    thoughts = thoughts_of(choice.message) if tools else {}
    return _Answer(text, status or CallStatus.ANSWERED, counts, error, tools, thoughts)


def _read_program(said: program.Said, most_characters: int, asked: str) -> _Answer:
    """The answer of a program, whose tokens are those that it told, or else estimated."""
    text, status, error = said.text, said.status, said.error
    if len(text) > most_characters:
        text, status = text[:most_characters], CallStatus.CUT
        error = f"of {len(said.text)} characters the first {len(text)} are kept"
    return _Answer(text, status, counted_outside(said.usage, text, asked), error)


def _failed(call: Call, fault: Fault, room: Reservation) -> Call:
    if fault.turned_away:
        room.free()
    else:
        call = replace(call, lost_tokens=call.lost_tokens + room.tokens, lost_usd=call.lost_usd + room.cost_usd)
    return replace(call, status=CallStatus.REFUSED if fault.kind == "refused" else CallStatus.FAILED, error=fault.text)


def _answered(call: Call, answer: _Answer, cost_usd: float) -> Call:
    return replace(
        call, status=answer.status, answer=answer.text, error=answer.error, tokens_in=answer.usage.tokens_in,
        tokens_out=answer.usage.tokens_out, cost_usd=cost_usd, usage_json=answer.usage.said,
        usage_doubt=answer.usage.doubt, tool_calls=answer.tool_calls, thoughts=answer.thoughts,
    )  # fmt: skip


def _dollars(price: Price | None, tokens_in: float, tokens_out: float) -> float:
    return price.cost_usd(tokens_in, tokens_out) if price else 0.0


def listed_price(litellm: ModuleType, model: str) -> Price | None:
    """The model's price in litellm's table; None where it has none."""
    info = _listed(litellm, model)
    if info is None:
        return None
    return Price(input=1e6 * (info["input_cost_per_token"] or 0), output=1e6 * (info["output_cost_per_token"] or 0))


def _listed(litellm: ModuleType, model: str) -> Mapping[str, Any] | None:
    """The model's row in litellm's table; None where it has none, as programs have."""
    return None if is_program(model) else known(lambda: litellm.get_model_info(model))


def _provider(litellm: ModuleType, model: str) -> str:
    """Litellm's name for the model's provider; empty where it knows none."""
    return known(lambda: str(litellm.get_llm_provider(model)[1])) or ""


def check_models(settings: LlmSettings) -> None:
    """Raise UserError for a program that is not there, a provider that litellm does not know, and a missing key."""
    for model in settings.asked:
        if is_program(model):
            program.check(model)
        else:
            _check_provider(litellm_module(), model, settings.api_base)


def check_reachable(settings: LlmSettings) -> None:
    """Raise UserError where `check_models` does, and for a server of one's own that is not there."""
    check_models(settings)
    if settings.asked and settings.api_base:
        asyncio.run(_check_server(settings.api_base))


def _check_provider(litellm: ModuleType, model: str, api_base: str | None) -> None:
    try:
        with translated():
            litellm.get_llm_provider(model)
            wanted = litellm.validate_environment(model)["missing_keys"]
    except CallFailed as failed:
        raise UserError(f"model {model}: {failed.fault.text}") from failed
    missing = [name for name in wanted if name.endswith("_API_KEY")]
    if missing and not api_base:  # a server of one's own may not want a key
        raise UserError(f"model {model}: set {' and '.join(missing)} in the environment")


async def _check_server(address: str) -> None:
    place = urlsplit(address)
    port = place.port or {"http": 80, "https": 443}[place.scheme]
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(place.hostname, port)
    except (OSError, TimeoutError) as error:
        raise UserError(f"llm.api_base {address}: no server answers there: {one_line(error)}") from error
    writer.close()


# --- models that are put aside ----------------------------------------------------------------------------------------


LONGEST_PAUSE_S = 600.0


class Breaker:
    """Whether one model may be asked. Lives in one event loop."""

    def __init__(self, pause_s: float) -> None:
        """`pause_s`: before the first trial of a model that was put aside; it doubles with each trial that fails."""
        self.out = False
        """Whether the model is put aside."""
        self.held: set[asyncio.Task[Any]] = set()
        """Tasks that wait for it."""
        self._first_pause_s = pause_s
        self._trying = False
        self._answered_at = float("-inf")
        self._out_since = float("-inf")
        self._retry_at = 0.0
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, when something changed for the tasks that wait."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until the model may be asked; True: as the one trial of a model that is put aside."""
        while self.out and (self._trying or time.monotonic() < self._retry_at):
            await self._wait()
        trial = self._trying = self.out
        try:
            yield trial
        finally:
            if trial:
                self._trying = False
                self._tell()

    def answered(self, began: float) -> bool:
        """The provider answered a call that began then (by this object's clock); whether that brought the model back.

        Calls that were under way when the model was put aside say nothing of now.
        """
        self._answered_at = time.monotonic()
        if not self.out or began < self._out_since:
            return False
        self.out = False
        self._tell()
        return True

    def silent_since(self, began: float) -> bool:
        """Whether no call was answered after this moment."""
        return self._answered_at < began

    def failed(self, began: float, at_least_s: float = 0.0) -> bool:
        """A call that began then could not be answered, nor would others; whether that is news.

        The next trial is made after a pause, `at_least_s` seconds if the provider asked for so much.
        """
        news = not self.out
        if not news and began < self._out_since:
            return False
        if news:
            self.out, self._out_since = True, time.monotonic()
            self.pause_s = self._first_pause_s
        else:
            self.pause_s *= 2
        self.pause_s = min(max(self.pause_s, at_least_s), LONGEST_PAUSE_S)
        self._retry_at = time.monotonic() + self.pause_s
        self._tell()
        return news

    async def _wait(self) -> None:
        changed = self._changed
        left = None if self._trying else self._retry_at - time.monotonic()
        task = asyncio.current_task()
        assert task
        self.held.add(task)
        try:
            async with asyncio.timeout(left):
                await changed.wait()
        except TimeoutError:
            pass
        finally:
            self.held.discard(task)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
