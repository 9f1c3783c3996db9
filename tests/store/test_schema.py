"""Tables and migrations."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evo.store import Store, StoreError, query, schema
from tests.store.rows import START_S, event, run

DOCUMENTED = {
    "runs", "kernels", "asks", "parents", "proposals", "llm_calls", "llm_sent", "evaluations", "tells", "timings",
    "errors", "profiles", "metrics", "trials", "baselines", "library_timings", "events",
    "tool_calls",
}  # fmt: skip


def in_memory() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    schema.migrate(connection)
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


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder)
    monkeypatch.setattr(schema, "MIGRATIONS", folder)
    return folder


def test_an_older_run_is_brought_to_the_newest_schema(tmp_path: Path, migrations: Path) -> None:
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"events": [event("before")]}).result()
    there = len(list(migrations.iterdir()))
    (migrations / f"{there + 1:04}_notes.sql").write_text(
        "CREATE TABLE notes (text VARCHAR NOT NULL); ALTER TABLE events ADD COLUMN severity INTEGER;"
    )
    with Store(tmp_path / "run", create=False) as store:
        store.commit({"notes": [{"text": "new"}], "events": [event("after") | {"severity": 2}]}).result()
    with Store(tmp_path / "run", create=False) as store:
        events = store.rows("SELECT kind, severity FROM events").to_pylist()
        versions = store.rows("SELECT version FROM schema_version ORDER BY 1").column("version").to_pylist()
    assert events == [{"kind": "before", "severity": None}, {"kind": "after", "severity": 2}]
    assert versions == list(range(1, there + 2))


def test_a_failed_migration_leaves_the_run_as_it_was(tmp_path: Path, migrations: Path) -> None:
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"events": [event("kept")]}).result()
    broken = migrations / f"{len(list(migrations.iterdir())) + 1:04}_broken.sql"
    broken.write_text("CREATE TABLE notes (text VARCHAR); ALTER TABLE nowhere ADD COLUMN x INTEGER;")
    with pytest.raises(duckdb.CatalogException):
        Store(tmp_path / "run", create=False)
    broken.unlink()
    with Store(tmp_path / "run", create=False) as store:
        assert store.rows("SELECT kind FROM events").to_pylist() == [{"kind": "kept"}]
        with pytest.raises(StoreError, match="unknown table `notes`"):
            store.commit({"notes": []})


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path, migrations: Path) -> None:
    there = len(list(migrations.iterdir()))
    more = migrations / f"{there + 1:04}_more.sql"
    more.write_text("CREATE TABLE more (x INTEGER);")
    Store(tmp_path / "run", create=True).close()
    more.unlink()
    with pytest.raises(StoreError, match=rf"newer kernel-evo \(schema {there + 1}; this one knows {there}\)"):
        Store(tmp_path / "run", create=False)
    assert query(tmp_path / "run", "FROM more").num_rows == 0


def test_a_gap_in_the_numbers_is_a_bug(migrations: Path) -> None:
    (migrations / "0999_skipped.sql").write_text("")
    with duckdb.connect() as connection, pytest.raises(AssertionError, match="0999_skipped"):
        schema.migrate(connection)
