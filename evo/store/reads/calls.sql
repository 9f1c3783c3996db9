-- The questions of a driver about calls of language models.

-- [answered]
select distinct cache_key from llm_calls where heard

-- [answer]
-- The first answer to a question.
select * from llm_calls where cache_key = $key and heard order by rowid limit 1

-- [asked_outside]
select distinct cache_key from llm_sent where messages_json is not null

-- [question]
-- A question to a model outside, as it was first asked.
select * from llm_sent where cache_key = $key and messages_json is not null order by rowid limit 1

-- [taken]
-- Questions that are worked on.
select detail_json->>'question' as cache_key from events where kind = 'question_taken'

-- [withdrawn]
select 1 from llm_calls where cache_key = $key and status = 'withdrawn' limit 1

-- [known]
select call_id from llm_calls

-- [interrupted]
-- Questions whose calls are fewer than they were sent: what the open ones may have cost at most.
select
    s.cache_key, any_value(s.request_id) as request_id, any_value(s.role) as role, any_value(s.model) as model,
    any_value(s.sample) as sample, max(s.most_tokens) as tokens, max(s.most_usd) as usd,
    count(*) - (select count(*) from llm_calls c where c.cache_key = s.cache_key) as open
from llm_sent s where s.messages_json is null group by s.cache_key having open > 0 order by s.cache_key

-- [spent]
select
    count(*) filter (heard) as calls,
    coalesce(sum(tokens_in), 0)::bigint as tokens_in, coalesce(sum(tokens_out), 0)::bigint as tokens_out,
    coalesce(sum(attempts), 0)::bigint as attempts, coalesce(sum(lost_tokens), 0)::bigint as lost_tokens,
    coalesce(sum(cost_usd), 0) as cost_usd, coalesce(sum(lost_usd), 0) as lost_usd
from llm_calls

-- [tallies]
-- Each model's tokens and what its calls might have cost at most, like the view `cost`.
with sent as (
    select cache_key, any_value(most_in) as most_in, any_value(most_tokens) as most_tokens
    from llm_sent group by cache_key
),
calls as (
    select
        c.*, sent.most_in, sent.most_tokens,
        c.heard and coalesce(c.usage_doubt, '') = '' as told
    from llm_calls c left join sent on sent.cache_key = c.cache_key
)
select
    model, count(*) filter (told) as known, coalesce(sum(most_in) filter (told), 0)::bigint as most_in,
    coalesce(sum(most_tokens) filter (told), 0)::bigint as most_tokens,
    coalesce(sum(tokens_in) filter (told), 0)::bigint as tokens_in,
    coalesce(sum(tokens_out) filter (told), 0)::bigint as tokens_out,
    coalesce(sum(lost_tokens), 0)::bigint as lost_tokens
from calls group by model
