-- What the report of a comparison prints. It goes to all runs of the comparison's folder, the judgement's store among
-- them, whose rows have `run = 'store'`.

-- [ended]
-- As `evo.compare.cells.standing` tells it, by the last event of its session.
select run, arg_max(kind, created_at) as kind,
    json_extract_string(arg_max(detail_json, created_at), '$.reason') as reason
from events
where run <> 'store' and kind in ('session', 'finished', 'stopped', 'task_failed')
group by run

-- [cells]
-- using ended
select run, r.arm, r.seed,
    concat_ws('/', split_part(own, '-', 1), split_part(own, '-', 2), split_part(own, '-', 3)) as task,
    case
        when e.kind is distinct from 'finished' or starts_with(e.reason, $undone) then 'open'
        when starts_with(e.reason, $waits) then 'waiting'
        when e.reason = $faulty then 'failed' else 'done'
    end as standing,
    coalesce(e.reason, '') as reason
from runs r
left join ended e using (run)
cross join lateral (select substr(r.run, length(r.arm) + 2) as own)  -- the folder's name: ARM-OPERATOR-DTYPE-TARGET-SEED
where run <> 'store'

-- [winners]
select run, task, kernel_id, level, flagged, log_speedup, coalesce(mutator = 'ancestor', false) as is_naive
from best
where run <> 'store'

-- [beside]
select task, kernel_id, coalesce(inherited, status) as verdict, message, log_ratio, log_ratio_se
from evaluations
where run = 'store' and evaluation_id = task || '/beside/' || kernel_id

-- [searched]
-- Winners at the sizes that were searched, where others were drawn.
select task, kernel_id, evaluation_id, coalesce(inherited, status) as verdict, message, log_speedup
from evaluations
where run = 'store' and evaluation_id = task || '/searched/' || kernel_id

-- [judged]
-- What turns out wrong at the sizes that were searched, or beside the fastest winner, is wrong.
-- using beside, searched
select j.task, j.kernel_id, j.evaluation_id, j.log_speedup, j.log_speedup_se, b.log_ratio, b.log_ratio_se,
    coalesce(s.log_speedup, j.log_speedup) as searched, coalesce(s.evaluation_id, j.evaluation_id) as searched_id,
    case
        when s.verdict <> 'correct' then s.verdict when b.verdict <> 'correct' then b.verdict
        else coalesce(j.inherited, j.status)
    end as verdict,
    case
        when s.verdict <> 'correct' then s.message when b.verdict <> 'correct' then b.message else j.message
    end as message
from evaluations j
left join beside b using (task, kernel_id)
left join searched s using (task, kernel_id)
where run = 'store' and j.evaluation_id = task || '/judged/' || kernel_id

-- [times]
select evaluation_id, list([anchor_latency_us, latency_us] order by workload) as times_us
from timings
where run = 'store'
group by evaluation_id

-- [outcomes]
-- Of tasks all cells of which are over, and all winners judged: before that the failures alone would count.
-- using cells, winners, judged, times
with
every as (
    select c.run, c.arm, c.task, c.seed, c.standing, j.verdict, j.log_speedup, j.log_speedup_se, j.searched, t.times_us,
        c.standing = 'done' and (w.kernel_id is null or w.is_naive or j.kernel_id is not null) as known
    from cells c
    left join winners w using (run, task)
    left join judged j on j.task = c.task and j.kernel_id = w.kernel_id and not w.is_naive
    left join times t on t.evaluation_id = j.searched_id
)
select run, arm, split_part(task, '/', 1) as operator, task, seed,
    if(verdict = 'correct', log_speedup, 0) as log_speedup,
    if(verdict = 'correct', log_speedup_se, 0) as log_speedup_se, if(verdict = 'correct', searched, 0) as searched,
    coalesce(verdict = 'correct', false) as has_winner,
    if(verdict = 'correct', coalesce(times_us, []), []) as times_us
from every
where known and task in (
    select task from every group by task having count(*) filter (known or standing = 'failed') = $per_task
)

-- [scores]
-- using outcomes
select *,
    case
        when not has_winner then 0
        when len(times_us) = 0 then exp(log_speedup)
        else list_sum([t[1] * t[1] / t[2] for t in times_us]) / list_sum([t[1] for t in times_us])
    end as score
from outcomes

-- [outcome_rows]
-- Fields of `evo.compare.inference.Outcome`.
-- using outcomes
select arm, operator, task, seed, log_speedup, log_speedup_se, searched, has_winner, times_us
from outcomes
order by arm, task, seed

