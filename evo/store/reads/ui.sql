-- [kernels]
-- One page of the kernels that fit, each with its verdict; an empty value asks for nothing.
select l.task, l.kernel_id, l.generation, l.parent_id, l.mutator, l.model, l.author, l.description, l.status, l.level,
    l.flagged, exp(l.stands_at) as best_speedup, l.speedup, l.speedup_low, l.speedup_high, l.created_at,
    count(*) over () as found
from lineage as l
where $task in ('', l.task) and $mutator in ('', l.mutator) and $model in ('', l.model)
    and $status in ('', coalesce(l.status, 'no verdict'))
    and ($text = '' or starts_with(l.kernel_id, lower($text)) or contains(lower(l.description), lower($text))
        or contains(lower(l.mutator), lower($text)) or contains(lower(l.model), lower($text))
        or l.kernel_id in (select kernel_id from kernels where contains(lower(source), lower($text))))
order by case $sort
    when 'estimate' then l.log_speedup when 'generation' then l.generation when 'newest' then epoch(l.created_at)
    when 'oldest' then -epoch(l.created_at) else l.stands_at end desc nulls last, l.created_at, l.kernel_id
limit $most offset $skipped

-- [choices]
-- Values that kernels can be chosen by.
select distinct name, value from (
    select unnest(['task', 'mutator', 'model', 'status']) as name,
        unnest([task, mutator, model, coalesce(status, 'no verdict')]) as value
    from lineage
)
where value is not null order by name, value

-- [children]
-- Kernels that were made of one, those that stand highest first.
select task, kernel_id, mutator, model, description, status, level, flagged, exp(stands_at) as best_speedup, speedup,
    speedup_low, speedup_high
from lineage where task = $task and list_contains(parents, $kernel)
order by stands_at desc nulls last, created_at limit $most

-- [under_way]
-- Requests without a result, the oldest first; those of a session that ended are made once more by the next one.
with calls as (
    select request_id, string_agg(distinct model, ', ') as model, count(*) as sent, any_value(answered) as answered
    from llm_sent left join (
        select request_id, count(*) as answered from llm_calls group by request_id
    ) using (request_id) group by request_id
)
select a.task, a.number, a.mutator, c.model, a.request_json->'parents'->>0 as parent_id, a.created_at,
    case when c.sent > coalesce(c.answered, 0) then 'waits for a model'
        when c.sent > 0 then 'answered, is judged' else 'is made or judged' end as state
from asks as a left join calls as c using (request_id)
where a.request_id not in (select request_id from tells)
order by a.seq, a.position

-- [questions]
-- Questions that wait for an answer from outside.
select regexp_replace(request_id, '#.*$', '') as task, cache_key, role, model, created_at from questions

-- [use]
-- Per worker and bin of time the share in which it judged kernels.
with spans as (
    select worker, epoch(began) as began, epoch(ended) as ended from stretches
),
ends as (
    select min(began) as first, greatest(max(ended) - min(began), 1) / $bins as width from spans where ended > began
),
parts as (
    select worker, unnest(range(floor((began - first) / width)::int, ceil((ended - first) / width)::int)) as bin,
        began - first as began, ended - first as ended, width
    from spans, ends where ended > began
)
select worker, bin, any_value(width) * bin as elapsed_s,
    sum(least(ended, width * (bin + 1)) - greatest(began, width * bin)) as busy_s,
    busy_s / any_value(width) as share
from parts group by worker, bin order by worker, bin

-- [workers]
-- What each worker did in all.
select worker, sum(verdicts)::bigint as verdicts, sum(busy_s) as busy_s, min(began) as first_at, max(ended) as last_at
from stretches group by worker order by worker

-- [spending]
-- Dollars by model over time, at so many points at most.
with paid as (
    select model, epoch(created_at) - epoch((select min(created_at) from runs)) as elapsed_s,
        sum(cost_usd) over (partition by model order by created_at, rowid) as cost_usd,
        row_number() over (partition by model order by created_at, rowid) as call,
        count(*) over (partition by model) as calls
    from llm_calls
)
select model, call, elapsed_s, coalesce(cost_usd, 0) as cost_usd from paid
where call = calls or call % greatest(calls // $most, 1) = 0 order by model, call

-- [shares]
-- The share of requests that each arm of the bandit got, in bins of equally many requests.
with made as (
    select mutator, model, coalesce(model, mutator) as arm,
        (row_number() over (order by created_at, rowid) - 1) * $bins // count(*) over () as bin,
        row_number() over (order by created_at, rowid) as request
    from proposals where kind in ('child', 'trial')
),
ends as (select bin, max(request) as requests, count(*) as size from made group by bin),
arms as (select distinct arm, model is not null as is_model from made)
select a.arm, a.is_model, e.requests, count(m.arm) as given, count(m.arm) / any_value(e.size) as share
from ends as e cross join arms as a left join made as m on m.bin = e.bin and m.arm = a.arm
group by a.arm, a.is_model, e.requests order by a.arm, e.requests
