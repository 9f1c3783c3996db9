"""The writer: commits, their order, and what survives."""

from __future__ import annotations

import math
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from evo.store import Store, StoreDiskError, StoreError, open_reader, query, writer
from evo.store.export import export_parquet
from tests.choosing import examples
from tests.store.rows import START_S, event, run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run-1"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with Store(folder, create=True) as store:
        yield store


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def one_store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder), create=True) as store:
        yield store


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    value=st.none() | st.floats(),
    number=st.integers(-(2**63), 2**63 - 1),
)
def test_rows_come_back_as_they_were(one_store: Store, text: str, value: float | None, number: int) -> None:
    key = str(random.Random(text).random())
    before = one_store.rows("SELECT count(*) AS n FROM trials").to_pylist()[0]["n"]
    one_store.commit(
        {
            "trials": [
                {
                    "request_id": text, "task": key, "source_id": "", "kernel_id": "k", "values_json": text,
                    "status": text, "log_speedup": value, "created_at": START_S,
                }
            ],
            "runs": [run() | {"seed": number}],
        }
    ).result()  # fmt: skip
    trial = one_store.rows("SELECT * FROM trials OFFSET ?", [before]).to_pylist()[0]
    assert (trial["request_id"], trial["values_json"], trial["source_id"]) == (text, text, "")
    stored = trial["log_speedup"]
    assert stored == value or (math.isnan(stored) and value is not None and math.isnan(value))
    assert one_store.rows("SELECT seed FROM runs ORDER BY rowid DESC LIMIT 1").to_pylist() == [{"seed": number}]


def test_absent_columns_become_null_and_none_is_not_nan(store: Store) -> None:
    row = {"task": "t", "kernel_id": "k", "metric": "m", "value": math.nan}
    store.commit({"metrics": [row]}).result()
    found = store.rows("SELECT unit, isnan(value) AS is_nan FROM metrics").to_pylist()
    assert found == [{"unit": None, "is_nan": True}]


def test_batches_are_committed_in_the_order_of_the_calls(store: Store) -> None:
    release = threading.Event()
    store._thread.submit(release.wait)  # everything below has to wait, and is committed together
    done = [store.commit({"events": [event(str(n)), event(f"{n}+")]}) for n in range(200)]
    assert not any(d.done() for d in done)
    release.set()
    for d in done:
        d.result()
    kinds = store.rows("SELECT kind FROM events ORDER BY rowid").column("kind").to_pylist()
    assert kinds == [kind for n in range(200) for kind in (str(n), f"{n}+")]


def test_a_batch_that_fails_does_not_fail_its_neighbours(folder: Path) -> None:
    Store(folder, create=True).close()
    with duckdb.connect(folder / writer.FILE) as connection:
        connection.execute("CREATE TABLE picky (word VARCHAR NOT NULL CHECK (word <> 'bad'))")
    with Store(folder, create=False) as store:
        release = threading.Event()
        store._thread.submit(release.wait)
        first, bad, last = (
            store.commit({"picky": [{"word": word}], "events": [event(word)]}) for word in ("first", "bad", "last")
        )
        release.set()
        assert first.result() is None
        assert last.result() is None
        with pytest.raises(StoreError, match="rows could not be written: CHECK constraint failed"):
            bad.result()
        assert store.rows("SELECT word FROM picky").column("word").to_pylist() == ["first", "last"]
        assert store.rows("SELECT kind FROM events").column("kind").to_pylist() == ["first", "last"]


def test_a_commit_cannot_be_cancelled(store: Store) -> None:
    done = store.commit({"events": [event("paid for")]})
    assert not done.cancel()
    done.result()


def test_unusable_rows_are_refused_before_they_queue(store: Store) -> None:
    with pytest.raises(StoreError, match="unknown table `event`; did you mean `events`"):
        store.commit({"event": []})
    with pytest.raises(StoreError, match="a row lacks kind"):
        store.commit({"events": [event("fine"), {"created_at": START_S, "detail_json": "{}"}]})
    store.commit({}).result()
    assert store.rows("FROM events").num_rows == 0


