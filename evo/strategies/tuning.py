"""What a strategy's requests for settings of tunables are told: what proved best elsewhere, and what is under way."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from evo.individual import Individual
from evo.strategies.base import StrategyContext
from mutators.base import Request
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

FILES = 500
"""Files whose best settings are remembered, the latest."""
SIBLINGS = 2
"""Similar files whose best settings a request names."""


@dataclass
class _File:
    """One source file with tunables."""

    tune: Mapping[str, tuple[int, ...]]
    best: float | None = None
    """The log speedup of its best setting."""
    values: Mapping[str, int] = field(default_factory=dict)
    """That setting, those that are the default included."""
    under_way: dict[int, int] = field(default_factory=dict)
    """Seeds of the requests for its settings that are not told yet, by number."""

    @property
    def defaults(self) -> dict[str, int]:
        """What the file's author would set."""
        return {name: values[0] for name, values in self.tune.items()}


class Tuning:
    """Knows the files of one task that declare tunables."""

    def __init__(self, context: StrategyContext) -> None:
        self._context = context
        self._files: OrderedDict[str, _File] = OrderedDict()
        """By source id, those that were asked for or told of."""
        self._read = lru_cache(FILES)(self._parsed)
        self._asked: dict[int, _File] = {}
        """By the number of a request for a setting that is not told yet."""
        self.left = math.inf if context.trials is None else context.trials
        """Settings that may still be taken."""

    def take(self, count: int) -> int:
        """Take as many settings of `count` as are left to be asked for; return how many that is."""
        taken = int(min(count, self.left))
        self.left -= taken
        return taken

    def tunable(self, kernel: Kernel) -> bool:
        """Whether the kernel's file declares anything to choose."""
        return self._file(kernel) is not None

    def params(self, kernel: Kernel) -> dict[str, Any]:
        """Return what a request for a setting of this kernel's file is told besides its trials."""
        file = self._file(kernel)
        if file is None:
            return {}
        told: dict[str, Any] = {"siblings": self._siblings(file), "under_way": list(file.under_way.values())}
        return {name: value for name, value in told.items() if value}

    def asked(self, request: Request, kernel: Kernel) -> None:
        """Take note of a request for a setting of this kernel's file."""
        if file := self._kept(kernel):
            file.under_way[request.number] = request.seed
            self._asked[request.number] = file

    def told(self, individual: Individual) -> None:
        """Learn what became of a request, whatever it asked for."""
        request, kernel, evaluation = individual.request, individual.kernel, individual.evaluation
        if asked := self._asked.pop(request.number, None):
            del asked.under_way[request.number]
        if kernel is None or evaluation is None or evaluation.estimate is None:
            return
        file = self._kept(kernel)
        if file and (file.best is None or evaluation.estimate > file.best):
            file.best, file.values = evaluation.estimate, {**file.defaults, **kernel.values}

    def _siblings(self, file: _File) -> list[dict[str, int]]:
        """What was best in the files that share most values with this one, of faster files first among equals."""
        found: list[tuple[int, float, dict[str, int]]] = []
        for other in self._files.values():
            if other and other.best is not None and other is not file:
                values = {name: value for name, value in other.values.items() if value in file.tune.get(name, ())}
                if not values.items() <= file.defaults.items():
                    found.append((-len(values), -other.best, values))
        found.sort(key=lambda entry: entry[:2])
        distinct = {tuple(sorted(values.items())): values for *_, values in found}
        return list(distinct.values())[:SIBLINGS]

    def _kept(self, kernel: Kernel) -> _File | None:
        """The kernel's file as the latest of those that are remembered."""
        file = self._file(kernel)
        if file:
            self._files[kernel.source_id] = file
            self._files.move_to_end(kernel.source_id)
            if len(self._files) > FILES:
                self._files.popitem(last=False)
        return file

    def _file(self, kernel: Kernel) -> _File | None:
        """What is known of the kernel's file; None: it has nothing to choose. To look changes nothing."""
        if known := self._files.get(kernel.source_id):
            return known
        tune = self._read(kernel.source, kernel.target)
        return _File(tune) if any(len(values) > 1 for values in tune.values()) else None

    def _parsed(self, source: str, target: str) -> Mapping[str, tuple[int, ...]]:
        try:
            plan = parse_plan(source, self._context.operator, target)
        except PlanError:
            return {}
        return plan.for_dtype(self._context.task.dtype).tune
