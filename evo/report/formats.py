"""Answers to queries as people and programs want them: a table, CSV, JSON or Parquet, shown or written to a file."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.report.output import as_json, plain, raw
from operators.errors import UserError, unknown

if TYPE_CHECKING:
    import pyarrow as pa

TABLE, PARQUET = "table", "parquet"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, in types of Python. It raises UserError for values that these do not hold."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError):  # times before the year 1, intervals of ten million years
            raise UserError(f"column {name} holds values that cannot be shown; write {name}::VARCHAR") from None
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def csv_text(table: pa.Table) -> str:
    """A header and a line a row, quoted as in RFC 4180.

    NULL is empty, lists and structures are JSON, times ISO 8601, bytes hexadecimal.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in rows_of(table):
        writer.writerow(map(_csv_cell, row.values()))
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(plain(value), ensure_ascii=False)
    return "" if value is None else plain(value)


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file, compressed with zstd."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def table_text(table: pa.Table) -> str:
    """A table for people, as wide as it needs."""
    from evo.report.terminal import rows_table, unfolded

    return unfolded(rows_table(table.column_names, rows_of(table)))


TEXTS: Mapping[str, Callable[[pa.Table], str]] = {
    TABLE: table_text,
    "csv": csv_text,
    "json": lambda table: as_json(rows_of(table)) + "\n",
}
FORMATS = (*TEXTS, PARQUET)


def format_of(name: str, out: Path | None) -> str:
    """The format that is asked for by name, else by the ending of the file. It raises UserError."""
    if name and name not in FORMATS:
        raise UserError(f"--format: {unknown('format', name, FORMATS)}")
    ending = out.suffix.removeprefix(".") if out else ""
    return name or (ending if ending in FORMATS else TABLE)


def show(table: pa.Table, form: str) -> None:
    """It writes an answer to standard output. It raises UserError for Parquet on a terminal."""
    if form == PARQUET:
        stream = raw(sys.stdout)
        if stream.isatty():
            raise UserError("--format parquet is nothing for a terminal: say --out FILE, or redirect it")
        stream.buffer.write(parquet_bytes(table))
        stream.flush()
    elif form == TABLE:
        from evo.report.terminal import rows_table
        from evo.report.terminal import show as show_table

        show_table(rows_table(table.column_names, rows_of(table)))
    else:
        print(TEXTS[form](table), end="")


def write(table: pa.Table, form: str, out: Path, *, replace: bool) -> None:
    """It writes an answer to a file, which must be new unless it may `replace` one. It raises UserError."""
    content = parquet_bytes(table) if form == PARQUET else TEXTS[form](table).encode("utf-8", "surrogatepass")
    try:
        with out.open("wb" if replace else "xb") as file:
            file.write(content)
    except FileExistsError:
        raise UserError(f"--out {out}: exists already; name another file, or say --force") from None
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from None


def pairs(texts: list[str]) -> Iterator[tuple[str, str]]:
    """Texts of `--param`, NAME=VALUE each. It raises UserError."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--param {text}: write NAME=VALUE, such as --param operator=softmax")
        yield name.strip(), value
