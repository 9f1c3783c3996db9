"""The store's one error, and DuckDB's errors as one line."""

from __future__ import annotations

from operators.errors import UserError


class StoreError(UserError):
    """The run's database cannot be opened, cannot take these rows or cannot answer this query."""


def one_line(error: Exception) -> str:
    """DuckDB's message without its kind, its excerpt of the query and its pointers; its hints are kept."""
    head = str(error).partition("\n\n")[0].partition("See also")[0]
    kind, colon, text = head.partition(" Error: ")
    return " ".join((text if colon and "\n" not in kind else head).split())
