-- [individuals]
-- Every individual in the order in which they came to be, or, of more than $most, those of $kept, the best of each cell and an even part of
-- the others of each task and status. individuals: how many there are; place: which of them it is.
with every as (
    select
        task, kernel_id, generation, island, mutator, model, left(description, 100) as change, status, level,
        exp(stands_at) as certain, speedup, speedup_low as low, speedup_high as high, cell, worker,
        duplicate_of is not null as is_duplicate, parents, source_task,
        epoch(created_at) - epoch(coalesce((select min(created_at) from runs), (select min(created_at) from asks))) as elapsed_s,
        row_number() over (order by created_at, task, number) as place,
        row_number() over (order by task, status, created_at, number) as drawn,
        count(*) over () as individuals
    from lineage
)
select * exclude (drawn) from every
where individuals <= $most or kernel_id in $kept
    or (task, kernel_id) in (select (task, kernel_id) from elites)
    or drawn * $most // individuals <> (drawn - 1) * $most // individuals
order by place

-- [migrations]
-- Kernels that another island took over, in the order in which it did. place: how many individuals there were by then.
with every as (
    select created_at, row_number() over (order by created_at, task, number) as place from individuals
)
select
    m.* exclude (outcome, children, improved, best_child, best_child_stands_at, elapsed_s), coalesce(place, 0) as place,
    epoch(m.created_at) - epoch(coalesce((select min(created_at) from runs), (select min(created_at) from asks))) as elapsed_s
from (from migrants where outcome <> 'rejected') as m
asof left join every on every.created_at <= m.created_at
order by m.created_at, m.task, m.number

-- [paths]
-- The principal parents of each task's best kernel ($kernel empty), or of one kernel of a task, back to the first one.
-- champion: the task whose kernel it is; step: 0 for that kernel itself.
with recursive path(champion, task, kernel_id, step) as (
    select task, task, kernel_id, 0 from best where $kernel = ''
    union all
    select $task, $task, $kernel, 0 where $kernel <> ''
    union all
    select p.champion, coalesce(i.source_task, i.task), i.parent_id, p.step + 1
    from path as p join individuals as i on i.task = p.task and i.kernel_id = p.kernel_id
    where i.parent_id is not null and p.step < 10000
)
select champion, task, kernel_id, step from path order by champion, step desc
