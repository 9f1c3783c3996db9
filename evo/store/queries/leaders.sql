-- How each task came forward: every kernel that was its best, when it was first found correct, and what made it.
-- param operator = : Only tasks of this operator.
-- With hindsight: a kernel leads from its first correct evaluation on, by what the verdict that counts now makes
-- certain: best_speedup, of one that is not confirmed the lower end of its interval. speedup: its estimate.
SELECT
    /*p.run,*/ p.task, p.elapsed_s, p.evaluation, p.kernel_id, v.level, v.flagged, p.best_speedup, v.speedup,
    v.speedup_low, v.speedup_high,
    exp(p.best_log_speedup - lag(p.best_log_speedup) OVER before) AS factor,
    p.elapsed_s - lag(p.elapsed_s) OVER before AS after_s,
    i.mutator, i.model, i.author, i.description, i.generation
FROM progress AS p
LEFT JOIN individuals AS i USING (/*run,*/ task, kernel_id)
LEFT JOIN verdicts AS v USING (/*run,*/ task, kernel_id)
WHERE p.improved AND $operator IN ('', split_part(p.task, '/', 1))
WINDOW before AS (PARTITION BY /*p.run,*/ p.task ORDER BY p.evaluation)
ORDER BY /*p.run,*/ p.task, p.evaluation
