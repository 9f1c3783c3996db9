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

-- [shapes]
-- With which hidden shapes a task is judged.
select detail_json from events where kind = 'hidden_shapes' and task = $task
