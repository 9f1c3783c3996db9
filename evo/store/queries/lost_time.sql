-- Where time went: seconds by activity and by what came of it, and their share of the task's.
-- param operator = : Only tasks of this operator.
-- Seconds are those of mutators (propose; of a model also its waiting), of evaluators (build, verify, time, confirm), of
-- profilers and of dialogues; they overlap, and add up to more than went by.
WITH judged AS (
    SELECT /*run,*/ task, status, build_ms, verify_ms, time_ms, confirm_ms
    FROM evaluations
    WHERE $operator IN ('', split_part(task, '/', 1))
),
spent AS (
    SELECT
        /*run,*/ task, 'propose' AS activity,
        CASE WHEN kernel_id IS NOT NULL THEN 'child' WHEN failure <> '' THEN 'no_child' ELSE 'answer' END AS outcome,
        seconds
    FROM proposals
    WHERE $operator IN ('', split_part(task, '/', 1))
    UNION ALL
    SELECT /*run,*/ task, 'build', status, build_ms / 1e3 FROM judged WHERE build_ms IS NOT NULL
    UNION ALL
    SELECT /*run,*/ task, 'verify', status, verify_ms / 1e3 FROM judged WHERE verify_ms IS NOT NULL
    UNION ALL
    SELECT /*run,*/ task, 'time', status, time_ms / 1e3 FROM judged WHERE time_ms IS NOT NULL
    UNION ALL
    SELECT /*run,*/ task, 'confirm', status, confirm_ms / 1e3 FROM judged WHERE confirm_ms IS NOT NULL
    UNION ALL
    SELECT /*run,*/ task, 'profile', CASE WHEN failure IS NULL THEN 'profile' ELSE 'failed' END, seconds
    FROM profiles
    WHERE $operator IN ('', split_part(task, '/', 1))
    UNION ALL
    SELECT /*run,*/ task, 'dialogue: ' || tool, CASE WHEN failed THEN 'failed' ELSE 'done' END, seconds
    FROM tool_calls
    WHERE $operator IN ('', split_part(task, '/', 1))
),
totals AS (
    SELECT /*run,*/ task, activity, outcome, count(*) AS times, sum(seconds) AS seconds
    FROM spent
    GROUP BY /*run,*/ task, activity, outcome
)
SELECT *, seconds / nullif(sum(seconds) OVER (PARTITION BY /*run,*/ task), 0) AS share
FROM totals
ORDER BY /*run,*/ task, seconds DESC, activity, outcome
