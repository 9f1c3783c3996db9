-- Runs two by two: whose best kernel of a task is faster, by how much, and at what price.
-- several runs
-- param operator = : Only tasks of this operator.
-- ratio: time of the second run's best / time of the first one's, each by way of the naive kernel of its own run, with a
-- 95 % interval; of different machines it compares gains rather than times. winner: empty where the interval holds 1.
WITH found AS (
    SELECT
        u.run, u.task, b.kernel_id, b.level, b.speedup, b.log_speedup, b.log_speedup_se, u.evaluations, u.cost_usd,
        u.evaluator_s
    FROM used AS u
    LEFT JOIN best AS b USING (run, task)
    WHERE $operator IN ('', split_part(u.task, '/', 1))
),
pairs AS (
    SELECT
        a.task, a.run AS first, b.run AS second, a.level AS first_level, b.level AS second_level,
        a.speedup AS first_speedup, b.speedup AS second_speedup, a.kernel_id = b.kernel_id AS same_kernel,
        a.log_speedup - b.log_speedup AS log_ratio,
        sqrt(a.log_speedup_se ** 2 + b.log_speedup_se ** 2) AS log_ratio_se,
        a.evaluations AS first_evaluations, b.evaluations AS second_evaluations,
        a.evaluator_s AS first_evaluator_s, b.evaluator_s AS second_evaluator_s,
        a.cost_usd AS first_usd, b.cost_usd AS second_usd
    FROM found AS a
    JOIN found AS b ON b.task = a.task AND b.run > a.run
)
SELECT
    task, first, second, first_speedup, second_speedup,
    exp(log_ratio) AS ratio,
    exp(log_ratio - 1.96 * log_ratio_se) AS ratio_low,
    exp(log_ratio + 1.96 * log_ratio_se) AS ratio_high,
    CASE
        WHEN log_ratio > 1.96 * log_ratio_se THEN first WHEN log_ratio < -1.96 * log_ratio_se THEN second ELSE ''
    END AS winner,
    first_level, second_level, same_kernel, first_evaluations, second_evaluations, first_evaluator_s,
    second_evaluator_s, first_usd, second_usd
FROM pairs
ORDER BY task, first, second
