"""Answers of queries as data frames of pandas or polars, which are no dependencies."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fitness.packages import pip
from operators.errors import UserError, unknown

Form = Literal["arrow", "pandas", "polars"]
FORMS = ("arrow", "pandas", "polars")
DAY_NS = 24 * 3600 * 10**9


def check_form(to: str) -> None:
    """It raises UserError for a form that there is not, or whose library is not installed."""
    if to not in FORMS:
        raise UserError(f"to: {unknown('form', to, FORMS)}")
    if to != "arrow" and find_spec(to) is None:
        raise UserError(f"to={to!r} needs the package {to}: {pip('install', to)}")


def as_form(table: pa.Table, to: str) -> Any:
    """Return the table as it is, or a data frame of its `counted` columns. It raises UserError."""
    if to == "arrow":
        return table
    table = counted(table)
    if to == "pandas":
        return table.to_pandas()
    import polars

    return polars.from_arrow(table)


def counted(table: pa.Table) -> pa.Table:
    """Return a table whose numbers and times data frames can count with.

    A sum of integers, which DuckDB makes a HUGEINT and Arrow a decimal, becomes int64 where that holds it, any other
    decimal float64; a difference of times, an interval, becomes a duration. It raises UserError for an interval of
    months, which has no length, and for one of more nanoseconds than durations hold, 292 years.
    """
    columns = [_column(name, table.column(i)) for i, name in enumerate(table.column_names)]
    return pa.table(columns, names=table.column_names) if columns else table


def _column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type):
        if column.type.scale == 0:
            try:
                return pc.cast(column, pa.int64())
            except pa.ArrowInvalid:  # it does not fit
                pass
        return pc.cast(column, pa.float64())
    if column.type == pa.month_day_nano_interval():
        values = [None if value is None else _nanoseconds(name, value) for value in column.to_pylist()]
        try:
            return pa.chunked_array([pa.array(values, pa.duration("ns"))])
        except OverflowError:
            raise UserError(f"column {name} holds intervals of more than 292 years; count days instead") from None
    return column


def _nanoseconds(name: str, interval: pa.MonthDayNano) -> int:
    months, days, nanoseconds = interval
    if months:
        raise UserError(f"column {name} holds intervals of months, which have no length; count days instead")
    return int(days * DAY_NS + nanoseconds)
