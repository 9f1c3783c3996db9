-- [run]
from runs limit 1

-- [tasks]
-- In the order in which they were first asked for.
select task from asks group by task order by min(rowid)

-- [told]
select count(*) as n from tells

-- [event]
-- What the first event of a kind says.
select detail_json from events where kind = $kind order by rowid limit 1
