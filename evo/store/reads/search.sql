-- The questions of a driver: of a resume about what earlier sessions left, and of a search about parents and leaders.

-- [generations]
select task, kernel_id, generation from individuals

-- [leaders]
-- The leader of every task, or of this one, as it stands now, with the rivals that its confirmation did not try. Where that
-- was compared with none because of a fault, `failed_with` has the packages of all its confirmations that ended so.
with alone as (
    select e.task, e.kernel_id, e.evaluation_id, detail_json->>'versions' as versions
    from events join evaluations e on e.evaluation_id = detail_json->>'evaluation_id' where kind = 'library_not_timed'
)
select task, kernel_id, level, log_speedup, stands_at,
    (select any_value(untried) from library_timings where evaluation_id = b.evaluation_id) as untried,
    (
        select list(every.versions) from alone as last join alone as every using (task, kernel_id)
        where last.evaluation_id = b.evaluation_id
    ) as failed_with
from best as b where $task is null or task = $task

-- [beaten_champions]
-- Correct champions that tasks began with and no confirmation looked at, where the best is confirmed and is no ancestor.
select c.task, c.kernel_id
from proposals c join verdicts v using (task, kernel_id) join best b on b.task = c.task
where c.kind = 'ancestor' and starts_with(c.description, 'champions/') and c.is_new
    and v.status = 'correct' and v.level <> 'confirmed' and b.level = 'confirmed'
    and b.kernel_id not in (select kernel_id from proposals where task = b.task and kind = 'ancestor')
order by c.task, c.number

-- [confirmed]
-- Every kernel that a confirmation looked at, and how long it took if it was passed.
select task, kernel_id, case when status = 'correct' then coalesce(confirm_ms, 0) else 0 end as took_ms
from evaluations where level = 'confirmed'

-- [times_confirmed]
select count(*) as times from evaluations where level = 'confirmed' and task = $task and kernel_id = $kernel

-- [full]
-- By task, how long the shortest full evaluation took that was passed.
select task, min(coalesce(verify_ms, 0) + coalesce(time_ms, 0)) as took_ms
from evaluations where level = 'full' and status = 'correct' group by task

-- [judged]
-- The seconds that evaluators spent on kernels that compiled, and of these on confirmations, for requests' outcomes.
select
    coalesce(sum(seconds), 0) as judging_s,
    coalesce(sum(seconds) filter (level = 'confirmed'), 0) as confirming_s
from (
    select level, 1e-3 * (coalesce(verify_ms, 0) + coalesce(time_ms, 0) + coalesce(confirm_ms, 0)) as seconds
    from evaluations semi join tells using (request_id)
)

-- [kernels]
select kernel_id from kernels

-- [sessions]
select took_s from sessions

-- [pairs]
-- A task's paired ratios in the order of their measurement: of kernels that others were paired with, and of the fastest.
with paired as (
    select kernel_id, anchor_id, level, log_ratio, log_ratio_se, log_speedup, rowid as place
    from evaluations
    where task = $task and status = 'correct' and anchor_id <> kernel_id
)
select kernel_id, anchor_id, level, log_ratio, log_ratio_se
from paired
where kernel_id in (select anchor_id from paired)
    or kernel_id in (select kernel_id from paired order by log_speedup desc, place limit $most)
order by place
