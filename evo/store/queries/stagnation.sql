-- How long each task has brought nothing better: since its last improvement, and at the longest.
-- param operator = : Only tasks of this operator.
-- With hindsight: a kernel counts with what the verdict that counts now makes certain, which best_speedup is; speedup:
-- the estimate of the kernel that leads so.
WITH told AS (
    SELECT
        /*s.run,*/ s.task, s.seq, coalesce(s.evaluations, 0) AS evaluations, epoch(s.created_at) AS at_s,
        v.stands_at, v.speedup
    FROM steps AS s
    LEFT JOIN verdicts AS v ON /*v.run = s.run AND*/ v.task = s.task AND v.kernel_id = s.kernel_id
    WHERE $operator IN ('', split_part(s.task, '/', 1))
),
so_far AS (
    SELECT
        /*run,*/ task, seq, at_s, stands_at, speedup, sum(evaluations) OVER before AS evaluations,
        max(stands_at) OVER (
            PARTITION BY /*run,*/ task ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS best_before
    FROM told
    WINDOW before AS (PARTITION BY /*run,*/ task ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
ends AS (
    SELECT /*run,*/ task, max(seq) AS seq, max(at_s) AS at_s, max(evaluations) AS evaluations FROM so_far GROUP BY /*run,*/ task
),
-- The improvements and the end of each task; a pause goes from one of them to the next.
marks AS (
    SELECT /*run,*/ task, seq, at_s, evaluations, stands_at, speedup, true AS improved
    FROM so_far
    WHERE stands_at > coalesce(best_before, '-inf')
    UNION ALL
    SELECT /*run,*/ task, seq + 1, at_s, evaluations, NULL, NULL, false FROM ends
),
pauses AS (
    SELECT
        /*run,*/ task, seq, improved, stands_at, speedup, evaluations,
        evaluations - lag(evaluations) OVER before AS lasted_evaluations, at_s - lag(at_s) OVER before AS lasted_s
    FROM marks
    WINDOW before AS (PARTITION BY /*run,*/ task ORDER BY seq)
)
SELECT
    /*run,*/ task,
    exp(max(stands_at)) AS best_speedup,
    arg_max(speedup, stands_at) AS speedup,
    count(*) FILTER (improved) AS improvements,
    max(evaluations)::BIGINT AS evaluations,
    max(lasted_evaluations) FILTER (NOT improved)::BIGINT AS evaluations_since,
    max(lasted_s) FILTER (NOT improved) AS seconds_since,
    max(lasted_evaluations)::BIGINT AS longest_evaluations,
    max(lasted_s) AS longest_s
FROM pauses
GROUP BY /*run,*/ task
ORDER BY /*run,*/ task
