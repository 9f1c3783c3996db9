-- [holds]
-- Numbers of what a run holds for others.
select (select count(distinct (task, kernel_id)) from individuals) as kernels,
    (select count(*) from llm_calls where answer is not null) as calls

-- [models]
-- Those that answered, the busiest first.
select model, count(*) as calls from llm_calls where heard group by model order by calls desc, model
