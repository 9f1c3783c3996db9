-- What each mutator gained, per hour of proposing and evaluating and per dollar.
-- param operator = : Only tasks of this operator.
-- raised: how far it moved the best of its tasks, ln, with the verdicts that count now; mean_gain and max_gain: over the
-- fastest correct parent, ln. seconds: of proposing and of evaluating.
WITH best_then AS (
    SELECT
        /*t.run,*/ t.task, t.seq, t.request_id,
        max(CASE v.status WHEN 'correct' THEN v.log_speedup END)
            OVER (PARTITION BY /*t.run,*/ t.task ORDER BY t.seq) AS log_speedup
    FROM tells AS t
    LEFT JOIN verdicts AS v USING (/*run,*/ task, kernel_id)
),
raised AS (
    SELECT
        /*run,*/ request_id,
        log_speedup - coalesce(lag(log_speedup) OVER (PARTITION BY /*run,*/ task ORDER BY seq), 0) AS raised
    FROM best_then
)
SELECT
    /*o.run,*/ split_part(o.task, '/', 1) AS operator, o.mutator,
    count(*) AS proposals,
    count(*) FILTER (o.is_new) AS kernels,
    count(*) FILTER (o.status = 'correct') AS correct,
    count(*) FILTER (o.gain > 0 OR (o.status = 'correct' AND o.parent_status <> 'correct')) AS improved,
    coalesce(sum(r.raised) FILTER (r.raised > 0), 0) AS raised,
    avg(o.gain) AS mean_gain,
    max(o.gain) AS max_gain,
    sum(o.propose_s + o.evaluate_s) AS seconds,
    coalesce(sum(o.cost_usd), 0) AS cost_usd,
    3600 * coalesce(sum(r.raised) FILTER (r.raised > 0), 0) / nullif(sum(o.propose_s + o.evaluate_s), 0) AS raised_per_hour,
    coalesce(sum(r.raised) FILTER (r.raised > 0), 0) / nullif(sum(o.cost_usd), 0) AS raised_per_usd
FROM offspring AS o
LEFT JOIN raised AS r USING (/*run,*/ request_id)
WHERE $operator IN ('', split_part(o.task, '/', 1))
GROUP BY ALL
ORDER BY /*o.run,*/ operator, raised DESC, improved DESC, o.mutator
