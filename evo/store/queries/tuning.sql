-- What tuning found: of every file whose tunables were tried the best setting, and its gain over what it came from.
-- param operator = : Only tasks of this operator.
-- gain: ln(time of the fastest correct kernel that the trials started from / time of the best setting).
WITH tried AS (
    SELECT
        /*t.run,*/ t.task, t.source_id, t.request_id, t.kernel_id, t.values_json, v.status, v.speedup, v.log_speedup, v.level, v.flagged,
        CASE parent.status WHEN 'correct' THEN parent.log_speedup END AS started_at,
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
    arg_max(kernel_id, log_speedup) FILTER (status = 'correct') AS kernel_id,
    arg_max(values_json, log_speedup) FILTER (status = 'correct') AS values_json,
    arg_max(level, log_speedup) FILTER (status = 'correct') AS level,
    max(speedup) FILTER (status = 'correct') AS speedup,
    max(log_speedup) FILTER (status = 'correct') - max(started_at) AS gain,
    sum(seconds) AS seconds
FROM tried
GROUP BY /*run,*/ task, source_id
ORDER BY /*run,*/ task, gain DESC NULLS LAST, source_id
