-- [questions]
-- Those that are open: tasks in turn, the oldest first.
select
    cache_key, request_id, role, model, messages_json,
    cache_key in (select detail_json->>'question' from events where kind = 'question_taken') as is_taken
from questions order by
row_number() over (partition by split_part(request_id, '#', 1) order by created_at), created_at, cache_key

-- [answered]
select cache_key, status = 'unavailable' as is_withdrawn from llm_calls

-- [asking]
-- The request that a question belongs to.
select request_id from llm_sent where starts_with(cache_key, $prefix) limit 1

-- [heard]
-- Whether a question was answered.
select 1 from llm_calls where starts_with(cache_key, $prefix)

-- [fate]
-- What came of a request.
select kernel_id, failure, text from proposals where request_id = $request

-- [lost]
-- Why a request for a kernel whose id begins so led to no verdict, the last one told after a moment.
select p.failure
from tells t join proposals p using (request_id)
where t.task = $task and starts_with(t.kernel_id, $prefix) and t.status = 'unavailable'
    and epoch(t.created_at) >= $since
order by t.seq desc limit 1
