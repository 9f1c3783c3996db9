-- [questions]
-- Those that are open: tasks in turn, the oldest first.
select
    cache_key, request_id, role, model, messages_json,
    cache_key in (select detail_json->>'question' from events where kind = 'question_taken') as is_taken
from questions order by
row_number() over (partition by split_part(request_id, '#', 1) order by created_at), created_at, cache_key

-- [answered]
select cache_key, status = 'withdrawn' as is_withdrawn from llm_calls

-- [asking]
-- The request that a question belongs to, and the part that the question has in it.
select s.request_id, s.role, a.request_json
from llm_sent s join asks a using (request_id) where starts_with(s.cache_key, $prefix) limit 1

-- [heard]
-- Whether a question was answered.
select 1 from llm_calls where starts_with(cache_key, $prefix)

-- [fate]
-- What came of a request.
select kernel_id, failure, text from proposals where request_id = $request

-- [guests]
-- Requests for guests that wait for their verdicts, the oldest first.
select request_json from asks where mutator = 'guest' and request_id not in (select request_id from tells) order by seq

-- [ahead]
-- How many requests of all tasks are under way, but for those whose question waits for an answer.
select count(*) as n
from asks
where request_id not in (select request_id from tells) and request_id not in (select request_id from questions)

-- [lost]
-- Why the last request for a kernel whose id begins so led to no verdict.
select p.failure
from tells t join proposals p using (request_id)
where t.task = $task and starts_with(t.kernel_id, $prefix) and t.status = 'unavailable'
order by t.seq desc limit 1
