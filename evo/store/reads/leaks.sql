-- [told]
-- What would tell a cell of others although its prompts may not show it.
select 'starts from the kernel file ' || json_extract_string(request_json, '$.params.name') as what, request_id
from asks where mutator = 'ancestor' and json_extract_string(request_json, '$.params.name') <> 'naive'
union all
select 'has a kernel that no request asked for', request_id from proposals where kind = 'guest'
union all
select 'was made from a kernel of another task', request_id from proposals where mutator = 'port'
union all
select 'starts from more than its naive kernel', null from runs
where json_extract_string(config_json, '$.ancestors') <> 'naive'
union all
select 'is told lessons of other runs', null from runs
where json_array_length(config_json, '$.lessons') > 0 or json_array_length(config_json, '$.learnt') > 0

-- [prompts]
-- Every prompt that was sent, also those without an answer yet, in the order in which they were sent.
select c.request_id, c.messages_json, coalesce(s.sent, c.created_at) as moment
from llm_calls c
left join (select cache_key, min(created_at) as sent from llm_sent group by cache_key) s using (cache_key)
union all
select request_id, messages_json, created_at from llm_sent where messages_json is not null
order by moment

-- [learnt]
-- What a cell learnt by itself, in the order in which it did: answers to its requests, and kernels and descriptions that
-- these led to.
select created_at as moment, answer as text, null as values_json from llm_calls where answer is not null
union all
select created_at, tool_calls_json, null from llm_calls where tool_calls_json is not null
union all
select p.created_at, k.source, k.values_json from proposals p join kernels k using (kernel_id)
union all
select created_at, description, null from proposals where description is not null
order by moment

-- [made]
select distinct source as text from kernels

-- [ideas]
select distinct description as text from proposals where model is not null and length(description) >= $least
