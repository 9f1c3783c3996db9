"""The mutators there are, by name. Each is imported when it is first asked for, with the libraries it needs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import cast

from mutators.base import Client, LlmMutator, Mutator, Parent, Proposal, Request
from operators.errors import UserError
from operators.expression import unknown_name
from operators.spec import Operator

MUTATORS: dict[str, str] = {
    "ancestor": "mutators.ancestor:Ancestor",
    "crossover": "mutators.crossover:Crossover",
    "recombine": "mutators.recombine:Recombine",
    "repair": "mutators.repair:Repair",
    "rewrite": "mutators.rewrite:Rewrite",
    "transform": "mutators.transform:Transform",
    "tune": "mutators.tune:Tune",
}
"""Name and `module:Class`; classes are made without arguments."""


@lru_cache
def mutator(name: str) -> Mutator | LlmMutator:
    """The mutator called `name`. Raises UserError with the names there are."""
    if name not in MUTATORS:
        raise UserError(unknown_name(name, MUTATORS).replace("name", "mutator", 1))
    module, _, attribute = MUTATORS[name].partition(":")
    made: Mutator | LlmMutator = getattr(import_module(module), attribute)()
    return made


def asks_model(name: str) -> bool:
    """Whether this mutator waits for a language model. Raises UserError for names there are not."""
    return iscoroutinefunction(mutator(name).propose)


async def propose(
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    *,
    threads: Executor | None = None,
    client: Client | None = None,
) -> Proposal:
    """The answer of the request's mutator: language models are waited for, everything else is worked out in `threads`.

    Raises UserError where the mutator needs a model and there is none, and UserError and OutOfBudget where the client
    does.
    """
    maker = mutator(request.mutator)
    if not asks_model(request.mutator):
        plain = cast(Mutator, maker)
        return await asyncio.get_running_loop().run_in_executor(threads, plain.propose, request, parents, operator)
    if client is None:
        raise UserError(f"the mutator {request.mutator} asks a language model; name one, such as openai/gpt-5")
    return await cast(LlmMutator, maker).propose(request, parents, operator, client)
