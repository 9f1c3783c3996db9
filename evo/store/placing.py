"""What migration 4 writes down of older runs and no query works out in time: every proposal's place in the lineage."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa

BIRTHS = """
    CREATE TEMP TABLE births AS
    SELECT p.request_id
    FROM proposals AS p
    LEFT JOIN evaluations AS e ON e.request_id = p.request_id AND e.level = 'screen'
    WHERE p.kernel_id IS NOT NULL
    -- Of requests that were told together, one may have waited for the other's verdict.
    QUALIFY row_number() OVER (
        PARTITION BY p.task, p.kernel_id ORDER BY e.duplicate_of IS NOT DISTINCT FROM p.kernel_id, p.rowid
    ) = 1
"""
PROPOSED = """
    SELECT p.request_id, p.task, p.kernel_id, b.request_id IS NOT NULL AS is_new, coalesce(o.parents, []) AS parents
    FROM proposals AS p
    LEFT JOIN births AS b USING (request_id)
    LEFT JOIN (
        SELECT request_id, list(parent_id ORDER BY position) AS parents FROM parents GROUP BY request_id
    ) AS o USING (request_id)
    ORDER BY p.rowid
"""
BATCH_ROWS = 50_000


def place(connection: duckdb.DuckDBPyConnection) -> None:
    """It makes the temporary table `placed`: request_id, is_new, generation and parents of every proposal."""
    connection.execute(BIRTHS)
    connection.execute(
        "CREATE TEMP TABLE placed (request_id VARCHAR, is_new BOOLEAN, generation INTEGER, parents VARCHAR[])"
    )
    proposed = connection.sql(PROPOSED).to_arrow_table()
    for batch in _placed(proposed):  # noqa: B007 (DuckDB finds it by its name)
        connection.execute("INSERT INTO placed SELECT * FROM batch")
    connection.execute("DROP TABLE births")


def _placed(proposed: pa.Table) -> Iterator[pa.Table]:
    """In the order of the tells: parents are told before their children are asked for."""
    generations: dict[tuple[str, str], int] = {}
    for batch in proposed.to_batches(BATCH_ROWS):
        found = []
        columns = (batch.column(name).to_pylist() for name in ("task", "kernel_id", "is_new", "parents"))
        for task, kernel_id, is_new, parents in zip(*columns, strict=True):
            generation = 1 + max(generations.get((task, parent), 0) for parent in parents) if parents else 0
            if is_new:
                generations[task, kernel_id] = generation
            found.append(generation)
        yield pa.table(
            {
                "request_id": batch.column("request_id"),
                "is_new": batch.column("is_new"),
                "generation": pa.array(found, pa.int32()),
                "parents": batch.column("parents"),
            }
        )
