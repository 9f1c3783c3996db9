-- How long each task has brought nothing better: since its last improvement, and at the longest.
-- param operator = : Only tasks of this operator.
-- With hindsight: a kernel counts with the verdict that counts now.
WITH steps_of AS (
    SELECT
        /*run,*/ task, seq, evaluations, elapsed_s, best_log_speedup,
        best_log_speedup > coalesce(lag(best_log_speedup) OVER so_far, '-inf') AS improved
    FROM curve
    WHERE $operator IN ('', split_part(task, '/', 1))
    WINDOW so_far AS (PARTITION BY /*run,*/ task ORDER BY seq)
),
-- A pause goes from one improvement to the next one, or to the end.
numbered AS (
    SELECT *, count(*) FILTER (improved) OVER (PARTITION BY /*run,*/ task ORDER BY seq) AS pause FROM steps_of
),
pauses AS (
    SELECT
        /*run,*/ task, pause, min(evaluations) AS from_evaluations, max(evaluations) AS evaluations,
        min(elapsed_s) AS from_s, max(elapsed_s) AS elapsed_s, max(best_log_speedup) AS best_log_speedup
    FROM numbered
    GROUP BY /*run,*/ task, pause
),
-- The improvement that ends a pause is its end.
closed AS (
    SELECT
        *, coalesce(lead(from_evaluations) OVER later, evaluations) - from_evaluations AS lasted_evaluations,
        coalesce(lead(from_s) OVER later, elapsed_s) - from_s AS lasted_s
    FROM pauses
    WINDOW later AS (PARTITION BY /*run,*/ task ORDER BY pause)
)
SELECT
    /*run,*/ task,
    exp(max(best_log_speedup)) AS best_speedup,
    max(pause) AS improvements,
    max(evaluations) AS evaluations,
    arg_max(lasted_evaluations, pause) AS evaluations_since,
    arg_max(lasted_s, pause) AS seconds_since,
    max(lasted_evaluations) AS longest_evaluations,
    max(lasted_s) AS longest_s
FROM closed
GROUP BY /*run,*/ task
ORDER BY /*run,*/ task