def test_queries_see_what_was_committed_before_them(store: Store) -> None:
    for n in range(20):
        store.commit({"events": [event(str(n))]})
        assert store.rows("SELECT count(*) AS n FROM events").to_pylist() == [{"n": n + 1}]
    with pytest.raises(StoreError, match="Candidate bindings"):
        store.rows("SELECT knd FROM events")


def test_many_threads_may_commit(store: Store) -> None:
    def write(name: int) -> None:
        for n in range(25):
            store.commit({"events": [event(f"{name}.{n:02}")]}).result()

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = store.rows("SELECT kind FROM events ORDER BY rowid").column("kind").to_pylist()
    assert len(kinds) == 100
    for name in range(4):
        own = [kind for kind in kinds if kind.startswith(f"{name}.")]
        assert own == sorted(own)


def test_closing_commits_what_waits_and_leaves_one_plain_file(folder: Path) -> None:
    store = Store(folder, create=True)
    done = [store.commit({"events": [event(str(n))]}) for n in range(50)]
    store.close()
    store.close()
    assert all(d.done() for d in done)
    assert {p.name for p in folder.iterdir() if p.is_file()} == {"evo.duckdb"}
    assert query(folder, "SELECT count(*) AS n FROM events").to_pylist() == [{"n": 50}]
    with pytest.raises(StoreError, match="run run-1: its store is closed"):
        store.commit({"events": [event("late")]})
    with pytest.raises(StoreError, match="is closed"):
        store.rows("FROM events")


