-- [standings]
-- With the reason why a library was not timed.
select s.*, detail_json->>'reason' as lack from standings s
left join events on kind = 'library_not_timed' and detail_json->>'evaluation_id' = s.evaluation_id

-- [unbegun]
select task from tasks where not is_begun order by place

-- [ratios]
-- Log ratios of confirmed best kernels, which were timed beside the baseline.
select b.task, t.workload, t.log_ratio from best b join timings t using (evaluation_id) where b.level = 'confirmed'

-- [problems]
-- Why tasks could not go on in the latest session.
select task, arg_max(detail_json, rowid) as detail_json from events
where kind = 'task_failed' and rowid > (select coalesce(max(rowid), -1) from events where kind = 'session')
group by task order by task

-- [statuses]
-- How many requests ended in which status, the most frequent first; without questions that were taken back.
select task, status, count(*) as n from tells
where not (status = 'unavailable' and request_id in (select request_id from llm_calls where status = 'withdrawn'))
group by task, status order by n desc, status

-- [cost]
-- Of all models together.
select
    sum(calls)::bigint as calls, sum(failed_calls)::bigint as failed, sum(asked_anew)::bigint as asked_anew, sum(doubted_calls)::bigint as doubted,
    sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(cost_usd) as cost_usd,
    sum(lost_tokens)::bigint as lost_tokens, sum(lost_usd) as lost_usd,
    sum(likely_lost_tokens)::bigint as likely_lost_tokens, sum(likely_lost_usd) as likely_lost_usd
from cost

-- [outages]
-- Models that were put aside and have not answered since.
with events as (
    select created_at, detail_json->>'model' as model, detail_json->>'error' as error
    from events where kind = 'model_out'
),
outs as (
    select model, max(created_at) as since, arg_max(error, created_at) as error from events group by model
)
select model, strftime(since at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as since, error
from outs
where not exists (
    select 1 from llm_calls as c
    where c.model = outs.model and c.created_at > since and c.heard
)
order by model

-- [last_changes]
-- When the best kernels got the verdicts that count, in seconds since 1970.
select b.task, epoch(e.created_at) as at from best as b join evaluations as e using (evaluation_id)

-- [questions]
select count(*) as n from questions

-- [sessions]
select s.budget_json, strftime(s.began at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as began, s.took_s, s.ended, s.reason,
    (select count(distinct (task, kernel_id)) from evaluations where status <> 'duplicate'
        and created_at >= s.began and created_at < coalesce(s.next_began, 'infinity')) as judged,
    (select count(*) from best join evaluations as e using (evaluation_id) where best.stands_at > 0
        and e.created_at >= s.began and e.created_at < coalesce(s.next_began, 'infinity')) as leaders,
    s.cost_usd
from sessions as s order by s.session
