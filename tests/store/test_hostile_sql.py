"""Forbidden acts of a query: write, read a file, load an extension, learn a secret, or go on past its limit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

from evo.store.reader import TIMED_OUT
from tests.choosing import some_slow
from tests.store.story import stored

pytestmark = pytest.mark.usefixtures("made_once")
LIMIT_S = 0.1
WRITES = (
    "INSERT INTO events VALUES (now(), 'x', NULL, '')",
    "UPDATE events SET kind = ''",
    "DELETE FROM runs",
    "TRUNCATE runs",
    "MERGE INTO events USING (SELECT 1) AS s ON false WHEN NOT MATCHED THEN INSERT VALUES (now(), 'x', NULL, '')",
    "WITH x AS (INSERT INTO events VALUES (now(), 'x', NULL, '') RETURNING *) FROM x",
    "WITH x AS (DELETE FROM runs RETURNING *) SELECT * FROM x",
    "EXPLAIN ANALYZE DELETE FROM runs",
    "EXPLAIN ANALYZE COPY runs TO '{folder}/out.csv'",
    "CREATE TABLE t AS SELECT 1",
    "CREATE TEMP TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW best AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE SECRET s (TYPE s3)",
    "DROP TABLE runs",
    "ALTER TABLE runs ADD COLUMN x INTEGER",
    "COMMENT ON TABLE runs IS 'x'",
    "VACUUM",
    "CHECKPOINT",
    "FROM force_checkpoint()",
    "ATTACH '{folder}/new.duckdb'",
    "ATTACH '{folder}/one/evo.duckdb' AS w (READ_WRITE)",
    "DETACH evo",
    "USE memory",
    "COPY runs TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.parquet'",
    "COPY runs FROM '{folder}/secret.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}'",
    "SELECT 1; DROP TABLE runs",
    "SELECT 1 -- ;\n; DROP TABLE runs",
    "/* SELECT 1 */ DROP TABLE runs",
    "SELECT 1 /* /* */ ; */; DROP TABLE runs",
    "FROM query('DROP TABLE runs')",
    "PREPARE p AS DROP TABLE runs",
    "BEGIN",
)
READS = (
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_text('{folder}/secret.csv')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('{folder}/secret.csv')",
    "SELECT * FROM parquet_metadata('{folder}/secret.csv')",
    "SELECT * FROM sniff_csv('{folder}/secret.csv')",
    "SELECT * FROM glob('{folder}/*')",
    "FROM '{folder}/secret.csv'",
    "FROM query_table('{folder}/secret.csv')",
    "FROM read_duckdb('{folder}/other.duckdb', table_name='secret')",
    "DESCRIBE '{folder}/secret.csv'",
    "FROM 'http://127.0.0.1:1/x.parquet'",
    "FROM sqlite_scan('{folder}/secret.csv', 'x')",
    "SELECT getenv('SECRET')",
    "FROM which_secret('s3://x', 's3')",
    "FROM folder",  # a variable of this program
)
LOADS = (
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "PRAGMA enable_profiling",
    "SELECT * FROM enable_profiling()",
    "CALL enable_logging(storage_path='{folder}/log')",
)
ENDLESS = (
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "SELECT count(*) FROM range(100000000) AS a, range(1000000) AS b WHERE a.range * b.range % 7 = 1",
    "SELECT sum(a.range) FROM range(100000000000) AS a JOIN range(100000000000) AS b ON a.range < b.range",
    "SELECT * FROM range(10000000000) ORDER BY hash(range)",
    "SELECT sleep_ms(100000)",
    "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)",
    "SELECT repeat('x', 4000000000)",
)


def state(folder: Path) -> dict[str, str]:
    """Every file below, by what is in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    for name in ("one", "two"):
        stored(place / name)
    (place / "secret.csv").write_text("secret,1\n")
    with duckdb.connect(str(place / "other.duckdb")) as connection:
        connection.execute("CREATE TABLE secret AS SELECT 'secret' AS x")
    return place


ASKING = """
import json, sys
from pathlib import Path
from evo.store import Limits, StoreError, ask
where, timeout_s, statements = json.loads(sys.stdin.read())
asked = [Path(run) for run in where] if where[1:] else Path(where[0])
folder = "a variable of this program"
for statement in statements:
    try:
        ask(asked, statement, Limits(rows=1000, timeout_s=timeout_s))
        print(json.dumps(None), flush=True)
    except StoreError as error:
        print(json.dumps(str(error)), flush=True)
"""
"""A query that heeds no interrupt ends its process: never the tests' own, which a busy machine may hold up as well."""


def answers(where: Sequence[Path], statements: Sequence[str], timeout_s: float) -> Iterator[str | None]:
    """The refusal of each statement; None: there is none."""
    while statements:
        given = json.dumps([[str(run) for run in where], timeout_s, list(statements)])
        made = subprocess.run(
            [sys.executable, "-c", ASKING], input=given, capture_output=True, text=True,
            env={**os.environ, "SECRET": "secret"},
        )  # fmt: skip
        said = [json.loads(line) for line in made.stdout.splitlines()]
        yield from said
        statements = statements[len(said) :]
        if statements:
            assert made.returncode == TIMED_OUT, made.stderr
            yield made.stderr.strip()
            statements = statements[1:]


@pytest.mark.parametrize("several", some_slow([False, True], 1, ids=["one run", "several runs"]))
@pytest.mark.parametrize(
    "statements",
    # Three that do not end are asked by default in test_cli.py, one that heeds no interrupt in test_reader.py.
    [*map(pytest.param, (WRITES, READS, LOADS)), pytest.param(ENDLESS, marks=pytest.mark.slow)],
    ids=["writes", "reads", "loads", "endless"],
)
def test_a_hostile_query_is_refused_in_one_line_and_leaves_nothing(
    statements: tuple[str, ...], several: bool, folder: Path
) -> None:
    where = [folder / "one", folder / "two"] if several else [folder / "one"]
    before = state(folder)
    asked = [statement.replace("{folder}", str(folder)) for statement in statements]
    refused = list(answers(where, asked, LIMIT_S if statements is ENDLESS else 20.0))
    assert len(refused) == len(asked)
    for statement, said in zip(asked, refused, strict=True):
        assert said and "\n" not in said and "'secret'" not in said, statement
    assert state(folder) == before


def test_there_are_sixty_of_them() -> None:
    assert len({*WRITES, *READS, *LOADS, *ENDLESS}) >= 60
