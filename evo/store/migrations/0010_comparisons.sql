-- A run may be one cell of a comparison: what it used and how far that brought it are counted alike in all of them.

ALTER TABLE runs ADD COLUMN comparison VARCHAR;
ALTER TABLE runs ADD COLUMN arm VARCHAR;
COMMENT ON TABLE runs IS 'The run itself, one row; its sessions are in events. comparison and arm: of a run that is a cell of one (evo compare); NULL for any other.';

CREATE VIEW steps AS
WITH calls AS (
    SELECT
        request_id,
        coalesce(sum(tokens_in), 0) + coalesce(sum(tokens_out), 0) AS tokens,
        coalesce(sum(cost_usd), 0) AS cost_usd
    FROM llm_calls
    GROUP BY request_id
),
drafts AS (
    SELECT
        request_id,
        sum(evaluations) AS evaluations,
        count(*) FILTER (tool IN ('build', 'check') AND kernel_id IS NOT NULL) AS checks
    FROM tool_calls
    GROUP BY request_id
),
told AS (
    SELECT
        t.task, t.seq, t.request_id, t.kernel_id, t.status, t.created_at, p.evaluate_s, p.parents,
        coalesce(p.kind, CASE p.mutator WHEN 'ancestor' THEN 'ancestor' WHEN 'tune' THEN 'trial' ELSE 'child' END) AS kind
    FROM tells AS t
    LEFT JOIN proposals AS p USING (request_id)
)
SELECT
    t.task, t.seq, t.request_id, t.kernel_id, t.kind, t.status,
    (
        t.kernel_id IS NOT NULL AND t.kind <> 'trial' AND t.status NOT IN ('duplicate', 'invalid', 'unsupported')
    )::INTEGER + coalesce(drafts.evaluations, 0)::INTEGER AS evaluations,
    (t.kernel_id IS NOT NULL AND t.kind = 'trial' AND t.status <> 'duplicate')::INTEGER AS trials,
    (t.status = 'duplicate')::INTEGER AS duplicates,
    (t.status IN ('invalid', 'unsupported'))::INTEGER AS rejected,
    (
        t.kernel_id IS NOT NULL AND t.kind = 'child' AND t.status NOT IN ('duplicate', 'invalid', 'unsupported')
        AND parent.status NOT IN ('correct', 'slower')
    )::INTEGER AS repairs,
    coalesce(drafts.checks, 0)::INTEGER AS checks,
    coalesce(calls.tokens, 0)::BIGINT AS tokens,
    coalesce(calls.cost_usd, 0) AS cost_usd,
    coalesce(t.evaluate_s, 0) AS evaluator_s,
    t.created_at
FROM told AS t
LEFT JOIN drafts USING (request_id)
LEFT JOIN calls USING (request_id)
LEFT JOIN verdicts AS parent ON parent.task = t.task AND parent.kernel_id = t.parents[1]
UNION ALL BY NAME
SELECT task, seq, kernel_id, 'profiled' AS status, seconds AS evaluator_s, created_at
FROM profiles
WHERE seq IS NOT NULL;
COMMENT ON VIEW steps IS 'What a run used, request by request in the order of seq, and profile by profile (request_id NULL). evaluations: kernels that reached the compiler and were no duplicates, ancestors and repairs among them, and drafts that a dialogue had judged; this is what a budget of evaluations counts. Counted apart: trials (settings of tunables), duplicates, rejected (the compiler saw nothing of them), checks (drafts that a dialogue had compiled, and at most run on a few small shapes). repairs: of the evaluations those whose principal parent was not correct. tokens: in and out, without what is lost. evaluator_s: of evaluators, drafts and profiles included; the confirmation at the end of a run is charged to nobody.';

CREATE VIEW curve AS
SELECT
    s.task, s.seq, s.request_id, s.kernel_id, s.status,
    (sum(coalesce(s.evaluations, 0)) OVER so_far)::BIGINT AS evaluations,
    (sum(coalesce(s.trials, 0)) OVER so_far)::BIGINT AS trials,
    (sum(coalesce(s.tokens, 0)) OVER so_far)::BIGINT AS tokens,
    sum(coalesce(s.cost_usd, 0)) OVER so_far AS cost_usd,
    sum(s.evaluator_s) OVER so_far AS evaluator_s,
    epoch(s.created_at) - epoch((SELECT min(created_at) FROM runs)) AS elapsed_s,
    max(CASE WHEN v.status = 'correct' AND s.request_id IS NOT NULL THEN v.log_speedup END) OVER so_far AS best_log_speedup
FROM steps AS s
LEFT JOIN verdicts AS v ON v.task = s.task AND v.kernel_id = s.kernel_id
WINDOW so_far AS (PARTITION BY s.task ORDER BY s.seq)
ORDER BY s.task, s.seq;
COMMENT ON VIEW curve IS 'Per task the best log speedup so far over all that was used by then (see steps), with hindsight: a kernel counts with the verdict that counts now, and not at all if it was refuted later.';

CREATE VIEW used AS
WITH calls AS (
    SELECT
        regexp_replace(request_id, '#.*$', '') AS task, count(*) AS calls,
        count(*) FILTER (status IN ('failed', 'unavailable')) AS failed_calls,
        coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in, coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
        coalesce(sum(cost_usd), 0) AS cost_usd,
        coalesce(sum(lost_tokens), 0)::BIGINT AS lost_tokens, coalesce(sum(lost_usd), 0) AS lost_usd
    FROM llm_calls
    GROUP BY 1
),
done AS (
    SELECT
        task,
        sum(evaluations) AS evaluations, sum(trials) AS trials, sum(duplicates) AS duplicates,
        sum(rejected) AS rejected, sum(repairs) AS repairs, sum(checks) AS checks, sum(evaluator_s) AS evaluator_s
    FROM steps
    GROUP BY task
)
SELECT
    d.task, d.evaluations::BIGINT AS evaluations, d.trials::BIGINT AS trials, d.duplicates::BIGINT AS duplicates,
    d.rejected::BIGINT AS rejected, d.repairs::BIGINT AS repairs, d.checks::BIGINT AS checks,
    coalesce(c.calls, 0)::BIGINT AS calls, coalesce(c.failed_calls, 0)::BIGINT AS failed_calls,
    coalesce(c.tokens_in, 0)::BIGINT AS tokens_in, coalesce(c.tokens_out, 0)::BIGINT AS tokens_out,
    coalesce(c.cost_usd, 0) AS cost_usd,
    coalesce(c.lost_tokens, 0)::BIGINT AS lost_tokens, coalesce(c.lost_usd, 0) AS lost_usd,
    d.evaluator_s
FROM done AS d
LEFT JOIN calls AS c USING (task);
COMMENT ON VIEW used IS 'Per task what a run used in all, counted as in steps; calls, tokens and dollars also of requests that were never told. lost_tokens and lost_usd: upper bounds of what calls without a known end cost besides.';
