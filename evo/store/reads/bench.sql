-- [fastest]
select kernel_id, mutator, description, status, level, flagged, speedup, speedup_low, speedup_high
from lineage where task = $task and status = 'correct' order by stands_at desc nulls last, kernel_id limit $most

-- [gains]
-- Kernels that are faster than their parents (sign -1), or slower (1), the farthest first.
select o.kernel_id, o.mutator, p.description, o.status, o.gain from offspring o
join proposals p using (request_id)
where o.task = $task and o.is_new and $sign * o.gain < 0 and o.mutator not in ('tune', 'ancestor')
order by $sign * o.gain limit $most

-- [failures]
select v.kernel_id, i.mutator, i.description, v.status, v.message from verdicts v
join individuals i using (task, kernel_id)
where v.task = $task and v.status not in ('correct', 'slower')
qualify row_number() over (partition by v.status order by v.judged_at desc) <= 2
order by v.judged_at desc limit $most

-- [kernels]
-- Those of one operator and target whose ids begin so.
from kernels where starts_with(kernel_id, $prefix) and operator = $operator and target = $target limit 2

-- [use]
-- What a use of a tool came to.
from tool_calls where tool_key = $key order by rowid

-- [uses]
select tool_key, evaluations from tool_calls order by rowid