def test_a_folder_without_a_run_is_not_opened(tmp_path: Path) -> None:
    for attempt in (lambda: Store(tmp_path, create=False), lambda: query(tmp_path, "SELECT 1")):
        with pytest.raises(StoreError, match=r"no evo\.duckdb there; is this a run's folder\?"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_is_refused(store: Store, folder: Path) -> None:
    with pytest.raises(StoreError, match="run run-1 is being written by this process; stop it"):
        Store(folder, create=True)
    other = python("import sys; from evo.store import Store; Store(sys.argv[1], create=False)", folder)
    _, stderr = other.communicate()
    assert f"StoreError: run run-1 is being written by process {os.getpid()}; stop it" in stderr
    store.commit({"events": [event("undisturbed")]}).result()


def test_a_reader_of_a_finished_run_is_named_when_it_is_in_the_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(folder, create=True).close()
    monkeypatch.setattr("evo.store.writer.LOCK_WAIT_S", 0.1)
    code = (
        "import sys; from evo.store import open_reader\n"
        "with open_reader(sys.argv[1]): print('open', flush=True); input()"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout
    assert reader.stdout.readline() == "open\n"
    with pytest.raises(StoreError, match=f"run run-1 is held open by process {reader.pid}; close it there"):
        Store(folder, create=False)
    reader.communicate("\n")
    Store(folder, create=False).close()


WRITE_UNTIL_KILLED = """
import itertools, os, sys, time
from pathlib import Path
from evo.store import Store
with Store(Path(sys.argv[1]), create=True) as store:
    first = store.rows("SELECT coalesce(max(seq) + 1, 0) AS n FROM tells").to_pylist()[0]["n"]
    waiting = []
    for seq in itertools.count(first):
        tell = dict(seq=seq, task="t", number=seq, request_id=str(seq), status="correct", digest="d" * 3000)
        tell["created_at"] = 1e9
        kernel = dict(kernel_id=str(seq), source_id="s", operator="o", target="cpu", source="x" * 5000)
        kernel["values_json"] = "{}"
        waiting.append((seq, store.commit({"tells": [tell] * 3, "kernels": [kernel] * 2})))
        if len(waiting) == 4:
            seq, done = waiting.pop(0)
            done.result()
            os.write(1, b"%d\\n" % seq)
        if seq % 20 == 0:
            store._snapshot_path()
"""


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_batch(folder: Path) -> None:
    chance = random.Random(5)
    acknowledged = -1
    for attempt in range(12):
        writer = python(WRITE_UNTIL_KILLED, folder)
        assert writer.stdout
        if attempt % 3:
            acknowledged = int(writer.stdout.readline())
            time.sleep(chance.uniform(0.0, 0.25))
        else:  # while it opens, as likely as not
            time.sleep(chance.uniform(0.1, 0.6))
        writer.send_signal(signal.SIGKILL)
        stdout, stderr = writer.communicate()
        assert stderr == ""
        acknowledged = max([acknowledged, *map(int, stdout.split())])
    with Store(folder, create=True) as store:
        assert store.notes == []
        batches = store.rows("SELECT seq, count(*) AS n FROM tells GROUP BY seq ORDER BY seq").to_pylist()
        kernels = store.rows("SELECT kernel_id::BIGINT AS seq, count(*) AS n FROM kernels GROUP BY 1 ORDER BY 1")
    assert acknowledged > 20
    assert [b["seq"] for b in batches] == list(range(len(batches)))
    assert len(batches) > acknowledged
    assert {b["n"] for b in batches} == {3}
    assert kernels.to_pylist() == [{"seq": b["seq"], "n": 2} for b in batches]


KILL_ITSELF = """
import os, sys
from pathlib import Path
from evo.store import Store
store = Store(Path(sys.argv[1]), create=True)
for n in range(10):
    store.commit({"events": [dict(created_at=1e9, kind=str(n), detail_json="x" * 1000)]}).result()
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose writer was killed: its last ten events are in the log only."""
    folder = tmp_path_factory.mktemp("killed") / "run-1"
    python(KILL_ITSELF, folder).communicate()
    assert (folder / "evo.duckdb.wal").stat().st_size > 10_000
    assert (folder / "evo.sock").exists()
    return folder


@pytest.fixture
def killed(left_behind: Path, folder: Path) -> Path:
    """A copy of it, where another socket that no process listens to stands for its own."""
    shutil.copytree(left_behind, folder, ignore=shutil.ignore_patterns("evo.sock"))
    os.mknod(folder / "evo.sock", stat.S_IFSOCK | 0o600)
    return folder


def test_a_killed_run_is_read_without_touching_its_log(killed: Path) -> None:
    log = (killed / "evo.duckdb.wal").read_bytes()
    for _ in range(2):
        with open_reader(killed) as connection:
            assert connection.execute("SELECT count(*) FROM events").fetchall() == [(10,)]
            assert query(killed, "SELECT count(*) AS n FROM events").to_pylist() == [{"n": 10}]
    assert (killed / "evo.duckdb.wal").read_bytes() == log
    with Store(killed, create=False) as store:
        assert store.notes == []
        assert store.rows("FROM events").num_rows == 10


def damage(path: Path, position: int) -> bytes:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    return bytes(damaged)


def test_a_log_that_cannot_be_replayed_is_set_aside_and_told(killed: Path) -> None:
    damaged = damage(killed / "evo.duckdb.wal", 2)
    with pytest.raises(StoreError, match="cannot be read: Failure while replaying WAL"):
        query(killed, "FROM events")
    with Store(killed, create=False) as store:
        cause, loss = store.notes
        assert store.rows("FROM events").num_rows == 0
        store.commit({"events": [event("on with it")]}).result()
    assert cause.startswith("evo.duckdb.wal could not be replayed (Failure while replaying WAL file")
    assert cause.endswith("and is kept as evo.duckdb.wal.damaged-1")
    assert loss == "the end of the run as it was written is missing: 10 events"
    assert (killed / "evo.duckdb.wal.damaged-1").read_bytes() == damaged
    with Store(killed, create=False) as store:
        assert store.notes == []
        assert store.rows("FROM events").num_rows == 1


def test_what_stands_before_the_damage_is_kept(killed: Path) -> None:
    log = killed / "evo.duckdb.wal"
    position = -1
    for _ in range(6):
        position = log.read_bytes().index(b"x" * 1000, position + 1000 if position >= 0 else 0)
    damaged = damage(log, position + 500)
    with Store(killed, create=False) as store:
        cause, loss = store.notes
        left = store.rows("SELECT kind FROM events ORDER BY rowid").column("kind").to_pylist()
    assert left == ["0", "1", "2", "3", "4"]
    assert loss == "the end of the run as it was written is missing: 5 events"
    assert cause.endswith("is kept as evo.duckdb.wal.damaged-1")
    assert (killed / "evo.duckdb.wal.damaged-1").read_bytes() == damaged


def test_what_a_damaged_log_loses_silently_is_noticed(killed: Path) -> None:
    log = killed / "evo.duckdb.wal"
    os.truncate(log, log.stat().st_size // 2)
    cut = log.read_bytes()
    with Store(killed, create=False) as store:
        left = store.rows("FROM events").num_rows
        assert 0 < left < 10
        assert store.notes == [
            "evo.duckdb.wal was replayed in part, and is kept as evo.duckdb.wal.damaged-1",
            f"the end of the run as it was written is missing: {10 - left} events",
        ]
    assert (killed / "evo.duckdb.wal.damaged-1").read_bytes() == cut


def test_counts_that_cannot_be_read_are_no_reason_to_stop(killed: Path) -> None:
    (killed / "evo.rows").write_text('{"events": 1')
    with Store(killed, create=False) as store:
        assert store.notes == []
        assert store.rows("FROM events").num_rows == 10


def test_a_damaged_file_is_refused_in_one_line(folder: Path) -> None:
    Store(folder, create=True).close()
    path = folder / "evo.duckdb"
    damaged = bytearray(path.read_bytes())
    damaged[20] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"evo\.duckdb cannot be opened: Corrupt database file"):
        Store(folder, create=False)
    assert path.read_bytes() == damaged


def test_every_table_is_exported(store: Store, tmp_path: Path) -> None:
    store.commit({"events": [event("é\0\n")], "runs": [run()]}).result()
    files = export_parquet(store.folder, tmp_path / "out")
    assert {f.stem for f in files} > set(store._tables)
    assert all(f.suffix == ".parquet" for f in (tmp_path / "out").iterdir())
    assert pq.read_table(tmp_path / "out" / "events.parquet").column("kind").to_pylist() == ["é\0\n"]
    assert pq.read_table(tmp_path / "out" / "kernels.parquet").num_rows == 0


def test_a_disk_that_is_full_costs_nothing_that_was_acknowledged(folder: Path) -> None:
    store = Store(folder, create=True)
    acknowledged = 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        store.commit({"events": [event("before")]}).result()
        acknowledged += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "evo.duckdb.wal").stat().st_size + 5_000, hard))
        with pytest.raises(StoreDiskError, match="rows could not be written: File too large"):
            for number in range(100):
                store.commit({"events": [event(f"{number}" * 200)]}).result()
                acknowledged += 1
        with pytest.raises(StoreDiskError, match="could not be merged into its database: File too large"):
            store.close()
        assert query(folder, "FROM events").num_rows == acknowledged > 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Store(folder, create=False) as store:
        assert store.notes == []
        assert store.rows("FROM events").num_rows == acknowledged


