-- When each session ran, within which budget, and what it judged and spent.
-- budget_json: limits of the whole run, so that the sessions before count against them too; the columns ..._so_far are
-- what they are compared with. lost_usd: what calls without a known end cost besides, at most, and open_usd the same of
-- calls that are under way, or that the end of the process cut off. Calls count in the session that sent them.
WITH judged AS (
    SELECT
        /*s.run,*/ s.session, sum(t.evaluations)::BIGINT AS evaluations, sum(t.trials)::BIGINT AS trials,
        sum(t.evaluator_s) AS evaluator_s
    FROM sessions AS s
    JOIN steps AS t
        ON /*t.run = s.run AND*/ t.created_at >= s.began AND t.created_at < coalesce(s.next_began, 'infinity'::TIMESTAMPTZ)
    GROUP BY /*s.run,*/ s.session
)
SELECT
    /*s.run,*/ s.session, s.began, s.took_s, s.ended, s.reason, s.budget_json,
    coalesce(j.evaluations, 0) AS evaluations, coalesce(j.trials, 0) AS trials, coalesce(j.evaluator_s, 0) AS evaluator_s,
    s.calls, s.failed_calls, s.tokens_in + s.tokens_out AS tokens, s.cost_usd, s.lost_usd, s.open_calls, s.open_usd,
    sum(s.took_s) OVER so_far AS took_s_so_far,
    (sum(coalesce(j.evaluations, 0)) OVER so_far)::BIGINT AS evaluations_so_far,
    sum(s.cost_usd + s.lost_usd) OVER so_far AS usd_so_far
FROM sessions AS s
LEFT JOIN judged AS j USING (/*run,*/ session)
WINDOW so_far AS (PARTITION BY /*s.run,*/ true ORDER BY s.session)
ORDER BY /*s.run,*/ s.session
