"""Cost of named queries and of the Python API on a large run, beside the same questions to bare tables.

    python -m tests.bench.asking --individuals 1000000 [--store FOLDER] [--repeat 3] [--only mutators best]

Makes the run of `tests.bench.views`, with trials, metrics and authors besides, and asks. Prints JSON: of each question
the CPU seconds (least of `--repeat`) as a user asks it, those of hand-written SQL over the tables alone, which
finds nearly the same, and their ratio. Opening the file is part of both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

import evo
from evo.store import open_reader
from evo.store.named import named_queries
from evo.store.writer import FILE
from tests.bench.views import JUDGED, cpu_s, make

ENRICHED = """
INSERT INTO trials SELECT request_id, task, md5(task || number // 40), kernel_id, '{}', 'correct', 0.0, created_at
    FROM proposals WHERE mutator = 'tune' AND kernel_id IS NOT NULL ORDER BY rowid;
INSERT INTO metrics SELECT task, kernel_id, 'dram_busy', number % 100, '%' FROM proposals
    WHERE is_new AND number % 50 = 0 ORDER BY rowid;
UPDATE proposals SET author = 'ann' WHERE is_new AND number % 1000 = 7;
"""
RAISED = f"""
    SELECT request_id, best - coalesce(lag(best) OVER (PARTITION BY task ORDER BY seq), 0) AS raised FROM (
        SELECT t.request_id, t.task, t.seq, max(j.log_speedup) OVER (PARTITION BY t.task ORDER BY t.seq) AS best
        FROM tells AS t LEFT JOIN (FROM ({JUDGED}) WHERE status = 'correct') AS j USING (task, kernel_id)
    )
"""
GAINED = f"""
    SELECT {{key}}, count(*), count(*) FILTER (p.is_new), count(*) FILTER (child.status = 'correct'),
        avg(child.log_speedup - parent.log_speedup), max(child.log_speedup - parent.log_speedup),
        sum(r.raised) FILTER (r.raised > 0), sum(p.seconds + p.evaluate_s), sum(c.cost_usd)
    FROM {{proposals}} AS p
    LEFT JOIN ({JUDGED}) AS child ON p.is_new AND child.task = p.task AND child.kernel_id = p.kernel_id
    LEFT JOIN ({JUDGED}) AS parent ON p.is_new AND parent.task = p.task AND parent.kernel_id = p.parents[1]
    LEFT JOIN ({RAISED}) AS r USING (request_id)
    LEFT JOIN (SELECT request_id, sum(cost_usd) AS cost_usd FROM llm_calls GROUP BY 1) AS c USING (request_id)
    GROUP BY ALL
"""
BEST = (
    f"SELECT task, arg_max(kernel_id, log_speedup) AS kernel_id FROM ({JUDGED}) WHERE status = 'correct' GROUP BY task"
)
UP = f"""
    up AS (
        FROM ({BEST})
        UNION
        SELECT up.task, unnest(p.parents) FROM up
        JOIN (SELECT task, kernel_id, parents FROM proposals WHERE is_new) AS p USING (task, kernel_id)
    )
"""
BARE: dict[str, str] = {
    "mutators": GAINED.format(key="split_part(p.task, '/', 1) AS operator, p.mutator", proposals="proposals"),
    "models": GAINED.format(
        key="split_part(p.task, '/', 1) AS operator, p.model", proposals="(FROM proposals WHERE model IS NOT NULL)"
    ),
    "rewrites": GAINED.format(
        key="split_part(p.task, '/', 1) AS operator, p.rewrite",
        proposals="""(
            SELECT *, unnest(string_split(coalesce(description, ''), '; ')) AS rewrite
            FROM proposals WHERE mutator = 'transform' AND kernel_id IS NOT NULL
        )""",
    ),
    "contributors": f"""
        WITH RECURSIVE judged AS MATERIALIZED ({JUDGED}), {UP},
        links AS MATERIALIZED (
            SELECT task, kernel_id AS child, unnest(parents) AS kernel_id, len(parents) AS parts
            FROM proposals JOIN up USING (task, kernel_id) WHERE is_new
        ),
        passed AS (
            SELECT task, kernel_id, 1::DOUBLE AS part FROM ({BEST})
            UNION ALL
            SELECT p.task, l.kernel_id, sum(p.part / l.parts)
            FROM passed AS p JOIN links AS l ON l.task = p.task AND l.child = p.kernel_id GROUP BY ALL
        )
        SELECT p.task, p.mutator, p.model, p.author, count(*), sum(part * log_speedup)
        FROM (SELECT task, kernel_id, sum(part) AS part FROM passed GROUP BY ALL)
        JOIN (FROM proposals WHERE is_new) AS p USING (task, kernel_id) LEFT JOIN judged USING (task, kernel_id)
        GROUP BY ALL
    """,
    "repeated_failures": """
        SELECT split_part(task, '/', 1), status, regexp_replace(message, '[0-9]+', 'N', 'g'), count(*),
            list(DISTINCT mutator), sum(seconds + evaluate_s), max(judged_at)
        FROM (SELECT task, kernel_id, arg_max(coalesce(inherited, status), level) AS status,
            arg_max(message, level) AS message, max(created_at) AS judged_at FROM evaluations GROUP BY ALL)
        JOIN (FROM proposals WHERE is_new) USING (task, kernel_id)
        WHERE status NOT IN ('correct', 'slower') GROUP BY ALL
        UNION ALL
        SELECT split_part(task, '/', 1), 'no_child', regexp_replace(failure, '[0-9]+', 'N', 'g'), count(*),
            list(DISTINCT mutator), sum(seconds), max(created_at)
        FROM proposals WHERE kernel_id IS NULL GROUP BY ALL
    """,
    "duplicates": """
        SELECT p.task, p.mutator, count(*), count(*) FILTER (NOT p.is_new), count(*) FILTER (p.is_new AND
            e.status = 'duplicate'), sum(p.evaluate_s)
        FROM proposals AS p JOIN (FROM evaluations WHERE level = 'screen') AS e USING (request_id) GROUP BY ALL
    """,
    "operators": f"""
        SELECT task, max(log_speedup) FILTER (status = 'correct'), count(*), count(*) FILTER (status = 'correct'),
            any_value(n), any_value(seconds) FROM ({JUDGED})
        JOIN (SELECT task, count(*) AS n, sum(p.evaluate_s) AS seconds, sum(cost_usd) AS cost_usd FROM tells
            JOIN proposals AS p USING (task, request_id) GROUP BY task) USING (task) GROUP BY task
    """,
    "stagnation": f"""
        SELECT task, max(seq) FILTER (raised > 0), max(seq), count(*) FILTER (raised > 0),
            max(created_at) FILTER (raised > 0)
        FROM tells JOIN ({RAISED}) USING (request_id) GROUP BY task
    """,
    "leaders": f"""
        SELECT p.* FROM (
            SELECT task, kernel_id, log_speedup, best,
                lag(best) OVER (PARTITION BY task ORDER BY created_at, place) AS before
            FROM (SELECT e.task, e.kernel_id, j.log_speedup, e.created_at, e.rowid AS place, max(j.log_speedup) OVER (
                PARTITION BY e.task ORDER BY e.created_at, e.rowid) AS best
                FROM evaluations AS e JOIN ({JUDGED}) AS j USING (task, kernel_id) WHERE j.status = 'correct')
        ) AS b JOIN (FROM proposals WHERE is_new) AS p USING (task, kernel_id) WHERE best > coalesce(before, '-inf')
    """,
    "lost_time": """
        SELECT task, 'propose', kernel_id IS NULL, count(*), sum(seconds) FROM proposals GROUP BY ALL
        UNION ALL SELECT task, 'build', status, count(*), sum(build_ms) FROM evaluations GROUP BY ALL
        UNION ALL SELECT task, 'verify', status, count(*), sum(verify_ms) FROM evaluations GROUP BY ALL
        UNION ALL SELECT task, 'time', status, count(*), sum(time_ms) FROM evaluations GROUP BY ALL
        UNION ALL SELECT task, 'confirm', status, count(*), sum(confirm_ms) FROM evaluations
            WHERE confirm_ms IS NOT NULL GROUP BY ALL
    """,
    "metric": f"""
        WITH RECURSIVE judged AS MATERIALIZED ({JUDGED}), up AS (
            FROM ({BEST})
            UNION
            SELECT up.task, p.parents[1] FROM up
            JOIN (SELECT task, kernel_id, parents FROM proposals WHERE is_new AND len(parents) > 0) AS p
            USING (task, kernel_id)
        )
        SELECT * FROM up JOIN metrics USING (task, kernel_id) JOIN (FROM proposals WHERE is_new) USING (task, kernel_id)
        LEFT JOIN judged USING (task, kernel_id)
    """,
    "tuning": f"""
        SELECT t.task, t.source_id, count(*), max(child.log_speedup), arg_max(t.kernel_id, child.log_speedup),
            max(parent.log_speedup), sum(p.seconds + p.evaluate_s)
        FROM trials AS t JOIN proposals AS p USING (request_id)
        LEFT JOIN ({JUDGED}) AS child ON child.task = t.task AND child.kernel_id = t.kernel_id
        LEFT JOIN ({JUDGED}) AS parent ON parent.task = t.task AND parent.kernel_id = p.parents[1]
        GROUP BY t.task, t.source_id
    """,
    "outside": f"""
        WITH RECURSIVE judged AS MATERIALIZED ({JUDGED}), {UP}
        SELECT p.task, p.author, count(*), max(log_speedup), count(up.kernel_id), sum(r.raised) FILTER (r.raised > 0)
        FROM (FROM proposals WHERE is_new AND author IS NOT NULL) AS p LEFT JOIN judged USING (task, kernel_id)
        LEFT JOIN up USING (task, kernel_id) LEFT JOIN ({RAISED}) AS r USING (request_id) GROUP BY ALL
    """,
}
"""By the name of the query."""
OF_ONE = {
    "sql": "SELECT status, count(*) FROM evaluations GROUP BY 1",
    "kernel": """
        SELECT * FROM kernels JOIN proposals USING (kernel_id) JOIN evaluations USING (task, kernel_id)
        LEFT JOIN timings USING (evaluation_id) WHERE kernel_id = '{kernel}'
    """,
    "lineage": """
        WITH RECURSIVE up AS (
            SELECT '{task}' AS task, '{kernel}' AS kernel_id
            UNION
            SELECT up.task, unnest(p.parents) FROM up
            JOIN (SELECT task, kernel_id, parents FROM proposals WHERE is_new AND task = '{task}') AS p
            USING (task, kernel_id)
        ) SELECT * FROM up JOIN (FROM proposals WHERE is_new) USING (task, kernel_id)
        LEFT JOIN (FROM evaluations WHERE is_verdict) USING (task, kernel_id)
    """,
    "best": f"SELECT * FROM ({BEST}) JOIN kernels USING (kernel_id) JOIN proposals USING (task, kernel_id)",
}
"""By the method of `Run`: nearly the same by SQL over the tables, as rows of Python where the method makes objects."""


def enriched(folder: Path, individuals: int) -> dict[str, float]:
    """Make the run; return what that took, in seconds."""
    took = make(folder, individuals)
    with duckdb.connect(str(folder / FILE)) as connection:
        for statement in duckdb.extract_statements(ENRICHED):
            connection.execute(statement)
        connection.execute("CHECKPOINT")
    return took


def bare(folder: Path, sql: str, *, as_rows: bool) -> Callable[[], int]:
    """A question to the tables; its answer is the number of rows."""

    def act() -> int:
        with open_reader(folder) as connection:
            found = connection.sql(sql).to_arrow_table()
            return len(found.to_pylist()) if as_rows else int(found.num_rows)

    return act


def compared(name: str, plain: Callable[[], Any], ours: Callable[[], Any], repeat: int) -> dict[str, Any]:
    """The cost of both."""
    pair = cpu_s(plain, repeat), cpu_s(ours, repeat)
    found = {"bare_s": pair[0], "ours_s": pair[1], "ratio": round(pair[1] / max(pair[0], 0.001), 1)}
    print(name, found, file=sys.stderr, flush=True)
    return found


def measure(folder: Path, repeat: int, only: list[str]) -> dict[str, Any]:
    """The cost of every question, in CPU seconds."""
    run, found = evo.open(folder), {}
    for name, known in named_queries().items():
        if not known.needs_several and (not only or name in only):
            plain, ours = bare(folder, BARE[name], as_rows=False), lambda name=name: run.query(name)
            found[name] = compared(name, plain, ours, repeat)
    (last,) = run.sql("select kernel_id, task from individuals order by created_at desc limit 1").to_pylist()
    kernel, task = last["kernel_id"], last["task"]
    methods: dict[str, Callable[[], Any]] = {
        "sql": lambda: run.sql(OF_ONE["sql"]),
        "kernel": lambda: run.kernel(kernel),
        "lineage": lambda: run.lineage(kernel),
        "best": run.best,
    }
    for name, method in methods.items():
        if not only or name in only:
            sql = OF_ONE[name].replace("{kernel}", kernel).replace("{task}", task)
            found[f"Run.{name}"] = compared(f"Run.{name}", bare(folder, sql, as_rows=name != "sql"), method, repeat)
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--store", type=Path, help="keep the run here, or take the one that is there")
    parser.add_argument("--only", nargs="+", default=[], help="names of queries, or of methods")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.store or Path(scratch, "run")
        result: dict[str, Any] = {"individuals": arguments.individuals}
        if not (folder / FILE).exists():
            result["made"] = enriched(folder, arguments.individuals)
            print(result["made"], file=sys.stderr, flush=True)
        print(json.dumps(result | measure(folder, arguments.repeat, arguments.only), indent=2))


if __name__ == "__main__":
    main()
