-- [standings]
select t.task, s.kernel_id, s.best_speedup, s.speedup, s.speedup_low, s.speedup_high, s.level, s.flagged
from tasks as t left join standings as s using (task) order by t.place
