"""A kernel: one source file with its plan, and values for the tunables that the plan declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from operators.identity import digest


@dataclass(frozen=True)
class Kernel:
    """One implementation of an operator.

    It is not bound to a dtype: the same source serves every dtype of the operator. Building one never fails; whether
    the source is any good is for `operators.plan.reading.parse_plan` and the fitness stages to say.
    """

    operator: str
    target: str
    source: str
    """The file as it stands, plan included."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Tunables whose value differs from their default, or all of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(sorted(self.values.items()))))

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type[Kernel], tuple[str, str, str, dict[str, int]]]:
        return Kernel, (self.operator, self.target, self.source, dict(self.values))

    @cached_property
    def id(self) -> str:
        """Digest over operator, target, source and tunable values."""
        pairs = [field for pair in self.values.items() for field in pair]
        return digest("kernel", self.operator, self.target, self.source, len(self.values), *pairs)

    @cached_property
    def source_id(self) -> str:
        """Digest over operator, target and source: what all settings of one file's tunables share."""
        return digest("source", self.operator, self.target, self.source)

    def with_values(self, values: Mapping[str, int]) -> Kernel:
        """The same file with other tunable values."""
        return Kernel(self.operator, self.target, self.source, values)
