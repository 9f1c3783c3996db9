"""Cost of questions to a large run: CPU seconds of every view, beside the same question to bare tables.

    python -m tests.bench.views --individuals 1000000 [--store FOLDER] [--repeat 3] [--only best lineage]

Makes a run of so many individuals (four tasks, two parents for one request in seven, duplicates, refuted kernels,
screenings, full verdicts and confirmations), and asks. With `--store` the run is kept there and taken again. Prints
JSON: `made` has the seconds of making it; each question the CPU seconds (least of `--repeat`) by way of the view,
those of the bare tables, and their ratio; `summary_s` is what the end of a search reads, `lineage_s` what `evo
lineage` does.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from evo.api import Run
from evo.config import RunConfig
from evo.report.status import summary
from evo.store import open_reader, schema
from evo.store.writer import FILE, STORAGE_VERSION

HISTORY = """
CREATE TEMP MACRO draw(n, salt, below) AS (hash(n * 131 + salt) % below)::BIGINT;
CREATE TEMP MACRO id_of(task, ordinal) AS md5(task || ordinal);
CREATE TEMP MACRO task_of(n) AS (['softmax/fp32/cpu', 'softmax/fp64/cpu', 'gelu/fp32/cpu', 'gelu/fp64/cpu'])[n % 4 + 1];
CREATE TEMP MACRO fate(ordinal) AS CASE
    WHEN ordinal = 0 OR draw(ordinal, 5, 100) < 50 THEN 'correct' WHEN draw(ordinal, 5, 100) < 78 THEN 'slower'
    WHEN draw(ordinal, 5, 100) < 86 THEN 'wrong' WHEN draw(ordinal, 5, 100) < 97 THEN 'compile_error'
    ELSE 'runtime_error' END;
CREATE TEMP MACRO gained(ordinal) AS ln(1 + ordinal / 20000) + draw(ordinal, 6, 1000) / 5000;

-- ordinal counts the kernels of a task; every tenth request has none, or one that was there before.
CREATE TEMP TABLE requests AS
SELECT
    n, task_of(n) AS task, n // 4 AS number, task_of(n) || '#' || n // 4 AS request_id,
    CASE
        WHEN n < 4 OR draw(n, 1, 100) >= 10 THEN 'new' WHEN draw(n, 1, 100) < 5 THEN 'no_child' ELSE 'again'
    END AS kind,
    sum((kind = 'new')::INT) OVER (PARTITION BY n % 4 ORDER BY n)::BIGINT - 1 AS ordinal,
    to_timestamp(1.7e9 + n / 20) AS created_at
