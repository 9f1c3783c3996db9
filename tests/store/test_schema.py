"""Tables, and the format that they have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evo.store import Store, StoreError, query, schema
from evo.store.export import merge
from tests.store.rows import START_S, event, run

DOCUMENTED = {
    "runs", "kernels", "asks", "parents", "proposals", "llm_calls", "llm_sent", "evaluations", "tells", "timings",
    "errors", "profiles", "metrics", "trials", "library_timings", "events",
    "tool_calls", "fits", "migrations",
}  # fmt: skip


def in_memory() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    schema.make(connection)
    return connection


def test_every_table_and_view_is_there_and_says_what_it_is_for() -> None:
    with in_memory() as connection:
        assert set(schema.tables(connection)) == DOCUMENTED
        comments = connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() UNION ALL"
            " SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        assert [name for name, comment in comments if not comment] == ["schema_version"]
        views = {"best", "lineage", "elites", "progress", "mutator_gain", "model_gain", "cost", "failures"}
        assert views <= {name for name, _ in comments}


def test_there_are_no_indexes() -> None:
    with in_memory() as connection:
        assert connection.execute("SELECT * FROM duckdb_indexes()").fetchall() == []
        kinds = {k for (k,) in connection.execute("SELECT constraint_type FROM duckdb_constraints()").fetchall()}
        assert kinds <= {"NOT NULL", "CHECK"}


def test_no_column_needs_quotes() -> None:
    with in_memory() as connection:
        for table in schema.tables(connection).values():
            connection.execute(f"SELECT {', '.join(table.schema.names)} FROM {table.name}")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"knd": "x"}, "table events: unknown column `knd`; did you mean `kind`?"),
        ({"kind": None}, "table events: a row lacks kind"),
        ({"kind": 3}, "table events: kind (string)"),
        ({"kind": "\ud800"}, "table events: kind (string)"),
        ({"created_at": "today"}, "table events: created_at"),
    ],
)
def test_what_a_table_does_not_take_is_said_in_one_line(row: dict[str, Any], complaint: str) -> None:
    with in_memory() as connection:
        table = schema.tables(connection)["events"]
        with pytest.raises(StoreError) as caught:
            table.batch([event("ok"), event("x") | row])
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)


def test_a_float_never_loses_its_fraction_in_a_whole_number_column() -> None:
    with in_memory() as connection, pytest.raises(StoreError, match="seed takes whole numbers"):
        schema.tables(connection)["runs"].batch([run() | {"seed": 7.9}])


def test_times_may_be_seconds_or_datetimes_of_any_zone() -> None:
    moment = datetime.fromtimestamp(START_S, UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=9)))
    with in_memory() as connection:
        batch = schema.tables(connection)["events"].batch([event("x", at=at) for at in (START_S, moment, elsewhere)])  # type: ignore[arg-type]
    assert [t.timestamp() for t in batch.column("created_at").to_pylist()] == [START_S] * 3


@pytest.mark.parametrize("found", [16, 99])
def test_a_run_of_another_format_is_refused_by_whoever_opens_it(found: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store(folder, create=True).close()
    with duckdb.connect(folder / "evo.duckdb") as connection:
        connection.execute("UPDATE schema_version SET version = ?", [found])
    complaint = rf"has format {found}, and this kernel-evo reads and writes format {schema.FORMAT} alone"
    with pytest.raises(StoreError, match=complaint):
        Store(folder, create=False)
    with pytest.raises(StoreError, match=complaint):
        query(folder, "FROM runs")
    with pytest.raises(StoreError, match=complaint):
        merge([folder], tmp_path / "merged.duckdb")
