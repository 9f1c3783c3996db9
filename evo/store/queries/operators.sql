-- Tasks side by side: how far each came, at what price, and what became of its kernels.
-- param operator = : Only tasks of this operator.
WITH fates AS (
    SELECT
        /*run,*/ task,
        count(*) AS kernels,
        count(*) FILTER (status = 'correct') / count(*) AS correct_share,
        count(*) FILTER (status NOT IN ('correct', 'slower')) / count(*) AS failed_share
    FROM verdicts
    WHERE duplicate_of IS NULL
    GROUP BY /*run,*/ task
),
-- By itself: joins that are worked out at once share what memory a reader has, and take longer on a large run.
winners AS MATERIALIZED (
    SELECT best.*, i.generation FROM best LEFT JOIN individuals AS i USING (/*run,*/ task, kernel_id)
)
SELECT
    /*u.run,*/ u.task, b.speedup, b.speedup_low, b.speedup_high, b.level, b.mutator, b.model,
    b.generation, f.kernels, f.correct_share, f.failed_share,
    u.evaluations, u.trials, u.duplicates, u.calls, u.tokens_in + u.tokens_out AS tokens, u.cost_usd, u.evaluator_s,
    3600 * b.log_speedup / nullif(u.evaluator_s, 0) AS log_speedup_per_hour
FROM used AS u
LEFT JOIN winners AS b USING (/*run,*/ task)
LEFT JOIN fates AS f ON /*f.run = u.run AND*/ f.task = u.task
WHERE $operator IN ('', split_part(u.task, '/', 1))
ORDER BY /*u.run,*/ b.log_speedup DESC NULLS LAST, u.task
