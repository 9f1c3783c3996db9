-- What known programs saved: children that were there before as source or as machine code, by mutator.
-- param operator = : Only tasks of this operator.
-- saved_s: what as many new programs of the task took evaluators on average, less what was spent to find them out.
WITH told AS (
    SELECT
        /*p.run,*/ p.task, p.mutator, p.evaluate_s, NOT p.is_new AS same_source, p.is_new AND t.status = 'duplicate' AS same_code
    FROM proposals AS p
    JOIN tells AS t USING (/*run,*/ request_id)
    WHERE p.kernel_id IS NOT NULL AND $operator IN ('', split_part(p.task, '/', 1))
),
usual AS (
    SELECT /*run,*/ task, avg(evaluate_s) AS evaluate_s
    FROM told
    WHERE NOT same_source AND NOT same_code
    GROUP BY /*run,*/ task
),
known AS (
    SELECT
        /*run,*/ task, mutator,
        count(*) AS children,
        count(*) FILTER (same_source) AS same_source,
        count(*) FILTER (same_code) AS same_code,
        coalesce(sum(evaluate_s) FILTER (same_source OR same_code), 0) AS spent_s
    FROM told
    GROUP BY /*run,*/ task, mutator
)
SELECT
    /*k.run,*/ k.task, k.mutator, k.children, k.same_source, k.same_code,
    (k.same_source + k.same_code) / k.children AS share,
    k.spent_s,
    (k.same_source + k.same_code) * u.evaluate_s - k.spent_s AS saved_s
FROM known AS k
LEFT JOIN usual AS u USING (/*run,*/ task)
ORDER BY /*k.run,*/ k.task, saved_s DESC NULLS LAST, k.mutator
