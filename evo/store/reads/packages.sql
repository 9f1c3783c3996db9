-- [authors]
-- People and agents outside who gave answers or kernels.
select distinct author from (select author from proposals union all select author from llm_calls)
where author is not null
