-- [offspring]
-- What became of every idea of a run.
select o.task, p.description, o.model, o.status, o.gain, child.log_speedup_se as child_se,
       parent.log_speedup_se as parent_se, child.message
from offspring o
join proposals p using (request_id)
left join verdicts child on child.task = o.task and child.kernel_id = o.kernel_id
left join verdicts parent on parent.task = o.task and parent.kernel_id = o.parent_id
where o.is_new and o.status is not null and coalesce(p.description, '') <> ''
order by o.task, o.number
