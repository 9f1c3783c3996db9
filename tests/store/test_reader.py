"""Readers beside a living writer, and the guard around a user's SQL."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evo.store import Limits, Store, StoreError, ask, open_reader, query, snapshots
from evo.store.errors import interruptible
from tests.choosing import some_slow
from tests.store.rows import event

pytestmark = pytest.mark.usefixtures("made_once")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    deep = tmp_path / ("long" * 25) / ("path" * 25)  # longer than a socket's path may be
    with Store(deep / "run", create=True) as store:
        assert store.notes == []
        store.commit({"events": [event(str(n)) for n in range(10)]}).result()
        yield store


def count(folder: Path) -> int:
    (row,) = query(folder, "SELECT count(*) AS n FROM events").to_pylist()
    return int(row["n"])


READ_FOR_A_WHILE = """
import sys, time
from evo.store import query
counts = []
end = time.monotonic() + 1.5
while time.monotonic() < end or len(set(counts)) == 1:
    counts.append(query(sys.argv[1], "SELECT count(*) AS n, sum(length(detail_json)) FROM events").to_pylist()[0]["n"])
print(*counts)
"""


@pytest.mark.slow
def test_readers_neither_stop_the_writer_nor_lock_it_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.2)
    readers = [
        subprocess.Popen([sys.executable, "-c", READ_FOR_A_WHILE, store.folder], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    written = 10
    while any(reader.poll() is None for reader in readers):
        store.commit({"events": [event("more", "x" * 1000)]}).result()
        written += 1
        time.sleep(0.002)
    for reader in readers:
        assert reader.returncode == 0
        assert reader.stdout
        counts = [int(n) for n in reader.stdout.read().split()]
        assert counts == sorted(counts)
        assert len(set(counts)) > 1
        assert 10 <= counts[0] <= counts[-1] <= written
        reader.stdout.close()
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.0)  # else the readers' last snapshot may serve again
    assert count(store.folder) == written
    assert store.rows("FROM events").num_rows == written


def test_a_snapshot_is_reused_while_it_is_young_or_still_true(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.folder / "snapshots"
    assert count(store.folder) == 10
    (first,) = folder.iterdir()
    store.commit({"events": [event("new")]}).result()
    assert count(store.folder) == 10  # young
    assert list(folder.iterdir()) == [first]
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.0)
    assert count(store.folder) == 11
    (second,) = folder.iterdir()
    assert second != first
    assert count(store.folder) == 11  # nothing new
    assert list(folder.iterdir()) == [second]


def test_snapshots_that_take_long_are_made_rarely(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = snapshots.copy, []

    def slow(source: Path, folder: Path) -> Path:
        made.append(real(source, folder))
        return made[-1]

    monkeypatch.setattr("evo.store.snapshots.copy", slow)
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 1e-9)
    monkeypatch.setattr(
        "evo.store.writer.SNAPSHOT_TOOK_S", 1e-12
    )  # any is slow: the next one may be made in ten seconds
    for n in range(5):
        store.commit({"events": [event(f"slow {n}")]}).result()
        assert count(store.folder) == 11
    assert len(made) == 1
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_TOOK_S", 1e9)
    assert count(store.folder) == 15


def test_an_open_snapshot_outlives_its_successor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.0)
    with open_reader(store.folder) as old:
        store.commit({"events": [event(str(n), "y" * 5000) for n in range(500)]}).result()
        assert count(store.folder) == 510
        assert old.execute("SELECT count(*), max(length(detail_json)) FROM events").fetchall() == [(10, 2)]


def test_a_reader_that_comes_too_late_for_a_snapshot_asks_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real, answers = snapshots.ask, []

    def ask(folder: Path) -> Path | None:
        path = real(folder) if answers else folder / "snapshots" / "gone.duckdb"
        answers.append(path)
        return path

    monkeypatch.setattr("evo.store.snapshots.ask", ask)
    assert count(store.folder) == 10
    assert len(answers) == 2


@pytest.mark.slow
def test_no_thread_of_readers_disturbs_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.store.writer.SNAPSHOT_AGE_S", 0.0)
    failures: list[Exception] = []

    def read() -> None:
        try:
            for _ in range(5):
                assert count(store.folder) >= 10
        except (StoreError, AssertionError) as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    while any(reader.is_alive() for reader in readers):
        store.commit({"events": [event("x")]}).result()
        time.sleep(0.005)
    assert failures == []


def test_a_reader_may_come_while_the_writer_leaves(tmp_path: Path) -> None:
    for n in range(5):
        store = Store(tmp_path, create=True)
        store.commit({"events": [event(str(n))]}).result()
        closing = threading.Thread(target=store.close)
        closing.start()
        assert count(tmp_path) == n + 1
        closing.join()


def test_the_protocol_answers_strangers_politely(store: Store) -> None:
    for request, answer in ((b"snapshot\n", "path"), (b"drop everything\n", "error"), (b"snapshot\n", "path")):
        with socket.socket(socket.AF_UNIX) as connection, snapshots._short_path(store.folder) as path:
            connection.settimeout(10)
            connection.connect(path)
            connection.sendall(request)
            assert list(json.loads(connection.makefile().readline())) == [answer]
    with socket.socket(socket.AF_UNIX) as silent, snapshots._short_path(store.folder) as path:
        silent.connect(path)
    assert count(store.folder) == 10


def test_a_snapshot_that_cannot_be_made_is_an_error_for_the_reader_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.folder / "snapshots").write_text("in the way")
    with pytest.raises(StoreError, match="run run: no snapshot: "):
        count(store.folder)
    store.commit({"events": [event("on")]}).result()
    (store.folder / "snapshots").unlink()
    assert count(store.folder) == 11


TRY_TO_WRITE = "import duckdb, sys; duckdb.connect(sys.argv[1])"


def test_a_snapshot_leaves_the_writer_its_lock(store: Store) -> None:
    assert count(store.folder) == 10
    other = [sys.executable, "-c", TRY_TO_WRITE, str(store.folder / "evo.duckdb")]
    done = subprocess.run(other, capture_output=True, text=True, check=False)
    assert "Conflicting lock" in done.stderr


def test_a_finished_copy_of_a_dead_writer_is_swept_up(tmp_path: Path) -> None:
    Store(tmp_path, create=True).close()
    left = tmp_path / "snapshots" / "1.part"
    left.parent.mkdir(exist_ok=True)
    left.write_text("half a file")
    Store(tmp_path, create=False).close()
    assert not left.exists()


# --- a user's SQL ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with Store(folder, create=True) as store:
        store.commit({"events": [event(str(n)) for n in range(10)]}).result()
    return folder


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT kind FROM events",
        "FROM events;",
        "WITH e AS (FROM events) SELECT * FROM e -- with a comment",
        "VALUES (1), (2)",
        "DESCRIBE events",
        "SUMMARIZE events",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM best",
        "PIVOT events ON kind IN ('1', '2') USING count(*)",
        "SELECT detail_json ->> '$.x', now() - created_at FROM events",
    ],
)
def test_queries_are_answered(finished: Path, sql: str) -> None:
    assert query(finished, sql).num_rows > 0


@pytest.mark.parametrize(
    ("sql", "complaint"),
    some_slow(
        [
            ("INSERT INTO events VALUES (now(), 'x', NULL, '')", "INSERT is no query"),
            ("UPDATE events SET kind = ''", "UPDATE is no query"),
            ("DELETE FROM events", "DELETE is no query"),
            ("WITH x AS (DELETE FROM events RETURNING *) SELECT * FROM x", "a query changes nothing here"),
            ("EXPLAIN ANALYZE DELETE FROM events", "a query changes nothing here"),
            ("CREATE TABLE t (x INTEGER)", "CREATE is no query"),
            ("CREATE TEMP TABLE t AS SELECT 1", "CREATE is no query"),
            ("DROP TABLE events", "DROP is no query"),
            ("COPY events TO '/tmp/x.csv'", "COPY is no query"),
            ("EXPORT DATABASE '/tmp/x'", "EXPORT is no query"),
            ("ATTACH '/tmp/x.db'", "ATTACH is no query"),
            ("INSTALL httpfs", "LOAD is no query"),
            ("SET threads = 1", "SET is no query"),
            ("PRAGMA database_size", "PRAGMA is no query"),
            ("CALL pragma_version()", "CALL is no query"),
            ("BEGIN", "TRANSACTION is no query"),
            ("SELECT 1; SELECT 2", "one query at a time, not 2"),
            ("SELECT 1; DROP TABLE events", "one query at a time, not 2"),
            ("", "one query at a time, not 0"),
            ("PIVOT events ON kind USING count(*)", "PIVOT needs its values here"),
            ("SELECT * FROM read_csv('/etc/passwd')", "Cannot access file"),
            ("SELECT * FROM read_text('/etc/passwd')", "Cannot access file"),
            ("SELECT * FROM glob('/etc/*')", "Cannot access file"),
            ("FROM '/etc/passwd'", "Table with name /etc/passwd does not exist!"),
            ("FROM finished", "Table with name finished does not exist!"),
            ("SELECT * FROM event", 'Table with name event does not exist! Did you mean "events"?'),
            ("SELECT knd FROM events", 'Referenced column "knd" not found in FROM clause! Candidate bindings: "kind"'),
            ("SELEC 1", 'syntax error at or near "SELEC"'),
            ("SELECT 'x'::INTEGER", "Could not convert string 'x' to INT32"),
            ("FROM range(100_000_000_000)", "the result exceeds 16 MiB; add LIMIT, or aggregate"),
            ("SELECT range FROM range(100_000_000_000) WHERE range * 7 % 11 = 12", "not end"),
            (
                "SELECT count(*) FROM range(100_000_000) a, range(1_000_000) b WHERE a.range * b.range % 7 = 1",
                "not end",
            ),
        ],
        8,
    ),
)
def test_anything_else_is_refused_in_one_line(finished: Path, sql: str, complaint: str) -> None:
    with pytest.raises(StoreError) as caught:
        query(finished, sql, max_bytes=2**24, timeout_s=0.5 if complaint == "not end" else 60.0)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert count(finished) == 10


def test_a_query_may_stand_beside_an_open_reader(finished: Path) -> None:
    with open_reader(finished) as connection:
        assert count(finished) == 10
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(10,)]


DEAF = """
import sys
from pathlib import Path
from evo.store import Limits, ask, reader
reader.GRACE_S = 0.5
ask(Path(sys.argv[1]), "select list_sort(range(60_000_000))[1]", Limits(rows=10, timeout_s=0.1))
"""


def test_a_query_that_heeds_no_interrupt_ends_with_its_process(finished: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DEAF, finished], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "evo: the query did not end within 0.1 s; simplify it, or allow more time\n"


LONG = "select sum(a.range * b.range) from range(1_000_000) a, range(1_000_000) b"


@pytest.mark.slow
@pytest.mark.parametrize("ask_it", ["query(run, sql)", "ask(run, sql, Limits(rows=10, timeout_s=60))"])
def test_a_query_ends_on_ctrl_c(ask_it: str, finished: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom evo.store import Limits, ask, query\n"
        f"run, sql = Path(sys.argv[1]), {LONG!r}\nprint('asks', flush=True)\n"
        f"try:\n    {ask_it}\nexcept KeyboardInterrupt:\n    print('stopped')"
    )
    with subprocess.Popen([sys.executable, "-c", program, finished], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout and asking.stdout.readline() == "asks\n"
        time.sleep(1)  # it is within DuckDB by then, which says nothing of it
        asking.send_signal(signal.SIGINT)
        try:
            assert asking.wait(60) == 0 and asking.stdout.read() == "stopped\n"
        finally:
            asking.kill()


def test_statements_that_open_a_run_leave_ctrl_c_what_it_is() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="else"), interruptible():
        raise RuntimeError("something else")


def test_a_query_cannot_take_all_memory(finished: Path) -> None:
    with pytest.raises(StoreError, match=r"[Aa]lloc|memory") as caught:
        ask(finished, "select list_sort(range(2_000_000_000))[1]", Limits(rows=10, timeout_s=600))
    assert "\n" not in str(caught.value)
    assert count(finished) == 10
