-- How noisy the machine was: per task, how many timings could not tell a kernel from one 22 % faster or slower.
-- param operator = : Only tasks of this operator.
-- timings: of kernels beside another one, all levels, and of the naive kernel beside itself. unresolved: those whose 95 %
-- interval of the ratio is wider than 0.2 (ln) to either side of the ratio and holds 1. told_from: the ratio from which half
-- of the timings tell a difference. self_low and self_high: the naive kernel beside itself, over workloads; 1 without noise.
WITH beside AS (
    SELECT /*run,*/ task, evaluation_id, log_ratio, log_ratio_se, anchor_id = kernel_id AS is_self
    FROM evaluations
    WHERE log_ratio_se IS NOT NULL AND inherited IS NULL AND $operator IN ('', split_part(task, '/', 1))
),
self AS (
    SELECT /*b.run,*/ b.task, min(t.log_ratio) AS low, max(t.log_ratio) AS high
    FROM beside AS b
    JOIN timings AS t ON /*t.run = b.run AND*/ t.evaluation_id = b.evaluation_id
    WHERE b.is_self
    GROUP BY /*b.run,*/ b.task
)
SELECT
    /*b.run,*/ b.task,
    count(*) AS timings,
    count(*) FILTER (1.96 * log_ratio_se > 0.2 AND (is_self OR abs(log_ratio) <= 1.96 * log_ratio_se)) AS unresolved,
    exp(1.96 * median(log_ratio_se)) AS told_from,
    exp(any_value(self.low)) AS self_low,
    exp(any_value(self.high)) AS self_high
FROM beside AS b
LEFT JOIN self ON /*self.run = b.run AND*/ self.task = b.task
GROUP BY /*b.run,*/ b.task
ORDER BY unresolved / timings DESC, /*b.run,*/ b.task
