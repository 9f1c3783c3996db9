-- Which failures repeat: the same message but for its numbers, with what they cost and whose they are.
-- param operator = : Only tasks of this operator.
-- param least = 2: How often it has to have happened.
WITH failed AS (
    SELECT /*v.run,*/ v.task, v.kernel_id, v.status, v.message, v.judged_at AS happened_at, i.mutator, i.request_id
    FROM verdicts AS v
    LEFT JOIN individuals AS i USING (/*run,*/ task, kernel_id)
    WHERE v.status NOT IN ('correct', 'slower')
    UNION ALL BY NAME
    SELECT
        /*run,*/ task, kernel_id, CASE WHEN kind IN ('say', 'profile') THEN 'no_answer' ELSE 'no_child' END AS status,
        failure AS message, created_at AS happened_at, mutator, request_id
    FROM proposals
    WHERE failure <> '' AND kernel_id IS NULL
),
named AS (  -- a compiler's message begins with where it is, not with what is wrong
    SELECT *, coalesce(nullif(regexp_extract(message, '[^\n]*\berror:[^\n]*'), ''), split_part(trim(message), chr(10), 1)) AS line
    FROM failed
),
alike AS (
    SELECT *, left(regexp_replace(trim(line), '[0-9]+', 'N', 'g'), 200) AS reason
    FROM named
    WHERE $operator IN ('', split_part(task, '/', 1))
)
SELECT
    /*a.run,*/ split_part(a.task, '/', 1) AS operator, a.status, a.reason,
    count(*) AS times,
    list_sort(list(DISTINCT a.mutator)) AS mutators,
    coalesce(sum(p.seconds + p.evaluate_s), 0) AS seconds,
    max(a.happened_at) AS latest_at,
    arg_max(a.message, a.happened_at) AS example,
    arg_max(a.kernel_id, a.happened_at) AS kernel_id
FROM alike AS a
LEFT JOIN proposals AS p USING (/*run,*/ request_id)
GROUP BY /*a.run,*/ operator, a.status, a.reason
HAVING count(*) >= $least::INTEGER
ORDER BY times DESC, operator, a.status, a.reason
