-- [last_event]
-- How the last session of a cell stands.
select kind, detail_json from events
where kind in ('session', 'finished', 'stopped', 'task_failed') order by created_at desc, rowid desc limit 1

-- [used]
select * exclude (task) from used

-- [curve]
select seq, evaluations, trials, calls, tokens, cost_usd, evaluator_s, elapsed_s, best_log_speedup
from curve where best_log_speedup is not null order by seq

-- [judgements]
-- The measurements of one kind.
select evaluation_id from evaluations where evaluation_id = task || '/' || $kind || '/' || kernel_id

-- [events]
-- What the judgement tells of tasks.
select task, detail_json from events where kind = $kind order by created_at

-- [judged]
select count(*) as n from evaluations

-- [content]
-- The digest of all that a run holds but times, whatever the order of its rows.
select sha256(coalesce(string_agg(part, '' order by part), '')) as content
from (
    select sha256(concat_ws('|', 'run', config_json, epoch_us(created_at))) as part from runs
    union all select sha256(concat_ws('|', 'kernel', kernel_id, source, values_json)) from kernels
    union all select sha256(concat_ws('|', 'told', seq, request_id, kernel_id, status, log_speedup)) from tells
    union all
    select sha256(concat_ws('|', 'call', call_id, messages_json, answer, tokens_in, tokens_out, cost_usd))
    from llm_calls
    union all
    select sha256(concat_ws('|', 'verdict', evaluation_id, kernel_id, level, status, is_verdict, log_speedup,
        log_speedup_se))
    from evaluations
    union all select sha256(concat_ws('|', 'timing', evaluation_id, workload, latency_us, anchor_latency_us)) from timings
)
