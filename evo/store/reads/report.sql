-- [standings]
with fates as (
    select task, count(*) as kernels, count(*) filter (status = 'correct') as correct
    from verdicts where duplicate_of is null group by task
)
select task, s.kernel_id, s.best_speedup, s.speedup, s.speedup_low, s.speedup_high,
    coalesce(s.level, if(t.is_begun, 'nothing correct', 'not begun')) as level,
    s.flagged, s.best_us, s.against_library as over_library, s.against_library_low as library_low,
    s.against_library_high as library_high, s.untried, u.evaluations, f.kernels, f.correct, u.cost_usd, u.evaluator_s,
    s.mutator, s.model
from tasks as t left join standings as s using (task) left join used as u using (task) left join fates as f using (task)
order by t.place

-- [ends]
select task, max(evaluation) as evaluation, max(elapsed_s) as elapsed_s from progress group by task

-- [elites]
select task, cell, kernel_id, level, flagged, exp(stands_at) as best_speedup, speedup, speedup_low, speedup_high,
    mutator, model, description
from elites order by task, stands_at desc, cell

-- [failures]
select task, status, count, left(example, 300) as example
from failures order by count desc, task, status

-- [costs]
select model, calls, failed_calls, asked_anew, doubted_calls, tokens_in, tokens_out, cost_usd, lost_usd, likely_lost_usd,
    seconds
from cost order by cost_usd desc, model

-- [quarantined]
select v.task, v.kernel_id, left(v.message, 300) as message, i.mutator, i.author, v.judged_at
from verdicts as v left join individuals as i using (task, kernel_id)
where v.status = 'quarantined' order by v.judged_at desc

-- [events]
select kind, task, count(*) as times, max(created_at) as latest_at,
    left(arg_max(detail_json, created_at), 300) as latest
from events
where kind not in ('definitions', 'session', 'finished', 'stopped', 'failed', 'waits')
group by kind, task order by latest_at desc

-- [roofline]
select b.task, b.kernel_id, b.level,
    e.anchor_id = n.kernel_id and b.kernel_id <> n.kernel_id as beside_naive, t.workload, t.latency_us,
    t.anchor_latency_us, t.latency_us * exp(l.log_ratio) as library_us
from best as b join evaluations as e using (evaluation_id) join timings as t using (evaluation_id)
left join library_timings as l using (evaluation_id, workload)
left join (
    select task, kernel_id from individuals where generation = 0
    qualify row_number() over (partition by task order by number) = 1
) as n on n.task = b.task
order by b.task, t.rowid

-- [calls]
select i.task, i.kernel_id, c.call_id, c.role, c.model, c.author, c.messages_json, c.answer
from individuals as i join llm_calls as c using (request_id)
where i.task in $tasks and i.kernel_id in $kernels and c.heard
order by c.rowid

-- [ancestors]
-- All of a champion's, through all parents.
select task, generation, kernel_id, mutator, model, author, description, status, level, flagged, speedup,
    speedup_low, speedup_high
from ancestors($task, $kernel) order by generation, created_at

-- [siblings]
-- The children of each of these kernels that stand highest.
select task, parent_id, kernel_id, mutator, model, description, status, level, flagged, speedup,
    speedup_low, speedup_high
from lineage where task = $task and parent_id in $parents
qualify row_number() over (partition by parent_id order by stands_at desc nulls last, number) <= $most
order by generation, parent_id, stands_at desc nulls last, number

-- [timings]
-- The verdicts on kernels that count, workload by workload.
select v.task, v.kernel_id, t.workload, t.latency_us, t.anchor_latency_us, exp(t.log_ratio) as ratio,
    exp(t.log_ratio - 1.96 * t.log_ratio_se) as low, exp(t.log_ratio + 1.96 * t.log_ratio_se) as high, t.pairs,
    l.library_latency_us, exp(l.log_ratio) as over_library, exp(l.log_ratio - 1.96 * l.log_ratio_se) as library_low,
    exp(l.log_ratio + 1.96 * l.log_ratio_se) as library_high
from verdicts as v join timings as t using (evaluation_id)
left join library_timings as l using (evaluation_id, workload)
where v.task in $tasks and v.kernel_id in $kernels order by t.rowid

-- [source]
select source from kernels where kernel_id = $kernel

-- [prompt]
select messages_json from llm_calls where call_id = $call

-- [answer]
select answer from llm_calls where call_id = $call

-- [config]
select config_json from runs