FROM range({individuals} * 10 // 9) AS r(n);

CREATE TEMP TABLE parentage AS
SELECT
    request_id, position::INTEGER AS position, known - 1 - draw(n, 10 + position, least(known, 1000)) AS parent,
    id_of(task, parent) AS parent_id
FROM (SELECT *, ordinal + (kind <> 'new')::INT AS known FROM requests WHERE n >= 4), range(2) AS p(position)
WHERE position = 0 OR draw(n, 2, 7) = 0;

"""
ROWS = """
INSERT INTO runs BY NAME
SELECT 'bench' AS run_id, to_timestamp(1.7e9) AS created_at, '0' AS engine_version, 1 AS seed, $config AS config_json,
    '{}' AS host_json;

INSERT INTO kernels
SELECT id_of(task, ordinal), id_of(task, ordinal), 'softmax', 'cpu', repeat(id_of(task, ordinal), 8), '{}'
FROM requests WHERE kind = 'new' ORDER BY n;

INSERT INTO asks
SELECT
    2 * n + 1, 0, 1, task, number, request_id, 'rewrite', '{"number":' || number || '}', md5(request_id), created_at
FROM requests ORDER BY n;

INSERT INTO parents SELECT request_id, position, parent_id FROM parentage ORDER BY request_id, position;

INSERT INTO proposals BY NAME
SELECT
    request_id, task, number,
    (['recombine', 'transform', 'tune', 'rewrite', 'crossover'])[draw(n, 3, 5) + 1] AS mutator,
    CASE WHEN draw(n, 4, 100) = 0 THEN 'model' || n % 2 END AS model,
    CASE requests.kind
        WHEN 'new' THEN id_of(task, ordinal) WHEN 'again' THEN id_of(task, draw(n, 7, ordinal + 1))
    END AS kernel_id,
    'unroll loop ' || n % 17 AS description, CASE requests.kind WHEN 'no_child' THEN 'nothing applies' END AS failure,
    'child' AS kind, requests.kind = 'new' AS is_new, generation, coalesce(parents, []) AS parents, 0.6 AS evaluate_s,
    (number % 2)::INTEGER AS island,
    0.25 AS seconds, created_at
FROM requests JOIN generations USING (n)
LEFT JOIN (
    SELECT request_id, list(parent_id ORDER BY position) AS parents FROM parentage GROUP BY request_id
) USING (request_id) ORDER BY n;

CREATE TEMP TABLE judged AS
SELECT
    *, CASE WHEN kind = 'new' THEN ordinal ELSE draw(n, 7, ordinal + 1) END AS own,
    -- Of ten kernels one is another's machine code again.
    CASE WHEN own % 10 = 3 THEN own - 1 - 10 * draw(own, 8, least(own // 10 + 1, 50)) ELSE own END AS original,
    kind = 'again' OR original <> own AS duplicate
FROM requests WHERE kind <> 'no_child';

INSERT INTO evaluations BY NAME
SELECT
    request_id || '@' || level AS evaluation_id, request_id, task, id_of(task, own) AS kernel_id, level,
    CASE WHEN duplicate THEN 'duplicate' ELSE found END AS status, CASE WHEN duplicate THEN found END AS inherited,
    CASE WHEN duplicate THEN id_of(task, original) END AS duplicate_of, found || ' on rows=1024' AS message,
    CASE found WHEN 'correct' THEN gained(original) + rank / 1e4 END AS log_speedup,
    CASE found WHEN 'correct' THEN 0.01 END AS log_speedup_se, md5(task || original || 'code') AS code_digest,
    'simd' || draw(original, 20, 5) || '/serial/code' || draw(original, 21, 6) AS cell, '{}' AS facts_json,
    200.0 AS build_ms, 100.0 AS verify_ms, 100.0 AS time_ms, 'worker' AS worker, created_at,
    kind = 'new' AND rank = max(rank) OVER (PARTITION BY request_id) AS is_verdict
FROM (
    SELECT *, ['screen', 'full', 'confirmed'][rank + 1] AS level,
        CASE WHEN rank = 1 AND draw(original, 31, 100) = 0 THEN 'wrong' ELSE fate(original) END AS found
    FROM judged, range(3) AS r(rank)
    WHERE rank = 0 OR (NOT duplicate AND fate(original) = 'correct' AND draw(original, 30, 10) = 0
        AND (rank = 1 OR draw(original, 31, 1000) = 1))
) ORDER BY n, rank;

INSERT INTO evaluations BY NAME
SELECT
    task || '/final/' || row_number() OVER () AS evaluation_id, task, id_of(task, ordinal) AS kernel_id,
    'confirmed' AS level, 'correct' AS status, '' AS message, gained(ordinal) AS log_speedup, 0.005 AS log_speedup_se,
    'simd0/serial/code1' AS cell, true AS is_verdict, max(created_at) OVER () AS created_at
FROM requests WHERE kind = 'new' AND ordinal % 10 <> 3 AND fate(ordinal) = 'correct'
QUALIFY row_number() OVER (PARTITION BY task ORDER BY gained(ordinal) DESC) <= 3;

INSERT INTO tells
SELECT
    2 * r.n + 2, r.task, r.number, r.request_id, e.kernel_id, e.evaluation_id, coalesce(e.status, 'no_child'),
    e.log_speedup, 0.4, 0, md5(r.request_id), r.created_at
FROM requests AS r LEFT JOIN (FROM evaluations WHERE level = 'screen') AS e USING (request_id) ORDER BY r.n;

INSERT INTO timings
SELECT evaluation_id, 'rows=1024', 100 / exp(log_speedup), 100, log_speedup, 0.01, 20
FROM evaluations WHERE status = 'correct';

INSERT INTO migrations
SELECT
    r.task, r.number, e.kernel_id, r.number % 2, (r.number + 1) % 2, 'migration',
    (['new', 'improved', 'rejected'])[draw(r.n, 9, 3) + 1], r.created_at
FROM requests AS r JOIN (FROM evaluations WHERE level = 'screen' AND status = 'correct') AS e USING (request_id)
WHERE r.number % 20 = 0 ORDER BY r.n;

INSERT INTO llm_calls BY NAME
SELECT
    request_id AS call_id, request_id, 'rewrite' AS role, model, '[]' AS messages_json, 'answered' AS status,
    1000 AS tokens_in, 100 AS tokens_out, 0.01 AS cost_usd, 1 AS attempts, 0 AS lost_tokens, 0.0 AS lost_usd,
    1.5 AS latency_s, request_id AS cache_key, 0 AS sample, created_at
FROM proposals WHERE model IS NOT NULL;
"""

SEVERITY = "list_position(['screen', 'full', 'confirmed'], level)"
JUDGED = f"""
    SELECT task, kernel_id, arg_max(coalesce(inherited, status), {SEVERITY}) AS status,
           arg_max(log_speedup, {SEVERITY}) AS log_speedup, arg_max(cell, {SEVERITY}) AS cell
    FROM evaluations GROUP BY task, kernel_id
"""
UP = """
    WITH RECURSIVE up AS (
        SELECT kernel_id, {parent} AS parent_id FROM {table} WHERE kernel_id = '{kernel}'
        UNION
        SELECT i.kernel_id, i.parent_id FROM up JOIN (SELECT kernel_id, {parent} AS parent_id FROM {table}) AS i
            ON i.kernel_id = up.parent_id
    ) SELECT count(*) FROM up
"""
BARE_UP = UP.format(
    table="proposals LEFT JOIN (FROM parents WHERE position = 0) USING (request_id)",
    parent="parent_id",
    kernel="{kernel}",
)
QUESTIONS: dict[str, tuple[str, str]] = {
    "verdicts of all": (
        "SELECT status, count(*) FROM verdicts GROUP BY 1",
        f"SELECT status, count(*) FROM ({JUDGED}) GROUP BY 1",
    ),
    "verdict of one": (
        "FROM verdicts WHERE kernel_id = '{kernel}'",
        "FROM evaluations WHERE kernel_id = '{kernel}'",
    ),
    "individual of one": (
        "FROM individuals WHERE kernel_id = '{kernel}'",
        "FROM proposals WHERE kernel_id = '{kernel}'",
    ),
    "lineage of one": (
        "FROM lineage WHERE kernel_id = '{kernel}'",
        "FROM proposals JOIN evaluations USING (request_id) JOIN parents USING (request_id)"
        " WHERE proposals.kernel_id = '{kernel}'",
    ),
    "lineage of all": (
        "SELECT count(*), max(generation), sum(log_speedup) FROM lineage",
        f"SELECT count(*), max(number), sum(log_speedup) FROM proposals LEFT JOIN ({JUDGED}) USING (task, kernel_id)",
    ),
    "principal ancestors, own CTE": (
        UP.format(table="individuals", parent="parent_id", kernel="{kernel}"),
        BARE_UP,
    ),
    "ancestors of one": (
        "SELECT count(*), max(generation) FROM ancestors('{task}', '{kernel}')",
        "WITH RECURSIVE up AS (SELECT '{kernel}' AS kernel_id UNION SELECT parent_id FROM up JOIN (SELECT kernel_id,"
        " parent_id FROM proposals JOIN parents USING (request_id) WHERE task = '{task}') USING (kernel_id))"
        " SELECT count(DISTINCT kernel_id), max(number), count(DISTINCT status) FROM up JOIN proposals"
        " USING (kernel_id) LEFT JOIN evaluations USING (task, kernel_id) WHERE task = '{task}'",
    ),
    "best": (
        "FROM best",
        f"SELECT task, arg_max(kernel_id, log_speedup), max(log_speedup) FROM ({JUDGED})"
        " WHERE status = 'correct' GROUP BY task",
    ),
    "elites": (
        "FROM elites",
        f"SELECT task, cell, arg_max(kernel_id, log_speedup), max(log_speedup) FROM ({JUDGED})"
        " WHERE status = 'correct' GROUP BY task, cell",
    ),
    "progress": (
        "SELECT max(best_log_speedup), count(*) FILTER (improved) FROM progress",
        "SELECT max(best), count(*) FILTER (log_speedup = best) FROM (SELECT log_speedup, max(log_speedup) OVER"
        " (PARTITION BY task ORDER BY e.created_at, e.rowid) AS best FROM evaluations AS e JOIN (SELECT task, kernel_id"
        f" FROM ({JUDGED}) WHERE status = 'correct') USING (task, kernel_id))",
    ),
    "mutator_gain": (
        "FROM mutator_gain",
        "SELECT p.task, p.mutator, count(*), count(*) FILTER (child.status = 'correct'), avg(child.log_speedup -"
        " parent.log_speedup), sum(p.seconds) FROM proposals AS p LEFT JOIN (FROM parents WHERE position = 0) USING"
        f" (request_id) LEFT JOIN ({JUDGED}) AS child USING (task, kernel_id) LEFT JOIN ({JUDGED}) AS parent ON"
        " parent.task = p.task AND parent.kernel_id = parent_id GROUP BY ALL",
    ),
    "model_gain": (
        "FROM model_gain",
        "SELECT p.task, p.model, count(*), count(*) FILTER (child.status = 'correct'), avg(child.log_speedup -"
        " parent.log_speedup), sum(p.seconds) FROM (FROM proposals WHERE model IS NOT NULL) AS p LEFT JOIN (FROM"
        f" parents WHERE position = 0) USING (request_id) LEFT JOIN ({JUDGED}) AS child USING (task, kernel_id) LEFT"
        f" JOIN ({JUDGED}) AS parent ON parent.task = p.task AND parent.kernel_id = parent_id GROUP BY ALL",
    ),
    "failures": (
        "FROM failures",
        "SELECT task, status, count(*), arg_max(message, created_at) FROM (SELECT task, kernel_id,"
        f" arg_max(coalesce(inherited, status), {SEVERITY}) AS status, arg_max(message, {SEVERITY}) AS message,"
        f" arg_max(created_at, {SEVERITY}) AS created_at FROM evaluations GROUP BY task, kernel_id)"
        " WHERE status NOT IN ('correct', 'slower') GROUP BY task, status",
    ),
    "migrants": (
        "SELECT kind, outcome, count(*), sum(children), sum(improved) FROM migrants GROUP BY ALL",
        "SELECT m.kind, m.outcome, count(DISTINCT m.rowid), count(*), count(*) FILTER (child.log_speedup >"
        " own.log_speedup) FROM migrations AS m LEFT JOIN (SELECT task, island, number, kernel_id, unnest(parents) AS"
        " parent_id FROM proposals) AS p ON p.task = m.task AND p.parent_id = m.kernel_id AND p.island = m.island AND"
        f" p.number >= m.number LEFT JOIN ({JUDGED}) AS child ON child.task = p.task AND child.kernel_id ="
        f" p.kernel_id LEFT JOIN ({JUDGED}) AS own ON own.task = m.task AND own.kernel_id = m.kernel_id GROUP BY ALL",
    ),
    "stretches": (
        "SELECT worker, count(*), sum(busy_s) FROM stretches GROUP BY worker",
        "SELECT worker, count(*), sum(ended - greatest(before, began)) FROM (SELECT *, max(ended) OVER (PARTITION BY"
        " worker ORDER BY began, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM (SELECT worker,"
        " epoch(created_at) AS ended, ended - (coalesce(build_ms, 0) + coalesce(verify_ms, 0) + coalesce(time_ms, 0) +"
        " coalesce(confirm_ms, 0)) / 1e3 AS began FROM evaluations WHERE worker IS NOT NULL)) WHERE ended > before"
        " GROUP BY worker",
    ),
    "cost": ("FROM cost", "SELECT model, count(*), sum(cost_usd) FROM llm_calls GROUP BY model"),
}
"""By name: the question by way of a view, and to the tables."""


def make(folder: Path, individuals: int) -> dict[str, float]:
    """Make a run; return what that took, in seconds, and the size of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    config = RunConfig(operators=["softmax", "gelu"], dtypes=["fp32", "fp64"], budget={"evaluations": 1}).resolved()
    with duckdb.connect(
        str(path), config={"storage_compatibility_version": STORAGE_VERSION, "memory_limit": "6GB"}
    ) as connection:
        begin = time.monotonic()
        schema.make(connection)
        connection.execute(HISTORY.format(individuals=individuals))
        generations = _generations(connection)  # noqa: F841 (DuckDB finds it by its name)
        connection.execute("CREATE TEMP TABLE generations AS FROM generations")
        for statement in duckdb.extract_statements(ROWS):
            parameters = {"config": config.to_json()} if "$config" in statement.query else None
            connection.execute(statement, parameters)
        connection.execute("CHECKPOINT")
    return {"made_s": round(time.monotonic() - begin, 1), "mb": round(path.stat().st_size / 1e6)}


def _generations(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """By request, one more than the highest generation of its parents."""
    requests = connection.execute(
        "SELECT n, task, ordinal, kind, coalesce(list(parent) FILTER (parent IS NOT NULL), [])"
        " FROM requests LEFT JOIN parentage USING (request_id) GROUP BY ALL ORDER BY n"
    ).fetchall()
    known: dict[tuple[str, int], int] = {}
    found = []
    for n, task, ordinal, kind, parents in requests:
        generation = 1 + max(known.get((task, parent), 0) for parent in parents) if parents else 0
        if kind == "new":
            known[task, ordinal] = generation
        found.append((n, generation))
    return pa.table({"n": [n for n, _ in found], "generation": [generation for _, generation in found]})


def cpu_s(act: Callable[[], Any], repeat: int) -> float:
    """CPU seconds of this process for one act, the least of several."""
    taken = []
    for _ in range(repeat):
        begin = time.process_time()
        act()
        taken.append(time.process_time() - begin)
    return round(min(taken), 3)


def asked(folder: Path, sql: str) -> Callable[[], Any]:
    def act() -> Any:
        with open_reader(folder) as connection:
            return connection.sql(sql).to_arrow_table()

    return act


def measure(folder: Path, repeat: int, only: list[str]) -> dict[str, Any]:
    with open_reader(folder) as connection:  # of generations that a long search has
        ((kernel, task),) = connection.execute(
            "SELECT kernel_id, task FROM proposals WHERE kernel_id IS NOT NULL ORDER BY created_at DESC LIMIT 1"
        ).fetchall()
    found: dict[str, Any] = {}
    for name, (view, bare) in QUESTIONS.items():
        if only and not any(word in name for word in only):
            continue
        pair = [
            cpu_s(asked(folder, sql.replace("{kernel}", kernel).replace("{task}", task)), repeat)
            for sql in (bare, view)
        ]
        found[name] = {"bare_s": pair[0], "view_s": pair[1], "ratio": round(pair[1] / max(pair[0], 0.001), 1)}
        print(name, found[name], file=sys.stderr, flush=True)
    if not only or "summary" in only:
        found["summary_s"] = cpu_s(lambda: summary(Run(folder)), repeat)
        found["best_kernels_s"] = cpu_s(lambda: Run(folder).best(), repeat)
    if not only or "ancestry" in only:
        found["lineage_s"] = cpu_s(lambda: Run(folder).lineage(kernel, task), repeat)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--store", type=Path, help="keep the run here, or take the one that is there")
    parser.add_argument("--only", nargs="+", default=[], help="words of the questions to ask")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.store or Path(scratch, "run")
        result: dict[str, Any] = {"individuals": arguments.individuals}
        if not (folder / FILE).exists():
            result["made"] = make(folder, arguments.individuals)
            print(result["made"], file=sys.stderr, flush=True)
        print(json.dumps(result | measure(folder, arguments.repeat, arguments.only), indent=2))


if __name__ == "__main__":
    main()
