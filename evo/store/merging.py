"""Several runs in one file, each whole and by itself: a schema a run, with tables and views as in a run's own file.

Ids are those of their runs, so that the same id of two places stays two; relations of the main schema have the rows of
all runs, and say of which run each is. The table `merged_runs` says where they came from.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from evo.store.attaching import attach
from evo.store.errors import StoreError
from evo.store.joined import MAIN, MERGED, Attached, identifier, join_runs
from evo.store.schema import make, note_format, tables
from evo.store.writing import new_database
from evo.version import engine_version

PROVENANCE = f"""
    CREATE TABLE {MAIN}.{MERGED} (
        run            VARCHAR NOT NULL,
        run_id         VARCHAR NOT NULL,
        arm            VARCHAR,
        seed           BIGINT,
        began_at       TIMESTAMPTZ NOT NULL,
        engine_version VARCHAR NOT NULL,
        host_json      VARCHAR NOT NULL,
        origin         VARCHAR NOT NULL,
        merged_on      VARCHAR NOT NULL,
        merged_by      VARCHAR NOT NULL,
        merged_at      TIMESTAMPTZ NOT NULL
    );
    COMMENT ON TABLE {MAIN}.{MERGED} IS '{{about}}';
"""
ABOUT = (
    "The runs in this file. run: its schema, and what the column run of other relations says. run_id, began_at,"
    " engine_version, host_json: as the run itself has them. origin: the folder or file that it was read from, on the"
    " machine merged_on, by the kernel-evo merged_by."
)


def merge(sources: Sequence[Path], out: Path) -> list[Attached]:
    """It writes the runs of `sources`, folders or files that hold some, into the new file `out`, and returns them.

    It raises StoreError for what cannot be merged: what is no run, one that has not begun, and one that is there twice.
    """
    with new_database(out) as connection:
        ((own,),) = connection.execute("SELECT current_database()").fetchall()
        held = [run for place, source in enumerate(sources) for run in attach(connection, f"s{place}", source)]
        runs = _named_apart(_distinct(held))
        connection.execute(PROVENANCE.format(about=ABOUT))
        for run in runs:
            connection.execute(f"CREATE SCHEMA {identifier(run.run)}; USE {identifier(own)}.{identifier(run.run)}")
            make(connection)
            _take(connection, run)
        connection.execute(f"USE {identifier(own)}.{MAIN}")
        _note_origins(connection, runs)
        join_runs(connection, own)
        for place in range(len(sources)):
            connection.execute(f"DETACH s{place}")
    return runs


def _distinct(runs: Sequence[Attached]) -> Sequence[Attached]:
    """They, of which each must have begun, and be there once."""
    seen: dict[tuple[object, ...], Attached] = {}
    for run in runs:
        if run.run_id is None:
            raise StoreError(f"{run.origin}: the run was stopped before it began, and holds nothing to merge")
        key = (run.run_id, run.began_s, run.seed)
        if key in seen:
            raise StoreError(f"{seen[key].origin} and {run.origin} are the same run, {run.run_id}: name one of them")
        seen[key] = run
    return runs


def _named_apart(runs: Sequence[Attached]) -> list[Attached]:
    """Every run gets a name of its own; those whose folders are called the same have a number behind it."""
    taken = {MAIN, "information_schema", "pg_catalog", "temp"}
    named = []
    for run in runs:
        name, number = run.run, 1
        while name.lower() in taken:
            number += 1
            name = f"{run.run}-{number}"
        taken.add(name.lower())
        named.append(replace(run, run=name))
    return named


def _take(connection: duckdb.DuckDBPyConnection, run: Attached) -> None:
    """Copy a run's rows, in their order, into the tables of the current schema."""
    for name in tables(connection):
        connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM {run.place}.{name}")


def _note_origins(connection: duckdb.DuckDBPyConnection, runs: Iterable[Attached]) -> None:
    now = datetime.now(UTC)
    for run in runs:
        connection.execute(
            f"INSERT INTO {MERGED} SELECT $run, run_id, $arm, $seed, created_at, engine_version, host_json, $origin,"
            f" $on, $by, $now FROM {run.place}.runs LIMIT 1",
            {
                "run": run.run, "arm": run.arm, "seed": run.seed, "origin": str(run.origin.absolute()),
                "on": platform.node(), "by": engine_version(), "now": now,
            },
        )  # fmt: skip
    note_format(connection)
