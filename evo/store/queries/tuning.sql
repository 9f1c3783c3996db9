-- What tuning found: of every file whose tunables were tried the best setting, and its gain over what it came from.
-- param operator = : Only tasks of this operator.
-- The best setting is the one that stands highest. gain: ln(time of the fastest correct kernel that the trials started
-- from / its time), with its standard error.
WITH tried AS (
    SELECT
        /*t.run,*/ t.task, t.source_id, t.request_id, t.kernel_id, t.values_json, v.status, v.speedup, v.log_speedup, v.log_speedup_se,
        v.stands_at, v.level, v.flagged,
        CASE parent.status WHEN 'correct' THEN parent.log_speedup END AS started_at,
        CASE parent.status WHEN 'correct' THEN parent.log_speedup_se END AS started_se,
        p.seconds + p.evaluate_s AS seconds
    FROM trials AS t
    LEFT JOIN proposals AS p USING (/*run,*/ request_id)
    LEFT JOIN verdicts AS v ON /*v.run = t.run AND*/ v.task = t.task AND v.kernel_id = t.kernel_id
    LEFT JOIN verdicts AS parent ON /*parent.run = t.run AND*/ parent.task = t.task AND parent.kernel_id = p.parents[1]
    WHERE $operator IN ('', split_part(t.task, '/', 1))
)
SELECT
    /*run,*/ task, source_id,
    count(*) AS trials,
    count(DISTINCT kernel_id) AS settings,
    count(DISTINCT kernel_id) FILTER (status = 'correct') AS correct,
    arg_max(kernel_id, stands_at) AS kernel_id,
    arg_max(values_json, stands_at) AS values_json,
    arg_max(level, stands_at) AS level,
    arg_max(speedup, stands_at) AS speedup,
    arg_max(log_speedup, stands_at) - max(started_at) AS gain,
    sqrt(arg_max(coalesce(log_speedup_se, 0), stands_at) ** 2 + coalesce(arg_max(started_se, started_at), 0) ** 2) AS gain_se,
    sum(seconds) AS seconds
FROM tried
GROUP BY /*run,*/ task, source_id
ORDER BY /*run,*/ task, gain DESC NULLS LAST, source_id