-- [arms]
-- Each arm by itself: seeds are averaged first, then tasks of an operator, then operators.
-- using scores
with
tasks as (
    select arm, operator, task, count(*) as cells, avg(log_speedup) as log_speedup,
        avg((has_winner)::int) as with_winner, avg((has_winner and exp(log_speedup) > 1)::int) as above_1,
        avg((has_winner and exp(log_speedup) > 2)::int) as above_2,
        avg((has_winner and exp(log_speedup) > 4)::int) as above_4, avg((score >= 1)::int) as fast_1,
        avg((score >= 2)::int) as fast_2, avg((score >= 4)::int) as fast_4, avg((score >= 8)::int) as fast_8
    from scores
    group by arm, operator, task
),
operators as (
    select arm, operator, count(*) as tasks, sum(cells) as cells, avg(log_speedup) as log_speedup,
        avg(with_winner) as with_winner, avg(above_1) as above_1, avg(above_2) as above_2, avg(above_4) as above_4,
        avg(fast_1) as fast_1, avg(fast_2) as fast_2, avg(fast_4) as fast_4, avg(fast_8) as fast_8
    from tasks
    group by arm, operator
),
arms as (
    select arm, count(*) as operators, sum(tasks)::int as tasks, sum(cells)::int as cells,
        exp(avg(log_speedup)) as speedup,
        avg(with_winner) as with_winner, avg(above_1) as above_1, avg(above_2) as above_2, avg(above_4) as above_4,
        avg(fast_1) as fast_1, avg(fast_2) as fast_2, avg(fast_4) as fast_4, avg(fast_8) as fast_8
    from operators
    group by arm
)
select *
from arms
join (select arm, exp(median(log_speedup)) as median from tasks group by arm) using (arm)
join (select arm, median(score) as score from scores group by arm) using (arm)
order by speedup desc, arm

-- [pairs]
-- using outcomes
select own.arm, own.operator, own.task, own.log_speedup - theirs.log_speedup as log_ratio,
    own.searched - theirs.searched as searched, (own.has_winner or theirs.has_winner)::int as found
from outcomes own
join outcomes theirs on theirs.arm = $reference and theirs.task = own.task and theirs.seed = own.seed
where own.arm <> $reference

-- [tasks]
-- using pairs
select arm, operator, task, count(*) as pairs, sum(found) as found, avg(log_ratio) as log_ratio,
    avg(searched) as searched
from pairs
group by all

-- [operators]
-- using tasks
select arm, operator, sum(pairs)::int as pairs, sum(found)::int as found, avg(log_ratio) as log_ratio,
    avg(searched) as searched
from tasks
group by all

-- [beside_reference]
-- Each arm beside the reference: the primary endpoint.
-- using operators
select arm, count(*) as operators, sum(pairs)::int as pairs, sum(found)::int as found, exp(avg(log_ratio)) as ratio,
    exp(median(log_ratio)) as median, exp(avg(searched)) as searched
from operators
group by arm
order by ratio desc, arm

-- [operators_beside]
-- The same, operator by operator: the test flips the signs of whole families of them.
-- using operators
select arm, operator, pairs, found, exp(log_ratio) as ratio, exp(searched) as searched
from operators
order by arm, operator

-- [used]
select arm, count(*) as cells, sum(evaluations)::bigint as evaluations, sum(trials)::bigint as trials,
    sum(duplicates)::bigint as duplicates, sum(rejected)::bigint as rejected, sum(repairs)::bigint as repairs,
    sum(checks)::bigint as checks, sum(calls)::bigint as calls, sum(failed_calls)::bigint as failed_calls,
    sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(cost_usd) as cost_usd,
    sum(lost_tokens)::bigint as lost_tokens, sum(lost_usd) as lost_usd, sum(evaluator_s) as evaluator_s
from used
where run <> 'store'
group by arm
order by arm

-- [cell_rows]
-- using outcomes
select c.task, c.arm, c.seed, c.standing, c.reason, exp(w.log_speedup) as own_speedup, w.level, w.flagged,
    exp(o.log_speedup) as judged_speedup,
    if(o.has_winner, exp(o.log_speedup - 1.96 * o.log_speedup_se), null) as judged_low,
    if(o.has_winner, exp(o.log_speedup + 1.96 * o.log_speedup_se), null) as judged_high,
    exp(o.searched) as searched_speedup, o.has_winner, u.evaluations, u.trials, (u.tokens_in + u.tokens_out)::bigint as tokens, u.cost_usd, u.evaluator_s,
    if(w.is_naive, null, left(w.kernel_id, 12)) as kernel, c.run
from cells c
left join winners w using (run, task)
left join outcomes o using (run)
left join (from used where run <> 'store') u using (run)
order by c.task, c.arm, c.seed