def test_batches_wait_for_room_in_their_order_and_readers_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOOK_FOR_ROOM_S", 0.01)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    waited, patient = threading.Event(), True

    def waits(reason: str, waited_s: float) -> bool:
        assert "File too large" in reason and waited_s >= 0
        waited.set()
        return patient

    with Store(folder, create=True) as store:
        store.waits = waits
        store.commit({"events": [event("before")]}).result()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "evo.duckdb.wal").stat().st_size, hard))
            batches = [store.commit({"events": [event(f"{number}")]}) for number in range(3)]
            assert waited.wait(60) and not any(batch.done() for batch in batches)
            assert store.rows("FROM events").num_rows == 1  # a reader waits for no writer
            with pytest.raises(StoreError, match="has waited for room on its disk for"):
                query(folder, "FROM events")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for batch in batches:
            batch.result(60)
        assert store.rows("SELECT kind FROM events").column(0).to_pylist() == ["before", "0", "1", "2"]
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "evo.duckdb.wal").stat().st_size, hard))
            late = store.commit({"events": [event("late")]})
            patient = False
            with pytest.raises(StoreDiskError, match="File too large"):
                late.result(60)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_log_that_has_grown_is_merged_where_there_is_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = folder / "evo.duckdb.wal"
    monkeypatch.setattr(writer, "LOG_BYTES", 50_000)
    with Store(folder, create=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "_free_bytes", 0)
            for number in range(20):
                store.commit({"events": [event(f"{number}" * 5000)]}).result()
            assert log.stat().st_size > 100_000
        store.commit({"events": [event("one more")]}).result()
        assert not log.exists() or log.stat().st_size < 50_000
        assert store.rows("FROM events").num_rows == 21


