-- What is not confirmed counts with the lower end of its interval: of many estimates the largest is the luckiest.
CREATE OR REPLACE VIEW best AS
WITH standing AS NOT MATERIALIZED (
    SELECT
        *, CASE level WHEN 'confirmed' THEN log_speedup ELSE log_speedup - 1.96 * coalesce(log_speedup_se, 0) END AS stands_at
    FROM verdicts
    WHERE status = 'correct'
),
fastest AS NOT MATERIALIZED (
    SELECT task, max(stands_at) AS stands_at FROM standing GROUP BY task
)
SELECT
    v.task, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se, v.cell,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at, v.stands_at
FROM standing AS v
JOIN fastest USING (task, stands_at)
LEFT JOIN individuals AS i USING (task, kernel_id)
QUALIFY row_number() OVER (
    PARTITION BY v.task ORDER BY v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW best IS 'Per task the fastest correct kernel (each by the verdict that counts), its speedup with a 95 % interval, and how it was made. stands_at: the log speedup by which it leads, of one that is not confirmed the lower end of its interval.';
