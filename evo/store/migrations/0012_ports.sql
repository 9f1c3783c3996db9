-- A kernel may come from one of another task: of another operator, or of another dtype, which may be the same file.

ALTER TABLE proposals ADD COLUMN source_task VARCHAR;
COMMENT ON COLUMN proposals.source_task IS 'The task that the principal parent is a kernel of, where that is another one; the other parents are of the proposal''s own task.';

CREATE OR REPLACE VIEW individuals AS
SELECT
    task, kernel_id, parents[1] AS parent_id, parents, generation, request_id, number, mutator, model, description,
    created_at, author, source_task
FROM proposals
WHERE is_new;
COMMENT ON VIEW individuals IS 'Per task and kernel how it first came to be: the first request that proposed it. parent_id: the principal parent, a kernel of source_task where that is not NULL. author: who gave it, if it came from outside.';

CREATE OR REPLACE VIEW lineage AS
SELECT
    i.task, i.kernel_id, i.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at, i.author, i.source_task
FROM individuals AS i
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first, a kernel of source_task where that is not NULL), how it was made, its verdict (status NULL: none yet), and its generation: 0 for a first ancestor, else one more than the highest of its parents. author: who gave it, if it came from outside.';

CREATE OR REPLACE MACRO ancestors(of_task, of_kernel) AS TABLE
WITH RECURSIVE found (task, kernel_id) AS (
    SELECT of_task, of_kernel
    UNION
    SELECT CASE WHEN place = 1 THEN coalesce(source_task, task) ELSE task END, parent_id
    FROM (
        SELECT i.task, i.source_task, unnest(i.parents) AS parent_id, generate_subscripts(i.parents, 1) AS place
        FROM found JOIN individuals AS i USING (task, kernel_id)
    )
)
SELECT l.* FROM lineage AS l JOIN found USING (task, kernel_id);

CREATE OR REPLACE VIEW offspring AS
WITH spent AS (
    SELECT request_id, sum(cost_usd) AS cost_usd FROM llm_calls GROUP BY request_id
),
-- Speedups of other tasks are over other kernels: what comes from there is compared with parents of its own task alone.
compared AS NOT MATERIALIZED (
    SELECT *, CASE WHEN source_task IS NULL THEN parents ELSE parents[2:] END AS own_parents FROM proposals
),
-- What is beside the principal parent, which most have alone.
others AS (
    SELECT p.request_id, max(v.log_speedup) FILTER (v.status = 'correct') AS log_speedup, bool_or(v.status = 'correct') AS correct
    FROM (SELECT task, request_id, unnest(own_parents[2:]) AS kernel_id FROM compared WHERE is_new AND len(own_parents) > 1) AS p
    JOIN verdicts AS v USING (task, kernel_id)
    GROUP BY p.request_id
)
SELECT
    p.task, p.request_id, p.number, p.mutator, p.model, p.kernel_id, p.is_new, p.generation,
    CASE WHEN p.is_new THEN p.parents[1] END AS parent_id,
    CASE WHEN p.is_new THEN p.parents END AS parents,
    child.duplicate_of IS NOT NULL AS is_duplicate,
    child.status, child.log_speedup,
    CASE
        WHEN parent.status = 'correct' OR coalesce(others.correct, false) THEN 'correct' ELSE parent.status
    END AS parent_status,
    child.log_speedup - greatest(CASE WHEN parent.status = 'correct' THEN parent.log_speedup END, others.log_speedup) AS gain,
    p.seconds AS propose_s, p.evaluate_s, spent.cost_usd, p.source_task
FROM compared AS p
LEFT JOIN verdicts AS child ON p.is_new AND child.task = p.task AND child.kernel_id = p.kernel_id
LEFT JOIN verdicts AS parent ON p.is_new AND parent.task = p.task AND parent.kernel_id = p.own_parents[1]
LEFT JOIN others USING (request_id)
LEFT JOIN spent USING (request_id)
WHERE coalesce(p.kind, 'child') NOT IN ('say', 'profile');
COMMENT ON VIEW offspring IS 'Every proposal that a kernel was asked of; if its child was new to the task (is_new) also its verdict, that of its parents in its own task (correct if one of them is) and its gain over the fastest correct one of them, ln(its time / child time), where both are correct: a kernel that was carried over as it stands (parents of source_task alone) has none. propose_s: of the mutator, models included; evaluate_s: of evaluators.';
