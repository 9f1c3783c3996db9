-- A budget may count the answers of language models, as published loops are described: what was used says how many.

CREATE OR REPLACE VIEW steps AS
WITH calls AS (
    SELECT
        request_id,
        count(*) FILTER (status NOT IN ('failed', 'unavailable')) AS calls,
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
    coalesce(calls.calls, 0)::BIGINT AS calls,
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
COMMENT ON VIEW steps IS 'What a run used, request by request in the order of seq, and profile by profile (request_id NULL). evaluations: kernels that reached the compiler and were no duplicates, ancestors and repairs among them, and drafts that a dialogue had judged; this is what a budget of evaluations counts. Counted apart: trials (settings of tunables), duplicates, rejected (the compiler saw nothing of them), checks (drafts that a dialogue had compiled, and at most run on a few small shapes). repairs: of the evaluations those whose principal parent was not correct. calls: answers of language models, each turn of a dialogue one; those that failed are none. tokens: in and out, without what is lost. evaluator_s: of evaluators, drafts and profiles included; the confirmation at the end of a run is charged to nobody.';

CREATE OR REPLACE VIEW curve AS
SELECT
    s.task, s.seq, s.request_id, s.kernel_id, s.status,
    (sum(coalesce(s.evaluations, 0)) OVER so_far)::BIGINT AS evaluations,
    (sum(coalesce(s.trials, 0)) OVER so_far)::BIGINT AS trials,
    (sum(coalesce(s.calls, 0)) OVER so_far)::BIGINT AS calls,
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
