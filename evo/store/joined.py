"""The relations of several runs on one connection: theirs, and views that have the rows of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from evo.store.schema import VERSION_TABLE

LABELS = ("run", "arm", "seed")
"""Columns that every relation has first."""
MERGED = "merged_runs"
"""The table that makes a file one that holds several runs, each in a schema of its own."""
MAIN = "main"


@dataclass(frozen=True)
class Attached:
    """One run on a connection."""

    place: str
    """What its relations' names begin with in SQL, but for the dot."""
    schema: str
    run: str
    arm: str | None
    seed: int | None
    origin: Path
    """Its folder, or the file that holds it."""
    run_id: str | None = None
    """None where it was stopped before it began."""
    began_s: float | None = None
    """By `time.time`."""

    def columns(self) -> str:
        """What every relation has first, as SQL."""
        seed = "NULL" if self.seed is None else str(int(self.seed))
        return f"{literal(self.run)}::VARCHAR AS run, {literal(self.arm)}::VARCHAR AS arm, {seed}::BIGINT AS seed"


def literal(value: str | None) -> str:
    """A literal of SQL; whatever a folder is called, it is no more than that."""
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name in SQL, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


def labelled(connection: duckdb.DuckDBPyConnection, database: str, name: str, runs: Sequence[Attached]) -> list[str]:
    """By run, the query for a relation's rows with the labels before them; the first run's is in `database`."""
    own = connection.execute(
        "SELECT list(column_name) FROM duckdb_columns() WHERE database_name = ? AND schema_name = ? AND table_name = ?",
        [database, runs[0].schema, name],
    ).fetchall()[0][0]
    hidden = [label for label in LABELS if label in own]
    star = f"* EXCLUDE ({', '.join(hidden)})" if hidden else "*"
    return [f"SELECT {run.columns()}, {star} FROM {run.place}.{name}" for run in runs]


def join_runs(connection: duckdb.DuckDBPyConnection, own: str) -> None:
    """Make the relations of the main schema: views over those of all runs."""
    rows = connection.execute(f"SELECT run, arm, seed, origin FROM {MERGED} ORDER BY rowid").fetchall()
    runs = [Attached(identifier(run), run, run, arm, seed, Path(origin)) for run, arm, seed, origin in rows]
    names = connection.execute(
        """
        SELECT table_name FROM duckdb_tables() WHERE database_name = $own AND schema_name = $run
        UNION ALL
        SELECT view_name FROM duckdb_views() WHERE database_name = $own AND schema_name = $run AND NOT internal
        """,
        {"own": own, "run": runs[0].schema},
    ).fetchall()
    for (name,) in names:
        if name != VERSION_TABLE:
            parts = labelled(connection, own, name, runs)
            connection.execute(f"CREATE OR REPLACE VIEW {MAIN}.{name} AS {' UNION ALL BY NAME '.join(parts)}")
