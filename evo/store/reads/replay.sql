-- [undone]
-- Why no machine could judge a request's kernel.
select p.failure from proposals p join tells t using (request_id)
where request_id = $request and t.status = 'unavailable' and t.kernel_id is not null

-- [proposal]
from proposals left join kernels using (kernel_id) where request_id = $request

-- [verdicts]
-- The evaluations of requests, least severe first.
from evaluations where request_id is not null order by list_position(['screen', 'full', 'confirmed'], level), rowid

-- [timings]
from timings order by rowid

-- [library_timings]
from library_timings order by rowid

-- [errors]
from errors order by rowid

-- [last_confirmations]
-- They belong to no tell.
select evaluation_id from evaluations where request_id is null order by rowid

-- [no_library]
from events where kind = 'library_not_timed' order by rowid

-- [calls]
from llm_calls order by rowid

-- [sent]
from llm_sent order by rowid

-- [call]
-- The stored answer to a question, or the last failure where there never was one.
from llm_calls where cache_key = $key
order by not heard, rowid desc limit 1

-- [messages]
select messages_json from llm_calls where request_id = $request order by rowid

-- [request]
select request_id, digest from asks order by seq, position

-- [individual]
select request_id, kernel_id, status, log_speedup, digest from tells order by seq

-- [proposals]
select request_id, kernel_id, model, description, failure, text, metrics_json from proposals order by request_id

-- [verdict]
select task, kernel_id, level, status, log_speedup, log_speedup_se, anchor_id, code_digest, cell, message
from evaluations order by all

-- [lineage]
select task, kernel_id, generation, parents, status, level from lineage order by task, number

-- [answer]
select request_id, role, model, cache_key, answer, tool_calls_json, cost_usd from llm_calls order by all

-- [use]
select request_id, number, tool, arguments_json, kernel_id, failed, text, evaluations, seconds
from tool_calls order by all

-- [migration]
-- Kernels that one island offered to another one.
select task, number, kernel_id, source_island, island, kind, outcome from migrations order by task, number, rowid
