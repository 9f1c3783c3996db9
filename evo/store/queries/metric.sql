-- What a profiler's metrics did along the principal parents of the best kernel of each task.
-- param metric = : Only metrics whose name holds this.
-- param operator = : Only tasks of this operator.
-- param kernel = : Beginning of the id of another kernel to ask about.
-- Only kernels that were profiled are here; change: over the nearest ancestor that was.
WITH RECURSIVE subject AS (
    SELECT /*run,*/ task, kernel_id
    FROM best
    WHERE $kernel = '' AND $operator IN ('', split_part(task, '/', 1))
    UNION ALL
    SELECT /*run,*/ task, kernel_id
    FROM individuals
    WHERE $kernel <> '' AND starts_with(kernel_id, $kernel) AND $operator IN ('', split_part(task, '/', 1))
),
chain AS (
    SELECT /*run,*/ task AS of_task, kernel_id AS descendant, task, kernel_id, 0 AS distance FROM subject
    UNION
    SELECT /*c.run,*/ c.of_task, c.descendant, coalesce(i.source_task, i.task), i.parent_id, c.distance + 1
    FROM chain AS c
    JOIN individuals AS i USING (/*run,*/ task, kernel_id)
    WHERE i.parent_id IS NOT NULL AND c.distance < 100000
)
SELECT
    /*c.run,*/ c.of_task AS task, c.descendant, l.generation, l.kernel_id, l.mutator, l.description, l.speedup, l.level,
    m.metric, m.value, m.unit,
    m.value - lag(m.value) OVER before AS change,
    m.value / nullif(lag(m.value) OVER before, 0) AS factor
FROM chain AS c
JOIN metrics AS m USING (/*run,*/ task, kernel_id)
JOIN lineage AS l USING (/*run,*/ task, kernel_id)
WHERE contains(m.metric, $metric)
WINDOW before AS (PARTITION BY /*c.run,*/ c.of_task, c.descendant, m.metric ORDER BY c.distance DESC)
ORDER BY /*c.run,*/ c.of_task, c.descendant, m.metric, c.distance DESC
