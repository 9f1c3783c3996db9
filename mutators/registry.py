"""The mutators there are, by name. Each is imported when it is first asked for, with the libraries it needs."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from mutators.base import Client, Earlier, Kind, LlmMutator, Mutator, Parent, Proposal, Request
from mutators.bench import Bench
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.extension import named_class

MUTATORS: dict[str, str] = {
    "agent": "mutators.asking.agent:Agent",
    "ancestor": "mutators.given:AncestorFile",
    "carry": "mutators.given:Carry",
    "crossover": "mutators.asking.mutators:Crossover",
    "guest": "mutators.given:Guest",
    "port": "mutators.asking.mutators:Port",
    "recombine": "mutators.recombine:Recombine",
    "refine": "mutators.asking.mutators:Refine",
    "repair": "mutators.asking.mutators:Repair",
    "rewrite": "mutators.asking.mutators:Rewrite",
    "route": "mutators.routes:Route",
    "say": "mutators.asking.say:Say",
    "transform": "mutators.transforms.mutator:Transform",
    "tune": "mutators.tuning.tune:Tune",
}
"""Name and `module:Class`; classes are made without arguments. A user's own are named as `module:Class`."""


@lru_cache
def mutator(name: str) -> Mutator | LlmMutator:
    """Return the mutator called `name`. It raises UserError with the names there are."""
    made: Mutator | LlmMutator = named_class("mutator", name, MUTATORS)()
    return made


def asks_model(request: Request) -> bool:
    """Return whether a request waits for a language model. It raises UserError for mutators there are not."""
    return request.kind is not Kind.PROFILE and _declared(request.mutator, "asks_model")


def uses_bench(name: str) -> bool:
    """Return whether the mutator called `name` tries drafts out on a bench."""
    return _declared(name, "uses_bench")


def needs_bench(name: str) -> bool:
    """Return whether the mutator called `name` works on a bench, and can do nothing without."""
    return _declared(name, "needs_bench")


def is_quick(request: Request) -> bool:
    """Return whether a request whose mutator asks no model takes less time than to hand it to another process."""
    return _declared(request.mutator, "is_quick")


def _declared(name: str, what: str) -> bool:
    return bool(getattr(mutator(name), what, False))


def worked_out(request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
    """Return the answer of a mutator that asks no model."""
    return cast(Mutator, mutator(request.mutator)).propose(request, parents, operator)


async def propose(
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    *,
    client: Client | None = None,
    earlier: tuple[Earlier, ...] = (),
    bench: Bench | None = None,
) -> Proposal:
    """Return the answer of the request's mutator.

    A language model is waited for, with `earlier` for what the request names and a `bench` for its drafts. It raises
    UserError where the mutator needs a model and there is none, and what the client raises.
    """
    maker = mutator(request.mutator)
    if not asks_model(request):
        return worked_out(request, parents, operator)
    if client is None:
        raise UserError(f"the mutator {request.mutator} asks a language model; name one, such as openai/gpt-5")
    extra = {"bench": bench} if bench and uses_bench(request.mutator) else {}
    return await cast(LlmMutator, maker).propose(request, parents, operator, client, earlier, **extra)