@pytest.mark.parametrize("committed", [True, False])
def test_a_database_that_duckdb_gives_up_is_opened_again_and_holds_every_batch_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """DuckDB merges the log within a commit, finds no room, and says so of a commit that is there all the same."""
    monkeypatch.setattr(writer, "LOOK_FOR_ROOM_S", 0.01)
    given_up = [duckdb.FatalException]
    insert = writer._insert

    def fail() -> None:
        if given_up:
            raise given_up.pop()("FATAL Error: the autocheckpoint failed: No space left on device")

    def there(store: Store) -> bool:  # asked right after a commit
        if committed and store._commits:
            fail()
        return True

    def inserted(connection: duckdb.DuckDBPyConnection, table: str, batch: Any) -> None:
        if not committed and any("1" in kind for kind in batch.column("kind").to_pylist()):
            fail()
        insert(connection, table, batch)

    monkeypatch.setattr(Store, "_there", property(there))
    monkeypatch.setattr(writer, "_insert", inserted)
    with Store(folder, create=True) as store:
        store.waits = lambda *_: True
        for number in range(4):
            store.commit({"events": [event(f"{number}")]}).result(60)
        assert store.rows("SELECT kind FROM events").column(0).to_pylist() == ["0", "1", "2", "3"]
    assert not given_up


def test_a_log_that_cannot_be_merged_ends_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Store(folder, create=True) as store:
        store.commit({"events": [event("0")]}).result()
        monkeypatch.setattr(writer, "LOG_BYTES", 0)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # enough for the log
            store.commit({"events": [event("1")]}).result(60)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        store.commit({"events": [event("2")]}).result(60)
        assert store.rows("SELECT kind FROM events").column(0).to_pylist() == ["0", "1", "2"]


def test_a_database_that_is_removed_takes_no_more(folder: Path) -> None:
    store = Store(folder, create=True)
    store.commit({"events": [event("before")]}).result()
    shutil.rmtree(folder)
    with pytest.raises(StoreDiskError, match="was removed while it was written"):
        store.commit({"events": [event("after")]}).result()
    with suppress(StoreError):
        store.close()


def test_a_database_that_cannot_be_made_leaves_nothing(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StoreDiskError, match="cannot be opened: File too large"):
            Store(folder, create=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []


def test_no_reader_takes_the_last_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit({"events": [event("before")]}).result()
    usage = shutil.disk_usage(store.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000))
    with pytest.raises(StoreError, match="no snapshot: the disk has 0 MiB left"):
        query(store.folder, "FROM events")
    store.commit({"events": [event("after")]}).result()


def test_another_programs_database_is_refused_and_left_alone(folder: Path) -> None:
    folder.mkdir()
    with duckdb.connect(str(folder / "evo.duckdb")) as connection:
        connection.execute("create table runs as select 42 as answer")
    with pytest.raises(StoreError, match="is no run's"):
        query(folder, "FROM runs")
    with pytest.raises(StoreError, match="is no run's"):
        Store(folder, create=False)
    with duckdb.connect(str(folder / "evo.duckdb")) as connection:
        assert connection.execute("show tables").fetchall() == [("runs",)]
