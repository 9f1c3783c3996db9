-- Requests may ask for words and for profiles besides kernels: what was answered is kept with the proposals.

ALTER TABLE proposals ADD COLUMN kind VARCHAR;
ALTER TABLE proposals ADD COLUMN role VARCHAR;
ALTER TABLE proposals ADD COLUMN text VARCHAR;
ALTER TABLE proposals ADD COLUMN metrics_json VARCHAR;
COMMENT ON TABLE proposals IS 'Answers to requests: a child (kernel_id), words (text), metrics of a profiler (metrics_json), or why there is none of them (failure). kind: ancestor, child, trial, say or profile (NULL in runs of older versions: ancestor, child or trial); role: what a model was called for, where that is not the mutator. is_new: no request told before had this child in its task. generation: 0 without parents, else one more than the highest of theirs. parents: the principal one first. seconds: of proposing; evaluate_s: of evaluators, all levels.';
COMMENT ON TABLE tells IS 'What the strategy was told, in the order of seq. status: the verdict, or no_child, said, profiled, no_answer, unavailable. seconds: of an evaluator, until the screening verdict; cost_usd: of language models.';

CREATE OR REPLACE VIEW offspring AS
WITH spent AS (
    SELECT request_id, sum(cost_usd) AS cost_usd FROM llm_calls GROUP BY request_id
),
-- What is beside the principal parent, which most have alone.
others AS (
    SELECT p.request_id, max(v.log_speedup) FILTER (v.status = 'correct') AS log_speedup, bool_or(v.status = 'correct') AS correct
    FROM (SELECT task, request_id, unnest(parents[2:]) AS kernel_id FROM proposals WHERE is_new AND len(parents) > 1) AS p
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
    p.seconds AS propose_s, p.evaluate_s, spent.cost_usd
FROM proposals AS p
LEFT JOIN verdicts AS child ON p.is_new AND child.task = p.task AND child.kernel_id = p.kernel_id
LEFT JOIN verdicts AS parent ON p.is_new AND parent.task = p.task AND parent.kernel_id = p.parents[1]
LEFT JOIN others USING (request_id)
LEFT JOIN spent USING (request_id)
WHERE coalesce(p.kind, 'child') NOT IN ('say', 'profile');
COMMENT ON VIEW offspring IS 'Every proposal that a kernel was asked of; if its child was new to the task (is_new) also its verdict, that of its parents (correct if one of them is) and its gain over the fastest correct one of them, ln(its time / child time), where both are correct. propose_s: of the mutator, models included; evaluate_s: of evaluators.';

CREATE OR REPLACE VIEW failures AS
WITH failed AS (
    SELECT task, status, message, judged_at AS happened_at
    FROM verdicts
    WHERE status NOT IN ('correct', 'slower')
    UNION ALL
    SELECT task, CASE WHEN kind IN ('say', 'profile') THEN 'no_answer' ELSE 'no_child' END, failure, created_at
    FROM proposals
    WHERE failure <> '' AND kernel_id IS NULL
)
SELECT task, status, count(*) AS count, arg_max(nullif(message, ''), happened_at) AS example
FROM failed
GROUP BY task, status;
COMMENT ON VIEW failures IS 'Per task and status how many kernels failed (no_child: requests for a kernel that led to none; no_answer: those for words or for a profile; kernels that are only slower are no failures), and the latest message as an example.';
