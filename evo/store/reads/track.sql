-- [points]
-- What a task has reached and used, step by step; `place` is where the next look begins.
select
    seq as place, task, (select min(created_at) from runs) + to_microseconds((1e6 * elapsed_s)::bigint) as created_at,
    exp(best_log_speedup) as best_speedup, exp(leader_log_speedup) as leader_speedup, evaluations, calls, tokens,
    cost_usd, evaluator_s
from curve where seq > $since order by seq limit $most

-- [requests]
select t.rowid as place, t.task, t.request_id, a.mutator, p.model, t.kernel_id, t.status,
    coalesce(a.created_at, t.created_at) as asked_at, t.created_at
from tells as t left join asks as a using (request_id) left join proposals as p using (request_id)
where t.rowid > $since order by t.rowid limit $most

-- [calls]
select rowid as place, call_id, request_id, regexp_replace(request_id, '#.*$', '') as task, role, model, tokens_in,
    tokens_out, cost_usd, latency_s, status, error, created_at
from llm_calls where rowid > $since order by rowid limit $most

-- [verdicts]
select rowid as place, evaluation_id, request_id, task, kernel_id, level, coalesce(inherited, status) as status, message,
    exp(log_speedup) as speedup, exp(log_speedup - 1.96 * log_speedup_se) as speedup_low,
    exp(log_speedup + 1.96 * log_speedup_se) as speedup_high, build_ms, verify_ms, time_ms, confirm_ms, worker, created_at
from evaluations where rowid > $since order by rowid limit $most

-- [events]
select rowid as place, kind, task, detail_json, created_at from events
where rowid > $since and kind <> 'definitions' order by rowid limit $most

-- [bests]
-- Best kernels that are confirmed and faster than the naive ones.
select s.*, v.judged_at as created_at, (select max(seq) from tells) as place
from standings as s join verdicts as v using (task, kernel_id) where s.level = 'confirmed' and s.speedup > 1
