-- How busy each GPU or set of cores was over time: the share in which it judged or profiled kernels.
-- param minutes = 1: Length of the parts of time, whole minutes.
WITH parts AS (
    SELECT
        /*run,*/ worker, began, ended,
        unnest(generate_series(time_bucket(to_minutes($minutes::BIGINT), began), ended, to_minutes($minutes::BIGINT))) AS since
    FROM stretches
)
SELECT
    /*run,*/ worker, since,
    sum(epoch(least(ended, since + to_minutes($minutes::BIGINT))) - epoch(greatest(began, since))) AS busy_s,
    busy_s / (60 * $minutes::BIGINT) AS share
FROM parts
GROUP BY /*run,*/ worker, since
ORDER BY /*run,*/ worker, since
