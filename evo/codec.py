"""Between frozen dataclasses and rows of tables whose columns are called as their fields: one rule for both ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Row = dict[str, Any]


def compact(value: Any) -> str:
    """Return canonical JSON. It raises TypeError for what has no place in it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as the store keeps them."""
    return datetime.fromtimestamp(seconds, UTC)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a row")


def _as_is(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True)
class Column:
    """How one field of a dataclass is kept; by default as it is, under its own name."""

    name: str
    """In the table."""
    encode: Callable[[Any], Any] = _as_is
    decode: Callable[[Any], Any] = lambda value: value


class Codec(Generic[Item]):
    """Rows of one dataclass. Fields that `but` names are kept elsewhere; those of `special` in columns of their own."""

    def __init__(self, kind: type[Item], *, but: tuple[str, ...] = (), **special: Column) -> None:
        self._kind = kind
        named = [field.name for field in fields(kind) if field.name not in but]  # type: ignore[arg-type]
        self._columns = {name: special.get(name, Column(name)) for name in named}

    def row(self, item: Item) -> Row:
        """Return the item's columns."""
        return {column.name: column.encode(getattr(item, name)) for name, column in self._columns.items()}

    def item(self, row: Mapping[str, Any], **others: Any) -> Item:
        """Return the item of a row, with `others` for the fields that rows of this table do not hold."""
        decoded = {name: column.decode(row[column.name]) for name, column in self._columns.items()}
        return self._kind(**decoded, **others)
