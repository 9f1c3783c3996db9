"""The mutators there are, by name. Each is imported when it is first asked for, with the libraries it needs."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from mutators.base import Mutator
from operators.errors import UserError
from operators.expression import unknown_name

MUTATORS: dict[str, str] = {
    "ancestor": "mutators.ancestor:Ancestor",
    "transform": "mutators.transform:Transform",
    "tune": "mutators.tune:Tune",
}
"""Name and `module:Class`; classes are made without arguments."""


@lru_cache
def mutator(name: str) -> Mutator:
    """The mutator called `name`. Raises UserError with the names there are."""
    if name not in MUTATORS:
        raise UserError(unknown_name(name, MUTATORS).replace("name", "mutator", 1))
    module, _, attribute = MUTATORS[name].partition(":")
    made: Mutator = getattr(import_module(module), attribute)()
    return made
