-- What each language model gained, per hour of proposing and evaluating and per dollar.
-- param operator = : Only tasks of this operator.
-- raised: how far it moved what the best of its tasks certainly have, ln, with the verdicts that count now. improved:
-- kernels certainly faster than their parents. mean_gain, and max_gain, the one whose lower end is highest: over the
-- fastest correct parent, ln, with standard errors. seconds: of proposing and of evaluating.
SELECT
    /*o.run,*/ split_part(o.task, '/', 1) AS operator, o.model,
    count(*) AS proposals,
    count(*) FILTER (o.is_new) AS kernels,
    count(*) FILTER (o.status = 'correct') AS correct,
    count(*) FILTER (o.improved) AS improved,
    coalesce(sum(r.raised), 0) AS raised,
    avg(o.gain) AS mean_gain,
    sqrt(sum(o.gain_se ** 2)) / nullif(count(o.gain), 0) AS mean_gain_se,
    arg_max(o.gain, o.gain - 1.96 * o.gain_se) AS max_gain,
    arg_max(o.gain_se, o.gain - 1.96 * o.gain_se) AS max_gain_se,
    sum(o.propose_s + o.evaluate_s) AS seconds,
    coalesce(sum(o.cost_usd), 0) AS cost_usd,
    3600 * coalesce(sum(r.raised), 0) / nullif(sum(o.propose_s + o.evaluate_s), 0) AS raised_per_hour,
    coalesce(sum(r.raised), 0) / nullif(sum(o.cost_usd), 0) AS raised_per_usd
FROM offspring AS o
LEFT JOIN raised AS r USING (/*run,*/ request_id)
WHERE o.model IS NOT NULL AND $operator IN ('', split_part(o.task, '/', 1))
GROUP BY ALL
ORDER BY /*o.run,*/ operator, raised DESC, improved DESC, o.model
