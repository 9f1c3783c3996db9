"""Constraints between tunables: what a setting must fulfil before anything is built for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from operators.expression import Expression, ExpressionError
from operators.plan.lets import closure, with_lets


@dataclass(frozen=True)
class Constraint:
    """One condition of `where`, over tunables, sizes of types and facts of the device. `constraint` makes it."""

    expression: Expression
    names: frozenset[str]
    """All that its value rests on, named expressions resolved."""
    lets: Mapping[str, Expression] = field(default_factory=lambda: MappingProxyType({}))
    """The named expressions that it uses, each behind those that it uses."""
    line: int | None = field(default=None, compare=False)

    def breach(self, numbers: Mapping[str, int]) -> str:
        """How these numbers break it; empty where they do not, or are not all that it rests on."""
        if not self.names <= numbers.keys():
            return ""
        try:
            if self.expression.evaluate(with_lets(numbers, self.lets)):
                return ""
        except ExpressionError as error:
            return f"`where`: {error}"
        known = ", ".join(f"{name} = {numbers[name]}" for name in sorted(self.names))
        return f"`where`: `{self.expression.text}` does not hold with {known}"


def constraint(expression: Expression, lets: Mapping[str, Expression], line: int | None) -> Constraint:
    """The constraint that an expression states; `lets` are all named expressions of its plan, in order."""
    every = closure(expression.names, lets)
    used = MappingProxyType({name: let for name, let in lets.items() if name in every})
    return Constraint(expression, every - used.keys(), used, line)
