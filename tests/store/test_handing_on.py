"""Runs for other tools and other machines: exported to Parquet or to one DuckDB file, and merged into one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import evo
from evo.cli.commands import app
from evo.store import Store, StoreError, query
from evo.store.export import export_duckdb, export_parquet, merge
from evo.store.named import named_query
from operators.errors import UserError
from tests.choosing import size
from tests.store.rows import TASK, event, run
from tests.store.story import stored, story

pytestmark = pytest.mark.usefixtures("made_once")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs of the same name, with requests and kernels of the same ids; G is slower on the second machine."""
    first, second = (tmp_path_factory.mktemp(name) / "runs" / "20260101-softmax" for name in ("first", "second"))
    history = story()
    for row in history.tables["evaluations"]:
        if row["kernel_id"] == "G":
            row["log_speedup"] = 0.9
    stored(first, run_id="20260101-softmax", seed=1)
    stored(second, history, run_id="20260101-softmax", seed=2)
    return first, second


@pytest.fixture(scope="module")
def merged(machines: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "all.duckdb"
    assert [each.run for each in merge(machines, out)] == ["20260101-softmax", "20260101-softmax-2"]
    return out


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def about(table: pa.Table) -> list[dict[str, object]]:
    """Rows that leave open the last digits of a sum, which depend on the order in which DuckDB's threads add."""
    return [
        {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def refusal(*arguments: object) -> str:
    error = command(*arguments).exception
    assert isinstance(error, UserError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.slow
def test_an_exported_file_opens_with_bare_duckdb_and_with_all_that_reads_runs(
    machines: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "run.duckdb"
    assert command("export", machines[0], out).exit_code == 0
    bare = f"""
import duckdb
with duckdb.connect({str(out)!r}, read_only=True) as connection:
    print(*connection.execute("select kernel_id, round(speedup, 2) from best").fetchone())
    print(connection.execute("select count(*) from ancestors('{TASK}', 'G')").fetchone()[0])
    meaning = "select comment from duckdb_columns() where table_name = 'best' and column_name = 'level'"
    print(connection.execute(meaning).fetchone()[0])
"""
    done = subprocess.run([sys.executable, "-I", "-c", bare], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["G 3.0", "6", "How severe the examination was: screen, full or confirmed."]
    tables = [name for (name,) in rows(machines[0], "select table_name from duckdb_tables() where not internal")]
    counts = " union all ".join(f"select '{name}', count(*) from {name}" for name in sorted(tables))
    assert rows(out, counts) == rows(machines[0], counts)
    assert [kernel.id for kernel in evo.open(out).best()] == ["G"] and not evo.open(out).is_running
    asked = command("sql", out, "--query", "outside", "--format", "csv").output
    assert asked.splitlines()[1].startswith(f"{TASK},ann,1,1")
    assert "exists already" in refusal("export", machines[0], out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.duckdb"]


def test_parquet_files_hold_tables_and_views(machines: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "parquet"
    files = {path.stem: path for path in export_parquet(machines[0], out)}
    assert {"kernels", "evaluations", "best", "lineage"} <= set(files) and "schema_version" not in files
    assert pq.read_table(files["best"]).column("kernel_id").to_pylist() == ["G"]
    assert pq.read_table(files["lineage"]).num_rows == query(machines[0], "from lineage").num_rows
    assert "is not empty" in refusal("export", machines[0], out)


@pytest.mark.slow
def test_a_run_is_exported_while_it_is_written(tmp_path: Path) -> None:
    with Store(tmp_path / "live", create=True) as store:
        store.commit({"runs": [run()], "events": [event("x")]}).result()
        assert rows(export_duckdb(tmp_path / "live", tmp_path / "out.duckdb"), "select kind from events") == [("x",)]


@pytest.mark.slow
def test_merged_runs_stay_two_though_their_ids_are_the_same(machines: tuple[Path, Path], merged: Path) -> None:
    both = evo.open_several(merged)
    best = both.sql("select run, seed, kernel_id, level from best order by seed").to_pylist()
    assert best == [
        {"run": "20260101-softmax", "seed": 1, "kernel_id": "G", "level": "screen"},
        {"run": "20260101-softmax-2", "seed": 2, "kernel_id": "C2", "level": "confirmed"},
    ]
    for name in ("mutators", "contributors", "operators")[: size(3, 1)]:
        apart = query(list(machines), named_query(name).text(several=True), params=named_query(name).bound({}))
        together = both.query(name)
        assert together.drop_columns("run").to_pylist() == about(apart.drop_columns("run")), name
    assert both.query("runs").column("winner").to_pylist() == ["20260101-softmax"]
    origins = both.sql("select origin, run_id, merged_on <> '' as known from merged_runs").to_pylist()
    assert origins == [{"origin": str(path), "run_id": path.name, "known": True} for path in machines]
    with pytest.raises(UserError, match="use evo\\.open_several"):
        evo.open(merged)


def test_a_merged_file_opens_with_bare_duckdb(merged: Path) -> None:
    with duckdb.connect(str(merged), read_only=True) as connection:
        assert connection.execute("select run, count(*) from kernels group by 1 order by 1").fetchall() == [
            ("20260101-softmax", 11), ("20260101-softmax-2", 11),
        ]  # fmt: skip
        assert connection.execute("select run, kernel_id from best order by run").fetchall()[1][1] == "C2"
        assert connection.execute('select kernel_id from "20260101-softmax-2".best').fetchall() == [("C2",)]


@pytest.mark.slow
def test_merged_files_and_exported_ones_are_merged_again(
    machines: tuple[Path, Path], merged: Path, tmp_path: Path
) -> None:
    third = stored(tmp_path / "third", run_id="third", seed=3)
    exported = export_duckdb(third, tmp_path / "exported.duckdb")
    done = command("merge", tmp_path / "more.duckdb", merged, exported)
    assert done.exit_code == 0, done.output
    found = command("sql", tmp_path / "more.duckdb", "select run, seed from runs order by seed", "--format", "csv")
    assert found.output.splitlines()[1:] == ["20260101-softmax,1", "20260101-softmax-2,2", "exported,3"]


@pytest.mark.slow
def test_what_cannot_be_merged_is_one_clear_line_and_leaves_nothing(
    machines: tuple[Path, Path], merged: Path, tmp_path: Path
) -> None:
    out = tmp_path / "all.duckdb"
    Store(tmp_path / "empty", create=True).close()
    (tmp_path / "text.duckdb").write_text("no database")
    assert "are the same run, 20260101-softmax" in refusal("merge", out, machines[0], machines[1], machines[0])
    assert "are the same run" in refusal("merge", out, merged, machines[0])
    assert "was stopped before it began" in refusal("merge", out, machines[0], tmp_path / "empty")
    assert "text.duckdb: it is no run and no database" in refusal("merge", out, machines[0], tmp_path / "text.duckdb")
    assert "does not exist" in refusal("merge", out, "nothing", "--runs", tmp_path)
    assert "ends in .duckdb" in refusal("merge", tmp_path / "all", machines[0])
    assert "cannot be written" in refusal("merge", tmp_path / "no" / "all.duckdb", machines[0])
    assert "several runs: put them into one file" in refusal("export", merged, tmp_path / "x.duckdb")
    assert not out.exists() and sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text.duckdb"]
    before = merged.read_bytes()
    assert "exists already" in refusal("merge", merged, machines[0])
    assert merged.read_bytes() == before


def rows(where: Path, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(where, sql).to_pylist()]


def test_what_is_no_database_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "a.duckdb").write_text("no database")
    with pytest.raises(StoreError, match="no run and no database"):
        evo.open(tmp_path / "a.duckdb")
