-- [like]
-- The kernel of this id, or those whose ids begin so.
select kernel_id from kernels where starts_with(kernel_id, $prefix) order by kernel_id <> $prefix limit 2

-- [tasks]
-- Tasks that a kernel belongs to, drafts that were never handed in included.
select task from (
    select task, created_at from individuals where kernel_id = $kernel
    union all
    select task, created_at from tool_calls where kernel_id = $kernel
) where starts_with(task, $task) order by created_at limit 1

-- [files]
from kernels where kernel_id in $kernels

-- [born]
from individuals where kernel_id in $kernels

-- [verdicts]
from verdicts where kernel_id in $kernels

-- [profiles]
from profiles where kernel_id in $kernels and failure is null order by rowid

-- [profile]
-- Those of a kernel in one task, the failed ones too.
from profiles where task = $task and kernel_id = $kernel order by rowid

-- [metrics]
from metrics where kernel_id in $kernels order by rowid

-- [measured]
-- Evaluations with all that was measured of each.
with t as (
    select evaluation_id, list(t order by rowid) as timings
    from timings t where evaluation_id in $evaluations group by evaluation_id
),
l as (
    select evaluation_id, list(l order by rowid) as library_timings
    from library_timings l where evaluation_id in $evaluations group by evaluation_id
),
r as (
    select evaluation_id, list(r order by rowid) as errors
    from errors r where evaluation_id in $evaluations group by evaluation_id
)
from evaluations left join t using (evaluation_id) left join l using (evaluation_id) left join r using (evaluation_id)
where evaluation_id in $evaluations

-- [judged]
-- The verdict that counts on the kernels whose ids begin so, which says more than its evaluation did at the time.
select kernel_id, duplicate_of, evaluation_id, level, log_speedup, log_speedup_se from verdicts where task = $task and starts_with(kernel_id, $prefix) limit 2

-- [ancestors]
from ancestors($task, $kernel) order by generation, created_at

-- [born_like]
select kernel_id from individuals where task = $task and starts_with(kernel_id, $prefix)

-- [naive]
select task, kernel_id from individuals where generation = 0 and starts_with(task, $task)
qualify row_number() over (partition by task order by number) = 1 order by task

-- [best]
select task, kernel_id from best where starts_with(task, $task) order by task

-- [best_files]
select b.*, k.operator, k.target, k.source, k.values_json
from best b join kernels k using (kernel_id) where starts_with(b.task, $task) order by b.task

-- [proposed]
-- Tasks that a kernel was proposed in, in their order.
select task, kernel_id from individuals where kernel_id = $kernel order by created_at

-- [ids]
-- Those of most gain first.
select kernel_id from verdicts where starts_with(kernel_id, $prefix)
group by kernel_id order by max(speedup) desc nulls last limit $most

-- [confirmed]
-- The best confirmed one of a task.
select kernel_id from verdicts where task = $task and status = 'correct' and level = 'confirmed'
order by log_speedup desc, duplicate_of is not null, kernel_id limit 1

-- [beside]
-- By workload how a kernel fared in pairs with another one, at the most severe level of those there are.
select workload, log_ratio, log_ratio_se
from timings
where evaluation_id = (
    select arg_max(evaluation_id, case level when 'confirmed' then 2 when 'full' then 1 else 0 end)
    from evaluations
    where task = $task and kernel_id = $kernel and anchor_id = $anchor and status = 'correct'
)
order by rowid

-- [sought]
-- Correct kernels whose file or idea has a text, and whose file or build's facts have another; the surest gain first.
select
    i.task, i.kernel_id, i.description, i.mutator, i.author, v.level, v.flagged, v.speedup, v.speedup_low,
    v.speedup_high, v.stands_at
from individuals as i join verdicts as v using (task, kernel_id) join kernels as k using (kernel_id)
left join evaluations as e using (evaluation_id)
where
    v.status = 'correct' and starts_with(i.task, $task) and v.speedup >= $least
    and contains(lower(concat_ws(' ', k.source, i.description)), lower($text))
    and contains(lower(concat_ws(' ', k.source, e.facts_json)), lower($instruction))
order by v.stands_at desc nulls last limit $most
