-- [prompts]
-- Calls of language models, each with the kernel that came of it.
select c.call_id, c.request_id, regexp_replace(c.request_id, '#.*$', '') as task, p.mutator, c.role, c.model,
    c.messages_json, c.answer, c.tool_calls_json, c.tokens_in, c.tokens_out, c.cost_usd, c.latency_s, c.status, c.error,
    p.kernel_id, c.created_at
from llm_calls as c left join proposals as p using (request_id) order by c.rowid

-- [kernels]
-- Individuals with their files and the verdicts that count.
select l.task, l.kernel_id, k.operator, k.target, k.source, k.values_json, l.generation, l.parents, l.source_task,
    l.mutator, l.model, l.description, l.request_id, l.status, l.level, l.log_speedup, v.log_speedup_se, l.speedup,
    l.speedup_low, l.speedup_high, exp(l.stands_at) as certain_speedup, l.cell, l.duplicate_of, l.flagged, v.message,
    v.evaluation_id, l.created_at
from lineage as l join kernels as k using (kernel_id) left join verdicts as v using (task, kernel_id)
order by l.created_at

-- [evaluations]
-- Every verdict, those that failed and those that others took the place of among them.
select evaluation_id, request_id, task, kernel_id, level, coalesce(inherited, status) as status, is_verdict,
    duplicate_of, message, log_speedup, log_speedup_se, anchor_id, log_ratio, log_ratio_se, cell, facts_json, build_ms,
    verify_ms, time_ms, confirm_ms, created_at
from evaluations order by rowid

-- [timings]
-- Paired times per workload, with 95 % intervals of their ratios.
select evaluation_id, 'anchor' as rival, workload, latency_us, anchor_latency_us as rival_latency_us,
    exp(log_ratio) as ratio, exp(log_ratio - 1.96 * log_ratio_se) as ratio_low,
    exp(log_ratio + 1.96 * log_ratio_se) as ratio_high, pairs
from timings
union all
select evaluation_id, coalesce(library, 'library'), workload, latency_us, library_latency_us, exp(log_ratio),
    exp(log_ratio - 1.96 * log_ratio_se), exp(log_ratio + 1.96 * log_ratio_se), pairs
from library_timings

-- [profiles]
select p.task, p.kernel_id, p.evaluation_id, p.bottleneck, p.notes_json, p.failure, m.metrics, p.created_at
from profiles as p left join (
    select task, kernel_id, list({'metric': metric, 'value': value, 'unit': unit} order by rowid) as metrics
    from metrics group by task, kernel_id
) as m using (task, kernel_id)
order by p.rowid
