-- What each language model gained, per hour of proposing and evaluating and per dollar.
-- param operator = : Only tasks of this operator.
-- raised: how far it moved the best of its tasks, ln, with the verdicts that count now; mean_gain and max_gain: over the
-- fastest correct parent, ln. seconds: of proposing and of evaluating.
SELECT
    /*o.run,*/ split_part(o.task, '/', 1) AS operator, o.model,
    count(*) AS proposals,
    count(*) FILTER (o.is_new) AS kernels,
    count(*) FILTER (o.status = 'correct') AS correct,
    count(*) FILTER (o.gain > 0 OR (o.status = 'correct' AND o.parent_status <> 'correct')) AS improved,
    coalesce(sum(r.raised), 0) AS raised,
    avg(o.gain) AS mean_gain,
    max(o.gain) AS max_gain,
    sum(o.propose_s + o.evaluate_s) AS seconds,
    coalesce(sum(o.cost_usd), 0) AS cost_usd,
    3600 * coalesce(sum(r.raised), 0) / nullif(sum(o.propose_s + o.evaluate_s), 0) AS raised_per_hour,
    coalesce(sum(r.raised), 0) / nullif(sum(o.cost_usd), 0) AS raised_per_usd
FROM offspring AS o
LEFT JOIN raised AS r USING (/*run,*/ request_id)
WHERE o.model IS NOT NULL AND $operator IN ('', split_part(o.task, '/', 1))
GROUP BY ALL
ORDER BY /*o.run,*/ operator, raised DESC, improved DESC, o.model
