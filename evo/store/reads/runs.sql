-- [run]
from runs limit 1

-- [tasks]
-- Those that were begun come first, in that order.
select task from tasks order by place

-- [told]
select count(*) as n from tells

-- [event]
-- What the first event of a kind says.
select detail_json from events where kind = $kind order by rowid limit 1
