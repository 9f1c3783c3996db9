-- What happened in a run, or where $task is not null in one task of it, behind one place and up to another.

-- [individuals]
-- Tells with what it takes to make their individuals again, but for what was measured.
select
    t.seq, t.task, t.request_id, t.kernel_id, t.status as told, t.digest, t.seconds, t.cost_usd, a.request_json,
    coalesce(p.description, '') as description, coalesce(p.failure, '') as failure, coalesce(p.text, '') as text,
    coalesce(p.metrics_json, '{}') as metrics_json, coalesce(p.evaluate_s, 0) as evaluate_s,
    k.operator, k.target, k.source, k.values_json, e.* exclude (task, request_id, kernel_id)
from tells t
join asks a using (request_id)
left join kernels k on k.kernel_id = t.kernel_id
left join evaluations e on e.evaluation_id = t.evaluation_id
left join proposals p on p.request_id = t.request_id

-- [within]
select evaluation_id from tells where ($task is null or task = $task) and seq > $after and seq <= $until

-- [told]
-- using individuals
from individuals where ($task is null or task = $task) and seq > $after and seq <= $until order by seq

-- [told_of]
-- using individuals
-- The tell of one request.
from individuals where request_id = $request

-- [timings]
-- using within
from timings semi join within using (evaluation_id) order by timings.rowid

-- [library_timings]
-- using within
from library_timings semi join within using (evaluation_id) order by library_timings.rowid

-- [errors]
-- using within
from errors semi join within using (evaluation_id) order by errors.rowid

-- [asked]
-- Asks with what it takes to ask them again.
select seq, wanted, task, request_id, request_json, digest from asks
where ($task is null or task = $task) and seq > $after and seq <= $until order by seq, position

-- [profiled]
-- Profiles that prompts may hold, with their metrics.
select p.*, m.measured
from profiles p
left join (
    select task, kernel_id, list({'name': metric, 'value': value, 'unit': unit} order by rowid) as measured
    from metrics group by task, kernel_id
) m using (task, kernel_id)
where ($task is null or p.task = $task) and p.seq > $after and p.seq <= $until
order by p.rowid

-- [places]
select seq from tells where task = $task order by seq

-- [answers]
-- Calls of one request that brought words, in their order.
from llm_calls where request_id = $request and status in ('answered', 'cut') order by rowid
