-- Which island gave kernels to which, and what came of them there.
-- param operator = : Only tasks of this operator.
-- kind: migration (every island offers its best now and then) or restart (a stuck island begins again with the kernel).
-- new, improved and rejected: how often the kernel took an empty cell, took the place of a slower one, or was refused.
-- children: made of it on the island that it came to; better: those that stand higher than it. best_child stands highest.
SELECT
    /*run,*/ task, kind, source_island, island,
    count(*) AS migrations,
    count(DISTINCT kernel_id) AS kernels,
    count(*) FILTER (outcome = 'new') AS new,
    count(*) FILTER (outcome = 'improved') AS improved,
    count(*) FILTER (outcome = 'rejected') AS rejected,
    sum(children)::BIGINT AS children,
    sum(improved)::BIGINT AS better,
    arg_max(best_child, best_child_stands_at) AS best_child,
    exp(max(best_child_stands_at)) AS best_child_speedup,
    min(elapsed_s) AS first_s,
    max(elapsed_s) AS latest_s
FROM migrants
WHERE $operator IN ('', split_part(task, '/', 1))
GROUP BY /*run,*/ task, kind, source_island, island
ORDER BY /*run,*/ task, kind, source_island, island
