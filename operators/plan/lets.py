"""Named expressions: values that a plan gives names to, worked out once for each workload and setting."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from operators.expression import Expression, ExpressionError


class Environment(dict[str, int]):
    """Numbers by name; a name whose expression has no value here says why only when it is asked for.

    So a name that only some launches use may lack a value where these do not happen, as if its expression stood there.
    """

    def __init__(self, numbers: Mapping[str, int], failures: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(numbers)
        self.failures = failures
        """Names without a value, and why they have none."""

    def __missing__(self, name: str) -> int:
        if name in self.failures:
            raise ExpressionError(self.failures[name])
        raise KeyError(name)

    def having(self, name: str, value: int) -> Environment:
        """The same with one more number."""
        made = Environment(self, self.failures)
        made[name] = value
        return made


def with_lets(numbers: Mapping[str, int], lets: Mapping[str, Expression]) -> Environment:
    """The numbers with the values of all named expressions, which stand in an order that `in_order` gives."""
    failures: dict[str, str] = {}
    env = Environment(numbers, failures)
    for name, expression in lets.items():
        try:
            env[name] = expression.evaluate(env)
        except ExpressionError as error:
            told = str(error)
            failures[name] = told if told.startswith("[let] ") else f"[let] `{name}`: {told}"
    return env


def in_order(lets: Mapping[str, Expression]) -> tuple[dict[str, Expression], tuple[str, ...]]:
    """The named expressions, each behind those that it uses; and a cycle of names where there is one, else nothing."""
    ordered: dict[str, Expression] = {}
    for name in lets:
        if cycle := _visit(name, lets, ordered):
            return {}, cycle
    return ordered, ()


def _visit(begin: str, lets: Mapping[str, Expression], ordered: dict[str, Expression]) -> tuple[str, ...]:
    """Put what `begin` uses, and then itself, behind what is `ordered`; the names of a cycle, if there is one."""
    path: dict[str, Iterator[str]] = {begin: _used(begin, lets)} if begin not in ordered else {}
    while path:
        name, left = next(reversed(path.items()))
        following = next(left, None)
        if following is None:
            ordered[name] = lets[name]
            del path[name]
        elif following in path:
            names = list(path)
            return tuple(names[names.index(following) :])
        elif following not in ordered:
            path[following] = _used(following, lets)
    return ()


def _used(name: str, lets: Mapping[str, Expression]) -> Iterator[str]:
    return iter(sorted(lets[name].names & lets.keys()))


def closure(names: Collection[str], lets: Mapping[str, Expression]) -> frozenset[str]:
    """All names that a value of these rests on, those behind named expressions among them; lets must be in order."""
    found = set(names)
    for name in reversed(list(lets)):
        if name in found:
            found |= lets[name].names
    return frozenset(found)
