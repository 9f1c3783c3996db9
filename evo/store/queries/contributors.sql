-- Who contributed to the best kernel of each task: its log speedup, shared out over mutators, models and authors.
-- param operator = : Only tasks of this operator.
-- param kernel = : Beginning of the id of another kernel to ask about.
-- A kernel's step is what it has over the mean of its parents; each of n parents passes on the n-th part of what there
-- is before that, so that the steps of all ancestors add up to the log speedup. What is not correct passes on all it
-- gets. A kernel of another task counts for the one that brought it over.
WITH RECURSIVE subject AS (
    SELECT /*run,*/ task, kernel_id, log_speedup
    FROM best
    WHERE $kernel = '' AND $operator IN ('', split_part(task, '/', 1))
    UNION ALL
    SELECT /*run,*/ task, kernel_id, log_speedup
    FROM verdicts
    WHERE $kernel <> '' AND starts_with(kernel_id, $kernel) AND status = 'correct'
        AND $operator IN ('', split_part(task, '/', 1))
),
born AS MATERIALIZED (
    SELECT
        /*i.run,*/ i.task, i.kernel_id, i.generation, i.mutator, i.model, i.author,
        CASE WHEN i.source_task IS NULL THEN i.parents ELSE i.parents[2:] END AS parents,
        CASE v.status WHEN 'correct' THEN v.log_speedup END AS log_speedup
    FROM individuals AS i
    LEFT JOIN verdicts AS v USING (/*run,*/ task, kernel_id)
    WHERE i.task IN (SELECT task FROM subject)
),
ancestry AS (
    SELECT /*run,*/ task, kernel_id AS descendant, kernel_id FROM subject
    UNION
    SELECT /*a.run,*/ a.task, a.descendant, unnest(b.parents) FROM ancestry AS a JOIN born AS b USING (/*run,*/ task, kernel_id)
),
nodes AS MATERIALIZED (
    SELECT a.descendant, b.* FROM ancestry AS a JOIN born AS b USING (/*run,*/ task, kernel_id)
),
-- From a correct kernel to the nearest correct ones that it comes from.
origins AS (
    SELECT /*run,*/ task, descendant, kernel_id AS child, unnest(parents) AS kernel_id FROM nodes WHERE log_speedup IS NOT NULL
    UNION
    SELECT /*o.run,*/ o.task, o.descendant, o.child, unnest(n.parents)
    FROM origins AS o
    JOIN nodes AS n USING (/*run,*/ task, descendant, kernel_id)
    WHERE n.log_speedup IS NULL
),
links AS MATERIALIZED (
    SELECT
        /*o.run,*/ o.task, o.descendant, o.child, o.kernel_id, parent.log_speedup,
        1 / count(*) OVER (PARTITION BY /*o.run,*/ o.task, o.descendant, o.child) AS part
    FROM origins AS o
    JOIN nodes AS parent USING (/*run,*/ task, descendant, kernel_id)
    JOIN nodes AS child ON /*child.run = o.run AND*/ child.task = o.task AND child.descendant = o.descendant
        AND child.kernel_id = o.child AND child.generation > parent.generation
    WHERE parent.log_speedup IS NOT NULL
),
-- By the number of links between: the part of a kernel's log speedup that the descendant has from it.
passed AS (
    SELECT /*run,*/ task, kernel_id AS descendant, kernel_id, 1::DOUBLE AS part FROM subject
    UNION ALL
    SELECT /*p.run,*/ p.task, p.descendant, l.kernel_id, sum(p.part * l.part)
    FROM passed AS p
    JOIN links AS l ON /*l.run = p.run AND*/ l.task = p.task AND l.descendant = p.descendant AND l.child = p.kernel_id
    GROUP BY /*p.run,*/ p.task, p.descendant, l.kernel_id
),
parts AS (
    SELECT /*run,*/ task, descendant, kernel_id, sum(part) AS part FROM passed GROUP BY /*run,*/ task, descendant, kernel_id
),
before AS (
    SELECT /*run,*/ task, descendant, child AS kernel_id, avg(log_speedup) AS log_speedup
    FROM links
    GROUP BY /*run,*/ task, descendant, child
)
SELECT
    /*n.run,*/ n.task, n.descendant AS kernel_id, n.mutator, n.model, n.author,
    count(*) AS kernels,
    sum(p.part * (n.log_speedup - coalesce(before.log_speedup, 0))) AS log_speedup,
    sum(p.part * (n.log_speedup - coalesce(before.log_speedup, 0))) / nullif(any_value(s.log_speedup), 0) AS share
FROM nodes AS n
JOIN parts AS p USING (/*run,*/ task, descendant, kernel_id)
JOIN subject AS s ON /*s.run = n.run AND*/ s.task = n.task AND s.kernel_id = n.descendant
LEFT JOIN before USING (/*run,*/ task, descendant, kernel_id)
GROUP BY /*n.run,*/ n.task, n.descendant, n.mutator, n.model, n.author
ORDER BY /*n.run,*/ n.task, n.descendant, log_speedup DESC
