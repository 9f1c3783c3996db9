-- What each rewrite of the mutator transform gained, per hour of proposing and evaluating.
-- param operator = : Only tasks of this operator.
-- raised: how far it moved what the best of its tasks certainly have, ln; of rewrites that were made in a row each has
-- its part. improved: kernels certainly faster than their parents. nowhere: how often there was no place for it.
WITH made AS (
    SELECT
        /*run,*/ task, request_id, kernel_id,
        CASE
            WHEN kernel_id IS NULL THEN list_filter([regexp_extract(failure, '`(\w+)`', 1)], lambda name: name <> '')
            ELSE list_transform(string_split(description, '; '), lambda change: split_part(change, ':', 1))
        END AS names
    FROM proposals
    WHERE mutator = 'transform' AND $operator IN ('', split_part(task, '/', 1))
),
each_one AS (
    SELECT /*run,*/ task, request_id, kernel_id, unnest(names) AS rewrite, 1 / len(names) AS part FROM made
)
SELECT
    /*m.run,*/ split_part(m.task, '/', 1) AS operator, m.rewrite,
    count(*) AS proposals,
    count(*) FILTER (m.kernel_id IS NULL) AS nowhere,
    count(*) FILTER (o.is_new) AS kernels,
    count(*) FILTER (o.status = 'correct') AS correct,
    count(*) FILTER (o.improved) AS improved,
    coalesce(sum(r.raised * m.part), 0) AS raised,
    avg(o.gain) AS mean_gain,
    sqrt(sum(o.gain_se ** 2)) / nullif(count(o.gain), 0) AS mean_gain_se,
    arg_max(o.gain, o.gain - 1.96 * o.gain_se) AS max_gain,
    arg_max(o.gain_se, o.gain - 1.96 * o.gain_se) AS max_gain_se,
    sum((o.propose_s + o.evaluate_s) * m.part) AS seconds,
    3600 * coalesce(sum(r.raised * m.part), 0)
        / nullif(sum((o.propose_s + o.evaluate_s) * m.part), 0) AS raised_per_hour
FROM each_one AS m
JOIN offspring AS o USING (/*run,*/ request_id)
LEFT JOIN raised AS r USING (/*run,*/ request_id)
GROUP BY ALL
ORDER BY /*m.run,*/ operator, raised DESC, improved DESC, m.rewrite
