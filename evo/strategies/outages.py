"""Which language models a strategy had better not ask at present, by what it was told."""

from __future__ import annotations

from collections import Counter

from evo.individual import Individual
from mutators.base import Request


class Outages:
    """Models that were told to be unavailable, each until a request that was made after that comes to anything else.

    Of such a model one request at a time is worth making: its client keeps it until the model is to be tried again.
    """

    def __init__(self) -> None:
        self._out: dict[str, int] = {}
        """By model, the last request that was made before that was known."""
        self._open: Counter[str] = Counter()
        self._last = -1

    def asked(self, request: Request) -> None:
        """A request was made."""
        self._last = request.number
        if model := request.model:
            self._open[model] += 1

    def told(self, individual: Individual) -> None:
        """And this became of it."""
        request = individual.request
        if not (model := request.model):
            return
        self._open[model] -= 1
        if individual.unavailable and individual.kernel is None:
            self._out[model] = self._last
        elif request.number > self._out.get(model, self._last):
            del self._out[model]

    def out(self, model: str) -> bool:
        return model in self._out

    def askable(self, model: str) -> bool:
        """Whether a request for this model is worth making."""
        return model not in self._out or not self._open[model]
