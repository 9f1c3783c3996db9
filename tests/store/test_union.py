"""Several runs asked at once: every table and view has the rows of all, and says whose they are."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner, Result

import evo
from evo.cli.commands import app
from evo.folders import find_runs
from evo.store import Limits, Store, StoreError, ask, query
from evo.store.writer import FILE
from operators.errors import UserError
from tests.store.rows import TASK, History, event, run

pytestmark = pytest.mark.usefixtures("made_once")

HOSTILE = "it's; DROP TABLE runs --\n[*]"


def cell(folder: Path, *, arm: str | None, seed: int, speedup: float) -> Path:
    """A finished run of one kernel."""
    story = History().propose(0, "rewrite", "", "k").evaluate(0, "k", "confirmed", "correct", log_speedup=speedup)
    named = {"seed": seed, "arm": arm, "comparison": "c" if arm else None, "config_json": '{"strategy": "random"}'}
    folder.mkdir(parents=True)
    with Store(folder, create=True) as store:
        store.commit({"runs": [run() | named], **story.tables}).result()
    return folder


@pytest.mark.slow
def test_relations_have_the_rows_of_all_runs_with_run_arm_and_seed(tmp_path: Path) -> None:
    folders = [
        cell(tmp_path / "one" / "a", arm="islands", seed=1, speedup=0.5),
        cell(tmp_path / "one" / HOSTILE, arm="it's 'another'", seed=2, speedup=0.7),
        cell(tmp_path / "two" / "a", arm=None, seed=3, speedup=0.1),  # a run of its own, called like another one
    ]
    best = query(folders, "select run, arm, seed, task, log_speedup from best order by seed").to_pylist()
    assert [row["run"] for row in best] == [str(folders[0]), HOSTILE, str(folders[2])]
    assert [row["arm"] for row in best] == ["islands", "it's 'another'", "random"]
    assert [(row["seed"], row["task"], row["log_speedup"]) for row in best] == [
        (1, TASK, 0.5), (2, TASK, 0.7), (3, TASK, 0.1),
    ]  # fmt: skip
    joined = "select count(*) as n from proposals p join verdicts v using (run, task, kernel_id)"
    assert query(folders, joined).to_pylist() == [{"n": 3}]
    assert query(folders, "from runs").column_names[:4] == ["run", "arm", "seed", "run_id"]
    shown = query(folders, "show tables").column("name").to_pylist()
    single = query(folders[0], "show tables").column("name").to_pylist()
    assert shown == [name for name in single if name != "schema_version"]
    described = query(folders, "describe lineage").column("column_name").to_pylist()
    assert described[:3] == ["run", "arm", "seed"]
    assert ask(folders, "from kernels", Limits(rows=5, timeout_s=600)).table.num_rows == 0


def test_a_query_over_several_runs_reaches_nothing_else_and_changes_nothing(tmp_path: Path) -> None:
    folders = [cell(tmp_path / name, arm=name, seed=0, speedup=0.1) for name in "ab"]
    other = cell(tmp_path / "c", arm="c", seed=0, speedup=0.1)
    for sql in ("from read_text('/etc/passwd')", f"from '{other}/evo.duckdb'"):
        with pytest.raises(StoreError):
            query(folders, sql)
    with pytest.raises(StoreError, match="ATTACH is no query"):
        query(folders, f"attach '{other}/evo.duckdb' as c")
    with pytest.raises(StoreError, match="no query"):
        query(folders, "delete from runs")


def test_a_run_that_is_being_written_is_read_with_the_others(tmp_path: Path) -> None:
    finished, live = cell(tmp_path / "done", arm="x", seed=0, speedup=0.1), tmp_path / "live"
    live.mkdir()
    with Store(live, create=True) as store:
        store.commit({"runs": [run() | {"arm": "y"}], "events": [event("begun")]}).result()
        found = query([finished, live], "select run, comparison, arm from runs order by arm nulls last")
    assert found.to_pylist() == [
        {"run": "done", "comparison": "c", "arm": "x"},
        {"run": "live", "comparison": None, "arm": "y"},
    ]


def test_a_folder_that_is_no_run_is_one_clear_line(tmp_path: Path) -> None:
    good, bad = cell(tmp_path / "good", arm="x", seed=0, speedup=0.1), tmp_path / "bad"
    bad.mkdir()
    (bad / "evo.duckdb").write_bytes(b"no database at all" * 500)
    with pytest.raises(StoreError, match=str(bad)) as raised:
        query([good, bad], "from runs")
    assert "\n" not in str(raised.value)


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def runs_with_damage(folder: Path) -> dict[str, Path]:
    """Two good runs, and one each that is no database, that lacks all but its beginning, and that lacks its end."""
    names = ("a", "b", "beginning", "end", "other")
    runs = {name: cell(folder / name, arm=name, seed=seed, speedup=0.1) for seed, name in enumerate(names)}
    (runs["other"] / FILE).write_bytes(b"no database at all" * 500)
    os.truncate(runs["beginning"] / FILE, 100_000)
    file = runs["end"] / FILE
    with duckdb.connect(str(file)) as connection:
        # Blocks are written behind the catalogue, which the next CHECKPOINT writes into the place of its old one.
        connection.execute("CREATE TABLE more AS SELECT md5(range::VARCHAR) FROM range(60_000)")
        connection.execute("CHECKPOINT; CREATE TABLE small AS SELECT 1; CHECKPOINT")
    os.truncate(file, file.stat().st_size - 300_000)
    return runs


def test_of_several_runs_the_damaged_ones_are_left_out_in_a_line_each(tmp_path: Path) -> None:
    runs = runs_with_damage(tmp_path / "runs")
    query(runs["end"], "from runs")  # what is left of it opens
    bad = [runs[name] for name in ("beginning", "end", "other")]
    for named in (f"{tmp_path}/runs/*", tmp_path / "runs"):
        asked = command("sql", named, "select run from runs order by run", "--format", "csv")
        assert (asked.exit_code, asked.stdout) == (0, "run\na\nb\n")
        lines = asked.stderr.splitlines()
        starts = [f"evo: left out: {folder / FILE} cannot be read: " for folder in bad]
        assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), lines
    merged = command("merge", tmp_path / "all.duckdb", runs["a"], f"{tmp_path}/runs/[!a]*")
    assert (merged.exit_code, merged.stderr.count("left out: ")) == (0, 3), merged.output
    scored = command("score", tmp_path / "runs", "--json")
    assert (scored.exit_code, scored.stderr.count("left out: ")) == (0, 3), scored.output
    with pytest.warns(UserWarning, match="left out: .*end/evo.duckdb .* the end of the file is missing"):
        assert evo.open_several(f"{tmp_path}/runs/[ae]*").sql("from runs").num_rows == 1


def test_a_damaged_run_that_is_named_itself_or_has_no_good_one_beside_it_is_refused(tmp_path: Path) -> None:
    runs = runs_with_damage(tmp_path / "runs")
    for words in (
        ("sql", runs["other"], "from runs"),
        ("sql", f"{tmp_path}/runs/[!ab]*", "from runs"),
        ("score", runs["a"], runs["other"]),
        ("merge", tmp_path / "all.duckdb", runs["a"], runs["other"]),
    ):
        error = command(*words).exception
        assert isinstance(error, StoreError) and "cannot be read" in str(error) and "\n" not in str(error), words


def test_runs_are_named_by_a_pattern_or_by_the_folder_that_holds_them(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    folders = [cell(runs / "compare-x" / name, arm=name, seed=0, speedup=0.1) for name in ("a", HOSTILE)]
    held = sorted(folders)
    assert find_runs(runs, f"{runs}/compare-x/*") == held
    assert find_runs(runs, str(runs / "compare-x")) == find_runs(runs, "compare-x") == held
    assert find_runs(runs, str(folders[1])) == folders[1]  # although its name has letters of patterns
    for name, words in {"compare-y": "does not exist", f"{runs}/nothing-*": "no run matches"}.items():
        with pytest.raises(UserError, match=words):
            find_runs(runs, name)
