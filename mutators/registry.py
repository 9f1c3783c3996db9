"""The mutators there are, by name. Each is imported when it is first asked for, with the libraries it needs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import cast

from mutators.base import Client, Earlier, Kind, LlmMutator, Mutator, Parent, Proposal, Request
from operators.errors import UserError
from operators.extension import named_class
from operators.spec import Operator

MUTATORS: dict[str, str] = {
    "ancestor": "mutators.ancestor:Ancestor",
    "crossover": "mutators.crossover:Crossover",
    "guest": "mutators.guest:Guest",
    "recombine": "mutators.recombine:Recombine",
    "refine": "mutators.refine:Refine",
    "repair": "mutators.repair:Repair",
    "rewrite": "mutators.rewrite:Rewrite",
    "say": "mutators.say:Say",
    "transform": "mutators.transform:Transform",
    "tune": "mutators.tune:Tune",
}
"""Name and `module:Class`; classes are made without arguments. A user's own are named as `module:Class`."""


@lru_cache
def mutator(name: str) -> Mutator | LlmMutator:
    """Return the mutator called `name`. It raises UserError with the names there are."""
    made: Mutator | LlmMutator = named_class("mutator", name, MUTATORS)()
    return made


def asks_model(request: Request) -> bool:
    """Return whether a request waits for a language model. It raises UserError for mutators there are not."""
    return request.kind is not Kind.PROFILE and iscoroutinefunction(mutator(request.mutator).propose)


async def propose(
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    *,
    threads: Executor | None = None,
    client: Client | None = None,
    earlier: tuple[Earlier, ...] = (),
) -> Proposal:
    """Return the answer of the request's mutator.

    A language model is waited for, with `earlier` for what the request names; everything else is worked out in
    `threads`. It raises UserError where the mutator needs a model and there is none, and what the client raises.
    """
    maker = mutator(request.mutator)
    if not asks_model(request):
        plain = cast(Mutator, maker)
        return await asyncio.get_running_loop().run_in_executor(threads, plain.propose, request, parents, operator)
    if client is None:
        raise UserError(f"the mutator {request.mutator} asks a language model; name one, such as openai/gpt-5")
    return await cast(LlmMutator, maker).propose(request, parents, operator, client, earlier)
