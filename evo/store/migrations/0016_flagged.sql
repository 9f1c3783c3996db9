-- What is suspicious about a kernel stands beside its level, wherever that stands.

CREATE OR REPLACE VIEW verdicts AS
WITH final AS NOT MATERIALIZED (
    SELECT * EXCLUDE (request_id), NULL::VARCHAR AS original
    FROM evaluations
    WHERE request_id IS NULL
    QUALIFY row_number() OVER (PARTITION BY task, kernel_id ORDER BY created_at DESC, rowid DESC) = 1
),
-- Of each kernel by itself; NULL is easier to skip than a duplicate that is its own original. What no request asked for
-- is in `final`, so that it need not be told from the rest here: to read request_id takes half as long as all else.
own AS NOT MATERIALIZED (
    SELECT * EXCLUDE (request_id), nullif(duplicate_of, kernel_id) AS original
    FROM evaluations ANTI JOIN final USING (task, kernel_id)
    WHERE is_verdict
    UNION ALL
    FROM final
),
-- A duplicate is judged by what is known of its original now, not by what was known when it was found.
judged AS NOT MATERIALIZED (
    SELECT
        task, kernel_id, coalesce(inherited, status) AS status, level, log_speedup, log_speedup_se, cell, original,
        message, evaluation_id, created_at, facts_json
    FROM own
    WHERE original IS NULL
    UNION ALL
    SELECT
        copy.task, copy.kernel_id, coalesce(found.inherited, found.status, copy.inherited),
        coalesce(found.level, copy.level),
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup ELSE found.log_speedup END,
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup_se ELSE found.log_speedup_se END,
        coalesce(found.cell, copy.cell), copy.original, coalesce(found.message, copy.message),
        coalesce(found.evaluation_id, copy.evaluation_id), coalesce(found.created_at, copy.created_at),
        coalesce(found.facts_json, copy.facts_json)
    FROM (FROM own WHERE original IS NOT NULL) AS copy
    LEFT JOIN own AS found ON found.task = copy.task AND found.kernel_id = copy.original
)
SELECT
    task, kernel_id, status, level, log_speedup, log_speedup_se,
    exp(log_speedup) AS speedup,
    exp(log_speedup - 1.96 * log_speedup_se) AS speedup_low,
    exp(log_speedup + 1.96 * log_speedup_se) AS speedup_high,
    nullif(cell, '') AS cell, original AS duplicate_of, message, evaluation_id, created_at AS judged_at,
    nullif(array_to_string(TRY_CAST(facts_json->'flagged' AS VARCHAR[]), ', '), '') AS flagged
FROM judged;
COMMENT ON VIEW verdicts IS 'Per task and kernel the verdict that counts: the most severe level (confirmed, full, screen), of those the latest; a duplicate has its original''s. flagged: what is legal and suspicious about the kernel.';

CREATE OR REPLACE VIEW best AS
WITH standing AS NOT MATERIALIZED (
    SELECT
        *, CASE level WHEN 'confirmed' THEN log_speedup ELSE log_speedup - 1.96 * coalesce(log_speedup_se, 0) END AS stands_at
    FROM verdicts
    WHERE status = 'correct'
),
-- The leader stands there or above. Nearly all duplicates stand where their originals do: without them this is known in
-- half the time, and few kernels are left to compare.
passed AS NOT MATERIALIZED (
    SELECT task, max(stands_at) AS stands_at FROM standing WHERE duplicate_of IS NULL GROUP BY task
)
SELECT
    v.task, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se, v.cell,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at, v.stands_at, v.flagged
FROM standing AS v
LEFT JOIN passed USING (task)
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.stands_at >= coalesce(passed.stands_at, v.stands_at)
QUALIFY row_number() OVER (
    PARTITION BY v.task ORDER BY v.stands_at DESC, v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW best IS 'Per task the fastest correct kernel (each by the verdict that counts), its speedup with a 95 % interval, and how it was made. stands_at: the log speedup by which it leads, of one that is not confirmed the lower end of its interval.';

CREATE OR REPLACE VIEW elites AS
WITH fastest AS NOT MATERIALIZED (
    SELECT task, cell, max(log_speedup) AS log_speedup
    FROM verdicts
    WHERE status = 'correct' AND cell IS NOT NULL
    GROUP BY task, cell
)
SELECT
    v.task, v.cell, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at,
    v.flagged
FROM verdicts AS v
JOIN fastest USING (task, cell, log_speedup)
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct'
QUALIFY row_number() OVER (
    PARTITION BY v.task, v.cell ORDER BY v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW elites IS 'Per task and cell of the behaviour space the fastest correct kernel, and how it was made.';

CREATE OR REPLACE VIEW lineage AS
SELECT
    i.task, i.kernel_id, i.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at, i.author, i.source_task,
    v.flagged
FROM individuals AS i
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first, a kernel of source_task where that is not NULL), how it was made, its verdict (status NULL: none yet), and its generation: 0 for a first ancestor, else one more than the highest of its parents. author: who gave it, if it came from outside.';
