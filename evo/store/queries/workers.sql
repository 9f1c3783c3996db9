-- What each GPU or set of cores did in all: seconds in which it judged or profiled kernels, and their share of the run's.
-- busy_s: by the clock, overlaps once; build_s to profile_s: by stage, which add up to more where kernels overlap. The
-- time of a run is that of its sessions, without the time between them.
WITH busy AS (
    SELECT
        /*run,*/ worker, sum(busy_s) AS busy_s, sum(verdicts)::BIGINT AS verdicts, sum(profiles)::BIGINT AS profiles,
        min(began) AS first_at, max(ended) AS last_at
    FROM stretches
    GROUP BY /*run,*/ worker
),
judged AS (
    SELECT
        /*run,*/ worker, sum(build_ms) / 1e3 AS build_s, sum(verify_ms) / 1e3 AS verify_s, sum(time_ms) / 1e3 AS time_s,
        sum(confirm_ms) / 1e3 AS confirm_s
    FROM evaluations
    WHERE worker IS NOT NULL
    GROUP BY /*run,*/ worker
),
profiled AS (
    SELECT /*run,*/ worker, sum(seconds) AS profile_s
    FROM (
        SELECT /*run,*/ worker, seconds FROM profiles UNION ALL SELECT /*run,*/ worker, seconds FROM tool_calls
    )
    WHERE worker IS NOT NULL
    GROUP BY /*run,*/ worker
),
lasted AS (
    SELECT /*run,*/ sum(took_s) AS took_s FROM sessions GROUP BY ALL
)
SELECT
    /*b.run,*/ b.worker, b.busy_s, b.busy_s / nullif(l.took_s, 0) AS share, b.verdicts, b.profiles,
    coalesce(j.build_s, 0) AS build_s, coalesce(j.verify_s, 0) AS verify_s, coalesce(j.time_s, 0) AS time_s,
    coalesce(j.confirm_s, 0) AS confirm_s, coalesce(p.profile_s, 0) AS profile_s, b.first_at, b.last_at
FROM busy AS b
LEFT JOIN judged AS j USING (/*run,*/ worker)
LEFT JOIN profiled AS p USING (/*run,*/ worker)
LEFT JOIN lasted AS l ON /*l.run = b.run AND*/ true
ORDER BY /*b.run,*/ b.worker
