-- What known programs saved: children that were there before as source or as machine code, by mutator.
-- param operator = : Only tasks of this operator.
-- saved_s: what as many new programs of the task took evaluators on average, less what was spent to find them out.
WITH usual AS (
    SELECT /*run,*/ task, avg(evaluate_s) AS evaluate_s
    FROM offspring
    WHERE is_new AND NOT is_duplicate AND $operator IN ('', split_part(task, '/', 1))
    GROUP BY /*run,*/ task
),
known AS (
    SELECT
        /*run,*/ task, mutator,
        count(*) FILTER (kernel_id IS NOT NULL) AS children,
        count(*) FILTER (kernel_id IS NOT NULL AND NOT is_new) AS same_source,
        count(*) FILTER (is_new AND is_duplicate) AS same_code,
        coalesce(sum(evaluate_s) FILTER (kernel_id IS NOT NULL AND (NOT is_new OR is_duplicate)), 0) AS spent_s
    FROM offspring
    WHERE $operator IN ('', split_part(task, '/', 1))
    GROUP BY /*run,*/ task, mutator
)
SELECT
    /*k.run,*/ k.task, k.mutator, k.children, k.same_source, k.same_code,
    (k.same_source + k.same_code) / nullif(k.children, 0) AS share,
    k.spent_s,
    (k.same_source + k.same_code) * u.evaluate_s - k.spent_s AS saved_s
FROM known AS k
LEFT JOIN usual AS u USING (/*run,*/ task)
WHERE k.children > 0
ORDER BY /*k.run,*/ k.task, saved_s DESC NULLS LAST, k.mutator
