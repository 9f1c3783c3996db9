-- [questions]
-- Those that are open: tasks in turn, the oldest first.
select cache_key, request_id, role, model, messages_json from questions order by
row_number() over (partition by split_part(request_id, '#', 1) order by created_at), created_at, cache_key

-- [answered]
select cache_key from llm_calls

-- [asking]
-- The request that a question belongs to.
select request_id from llm_sent where starts_with(cache_key, $prefix) limit 1

-- [heard]
-- Whether a question was answered.
select 1 from llm_calls where starts_with(cache_key, $prefix)

-- [fate]
-- What came of a request.
select kernel_id, failure, text from proposals where request_id = $request
