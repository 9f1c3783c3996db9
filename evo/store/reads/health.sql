-- [endings]
-- How sessions began and ended, in their order.
select kind, detail_json, created_at from events
where kind in ('session', 'finished', 'stopped', 'failed') order by rowid

-- [last]
-- When, in seconds, there was last a verdict, any sign of life, and a session that began.
select
    (select max(epoch(created_at)) from evaluations) as verdict,
    (select max(epoch(created_at)) from events where kind = 'session') as began,
    greatest(
        (select max(epoch(created_at)) from evaluations), (select max(epoch(created_at)) from tells),
        (select max(epoch(created_at)) from llm_calls), (select max(epoch(created_at)) from profiles),
        (select max(epoch(created_at)) from events where kind not in ('stalled', 'restart', 'waits'))
    ) as life,
    (select config_json from runs limit 1) as config_json

-- [waits]
-- What the search last said it waits for, unless a result came since.
select arg_max(detail_json, rowid)->>'for' as what from events where kind = 'waits'
  and created_at > coalesce((select max(created_at) from tells), 'epoch'::timestamptz)
  and rowid > (select coalesce(max(rowid), -1) from events where kind = 'session')

-- [alarms]
-- Alarms and lost workers after this moment.
select kind, epoch(created_at) as at from events
where kind in ('stalled', 'restart', 'worker_lost') and epoch(created_at) > $since

-- [use]
-- What a run used and came to.
with leaders as materialized (from best), spent as materialized (from used),
    held as materialized (from sessions), wanted as materialized (from tasks)
select
    (select strftime(min(created_at) at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') from runs) as began,
    (select config_json from runs limit 1) as config_json,
    (select arg_max(budget_json, session) from held) as budget_json,
    (select list(task order by place) from wanted) as tasks,
    (select count(*) from wanted where not is_begun) as not_begun,
    (select count(*) from wanted anti join leaders using (task) where is_begun) as nothing_correct,
    (select count(*) from leaders where level <> 'confirmed') as unconfirmed,
    (select count(*) from leaders where stands_at > 0 and level = 'confirmed') as improved,
    (select exp(max(stands_at)) from leaders) as best_speedup,
    (select arg_max(speedup, stands_at) from leaders) as speedup,
    (select arg_max(task, stands_at) from leaders) as best_task,
    (select coalesce(sum(took_s), 0) from held) as wall_s,
    (select coalesce(sum(evaluations), 0) from spent) as evaluations,
    (select coalesce(sum(tokens_in + tokens_out), 0) from spent) as tokens,
    (select coalesce(sum(cost_usd), 0) from spent) as cost_usd