-- [winner_rows]
-- Every distinct winner of a task, with geometric means over workloads.
-- using cells, winners, judged
with
own as (
    select w.task, w.kernel_id, string_agg(c.arm || ' s' || c.seed, ', ' order by c.arm, c.seed) as cells
    from winners w
    join cells c using (run, task)
    where not w.is_naive and c.standing = 'done'
    group by all
),
measured as (
    select evaluation_id, exp(avg(ln(latency_us))) as latency_us, exp(avg(ln(anchor_latency_us))) as naive_us
    from timings
    where run = 'store'
    group by all
),
library as (
    select evaluation_id, exp(avg(ln(library_latency_us))) as library_us, exp(avg(log_ratio)) as over_library,
        any_value(untried) as untried
    from library_timings
    where run = 'store'
    group by all
)
select o.task, o.cells, left(o.kernel_id, 12) as kernel, coalesce(j.verdict, 'not judged') as verdict,
    if(j.verdict = 'correct', exp(j.log_speedup), null) as speedup,
    if(j.verdict = 'correct', exp(j.log_speedup - 1.96 * j.log_speedup_se), null) as speedup_low,
    if(j.verdict = 'correct', exp(j.log_speedup + 1.96 * j.log_speedup_se), null) as speedup_high,
    if(j.verdict = 'correct', exp(j.searched), null) as searched,
    if(j.verdict = 'correct', exp(j.log_ratio), null) as over_fastest,
    if(j.verdict = 'correct', exp(j.log_ratio - 1.96 * j.log_ratio_se), null) as over_fastest_low,
    if(j.verdict = 'correct', exp(j.log_ratio + 1.96 * j.log_ratio_se), null) as over_fastest_high,
    m.latency_us, m.naive_us, l.library_us, l.over_library, l.untried, left(j.message, 300) as message, o.kernel_id
from own o
left join judged j using (task, kernel_id)
left join measured m on m.evaluation_id = j.evaluation_id and j.verdict = 'correct'
left join library l on l.evaluation_id = j.evaluation_id and j.verdict = 'correct'
order by o.task, speedup desc nulls last, o.kernel_id

-- [time_rows]
select e.task, left(e.kernel_id, 12) as kernel, split_part(e.evaluation_id, '/', 4) as sizes, t.workload, t.latency_us, t.anchor_latency_us as naive_us,
    l.library_latency_us as library_us, exp(t.log_ratio) as speedup,
    exp(t.log_ratio - 1.96 * t.log_ratio_se) as speedup_low,
    exp(t.log_ratio + 1.96 * t.log_ratio_se) as speedup_high, t.pairs
from timings t
join evaluations e on e.evaluation_id = t.evaluation_id and e.run = 'store'
    and e.evaluation_id in (e.task || '/judged/' || e.kernel_id, e.task || '/searched/' || e.kernel_id)
left join library_timings l on l.evaluation_id = t.evaluation_id and l.workload = t.workload and l.run = 'store'
where t.run = 'store'
order by e.task, e.kernel_id, sizes, t.workload

-- [failures]
select arm, status, sum(count)::bigint as count, max(left(example, 300)) as example
from failures
where run <> 'store'
group by arm, status
order by arm, count desc, status

-- [models]
select arm, model, coalesce(author, '') as author, count(*) filter (status <> 'withdrawn') as calls,
    count(*) filter (status in ('failed', 'unavailable')) as failed, sum(coalesce(tokens_in, 0))::bigint as tokens_in,
    sum(coalesce(tokens_out, 0))::bigint as tokens_out, sum(coalesce(cost_usd, 0)) as cost_usd
from llm_calls
where run <> 'store'
group by all
order by arm, model, author

-- [hosts]
select engine_version, host_json, count(*) as cells, min(created_at) as first_began,
    max(created_at) as last_began
from runs
where run <> 'store'
group by all
order by first_began

-- [shapes]
select task, json_extract(detail_json, '$.hidden')::int as hidden, json_extract(detail_json, '$.timed')::int as timed
from events
where run = 'store' and kind = 'drawn_sizes'
order by task

-- [source]
-- The file of one winner, tunables besides.
select source, values_json from kernels where run = 'store' and kernel_id = $kernel

-- [sources]
select kernel_id, source, values_json from kernels where run = 'store'

-- [curve]
-- Mean best so far of every arm against one kind of budget, as `evo.compare.conclusions` works it out.
with
points as (  -- steps: the best so far of a cell by what it had used
    select run, arm, seed, task, $budget::double as used, max(best_log_speedup) as best
    from curve
    where run <> 'store' and best_log_speedup is not null
    group by all
),
grid as (
    select i, if(i = $last, most, i * (most / $last)) as used
    from range($points) steps(i), (select max(used) as most from points)
),
wanted as (
    select * from (select distinct run, arm, seed, task from points), grid
),
cells as (
    select w.arm, w.seed, w.task, w.i, w.used, coalesce(p.best, 0) as best
    from wanted w
    asof left join points p on p.run = w.run and p.used <= w.used
),
tasks as (select arm, task, i, used, avg(best) as best from cells group by all),
operators as (
    select arm, split_part(task, '/', 1) as operator, i, used, avg(best) as best from tasks group by all
)
select arm, i, used, exp(avg(best)) as speedup, avg(best) as log_speedup
from operators
group by all
order by arm, i
