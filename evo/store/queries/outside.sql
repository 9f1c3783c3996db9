-- What people and agents brought: of each author the kernels, their best, and how many the best kernel comes from.
-- param operator = : Only tasks of this operator.
-- best_speedup: what their best kernel certainly has; speedup: its estimate. raised: how far they moved what the best of
-- the task certainly has, ln; in_best: of the author's kernels those among the ancestors of the
-- best one, itself included.
WITH RECURSIVE ancestry AS (
    SELECT /*run,*/ task, kernel_id FROM best WHERE $operator IN ('', split_part(task, '/', 1))
    UNION
    SELECT
        /*run,*/ CASE WHEN place = 1 THEN coalesce(source_task, task) ELSE task END, parent_id
    FROM (
        SELECT /*i.run,*/ i.task, i.source_task, unnest(i.parents) AS parent_id, generate_subscripts(i.parents, 1) AS place
        FROM ancestry
        JOIN individuals AS i USING (/*run,*/ task, kernel_id)
    )
)
SELECT
    /*l.run,*/ l.task, l.author,
    count(*) AS kernels,
    count(*) FILTER (l.status = 'correct') AS correct,
    exp(max(l.stands_at)) AS best_speedup,
    arg_max(l.speedup, l.stands_at) AS speedup,
    arg_max(l.kernel_id, l.stands_at) AS kernel_id,
    coalesce(sum(r.raised), 0) AS raised,
    count(a.kernel_id) AS in_best,
    min(l.created_at) AS first_at,
    max(l.created_at) AS latest_at
FROM lineage AS l
LEFT JOIN ancestry AS a USING (/*run,*/ task, kernel_id)
LEFT JOIN raised AS r USING (/*run,*/ request_id)
WHERE l.author IS NOT NULL AND $operator IN ('', split_part(l.task, '/', 1))
GROUP BY /*l.run,*/ l.task, l.author
ORDER BY /*l.run,*/ l.task, raised DESC, l.author
