-- What providers say of their usage beside what is counted, and of what is lost the likely part beside the most.

ALTER TABLE llm_calls ADD COLUMN usage_json VARCHAR;
ALTER TABLE llm_calls ADD COLUMN usage_doubt VARCHAR;
COMMENT ON TABLE llm_calls IS 'Every call of a language model, retries included and failed ones too; cache_key and sample find the answer again. status: answered, cut, refused, failed, or unavailable (the model could not be asked at all and was put aside). usage_json: what the provider said of tokens; usage_doubt: why tokens_in and tokens_out are not that (empty: they are). lost_tokens and lost_usd: upper bounds of what attempts without a known end were billed besides; the view cost says what is likely.';

CREATE OR REPLACE VIEW cost AS
WITH sent AS (
    SELECT cache_key, any_value(most_tokens) AS most_tokens, any_value(most_usd) AS most_usd
    FROM llm_sent
    GROUP BY cache_key
),
-- The part of its upper bound that a call of the model really takes.
usual AS (
    SELECT
        c.model,
        sum(c.tokens_in + c.tokens_out) / nullif(sum(sent.most_tokens), 0) AS tokens,
        sum(c.cost_usd) / nullif(sum(sent.most_usd), 0) AS usd
    FROM llm_calls AS c
    JOIN sent USING (cache_key)
    WHERE c.status NOT IN ('failed', 'unavailable') AND coalesce(c.usage_doubt, '') = ''
    GROUP BY c.model
),
spent AS (
    SELECT
        model,
        count(*) AS calls,
        count(*) FILTER (status IN ('failed', 'unavailable')) AS failed_calls,
        count(*) FILTER (usage_doubt <> '') AS doubted_calls,
        coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in,
        coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
        coalesce(sum(cost_usd), 0) AS cost_usd,
        coalesce(sum(attempts), 0)::BIGINT AS attempts,
        coalesce(sum(lost_tokens), 0)::BIGINT AS lost_tokens,
        coalesce(sum(lost_usd), 0) AS lost_usd,
        coalesce(sum(latency_s), 0) AS seconds
    FROM llm_calls
    GROUP BY model
)
SELECT
    s.model, s.calls, s.failed_calls, s.doubted_calls, s.tokens_in, s.tokens_out, s.cost_usd, s.attempts,
    s.lost_tokens, s.lost_usd,
    round(s.lost_tokens * coalesce(usual.tokens, 1))::BIGINT AS likely_lost_tokens,
    s.lost_usd * coalesce(usual.usd, 1) AS likely_lost_usd,
    s.seconds
FROM spent AS s
LEFT JOIN usual USING (model);
COMMENT ON VIEW cost IS 'Per model: calls, tokens, dollars, attempts, and seconds spent waiting. lost: what attempts without a known end may have cost besides, at most; it counts against the budget. likely_lost: the same, if they took the part of that bound that the model''s answered calls took. doubted_calls: those whose provider said a usage that cannot be, see llm_calls.usage_doubt.';
