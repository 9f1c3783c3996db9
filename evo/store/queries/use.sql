-- How busy each GPU or set of cores was over time: the share in which it judged or profiled kernels.
-- param minutes = 1: Length of the parts of time, whole minutes.
-- The first and the last part are as long as any worker was at work in them.
WITH parts AS (
    SELECT
        /*run,*/ worker, began, ended, min(began) OVER whole AS first, max(ended) OVER whole AS last,
        unnest(generate_series(time_bucket(to_minutes($minutes::BIGINT), began), ended, to_minutes($minutes::BIGINT))) AS since
    FROM stretches
    WINDOW whole AS (PARTITION BY /*run,*/ true)
)
SELECT
    /*run,*/ worker, since,
    sum(epoch(least(ended, since + to_minutes($minutes::BIGINT))) - epoch(greatest(began, since))) AS busy_s,
    busy_s / epoch(least(any_value(last), since + to_minutes($minutes::BIGINT)) - greatest(any_value(first), since)) AS share
FROM parts
GROUP BY /*run,*/ worker, since
ORDER BY /*run,*/ worker, since
