-- Who contributed to the best kernel of each task: its log speedup, shared out over mutators, models and authors.
-- param operator = : Only tasks of this operator.
-- param kernel = : Beginning of the id of another kernel to ask about.
-- A kernel's step is what it has over the mean of its parents; each of n parents passes on the n-th part of what there
-- is before that, so that the steps of all ancestors add up to the log speedup. What is not correct passes on all it
-- gets. A kernel of another task counts for the one that brought it over. log_speedup_se: from the standard errors of the
-- kernels between which its steps lie; share: of what is certain, each one's lower end above 0, and NULL where nothing is.
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
        CASE v.status WHEN 'correct' THEN v.log_speedup END AS log_speedup, coalesce(v.log_speedup_se, 0) AS se
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
        /*o.run,*/ o.task, o.descendant, o.child, o.kernel_id, parent.generation,
        1 / count(*) OVER (PARTITION BY /*o.run,*/ o.task, o.descendant, o.child) AS part
    FROM origins AS o
    JOIN nodes AS parent USING (/*run,*/ task, descendant, kernel_id)
    JOIN nodes AS child ON /*child.run = o.run AND*/ child.task = o.task AND child.descendant = o.descendant
        AND child.kernel_id = o.child AND child.generation > parent.generation
    WHERE parent.log_speedup IS NOT NULL
),
-- The part of a kernel's log speedup that the descendant has from it. The latest generation passes its parts on, once they
-- are whole, and the others wait: else each kernel would come as often as there are lengths of ways to it.
passed AS (
    SELECT /*run,*/ task, kernel_id AS descendant, kernel_id, 0::BIGINT AS generation, 1::DOUBLE AS part, true AS is_whole
    FROM subject
    UNION ALL
    SELECT
        /*run,*/ task, descendant, kernel_id, generation, sum(part),
        generation = max(generation) OVER (PARTITION BY /*run,*/ task, descendant)
    FROM (
        SELECT
            /*p.run,*/ p.task, p.descendant, coalesce(l.kernel_id, p.kernel_id) AS kernel_id,
            coalesce(l.generation, p.generation) AS generation, p.part * coalesce(l.part, 1) AS part
        FROM passed AS p
        LEFT JOIN links AS l
            ON /*l.run = p.run AND*/ l.task = p.task AND l.descendant = p.descendant AND l.child = p.kernel_id AND p.is_whole
        WHERE l.kernel_id IS NOT NULL OR NOT p.is_whole
    )
    GROUP BY /*run,*/ task, descendant, kernel_id, generation
),
parts AS (
    SELECT /*run,*/ task, descendant, kernel_id, part FROM passed WHERE is_whole
),
-- Every contributor's log speedup is a sum over kernels: its own count in full, and the parents that they start from
-- against it, so that what lies between two of its own steps cancels out, with its error.
terms AS (
    SELECT /*n.run,*/ n.task, n.descendant, n.mutator, n.model, n.author, n.kernel_id, p.part, true AS is_own
    FROM nodes AS n
    JOIN parts AS p USING (/*run,*/ task, descendant, kernel_id)
    UNION ALL
    SELECT /*n.run,*/ n.task, n.descendant, n.mutator, n.model, n.author, l.kernel_id, -p.part * l.part, false
    FROM nodes AS n
    JOIN parts AS p USING (/*run,*/ task, descendant, kernel_id)
    JOIN links AS l ON /*l.run = n.run AND*/ l.task = n.task AND l.descendant = n.descendant AND l.child = n.kernel_id
),
sums AS (
    SELECT
        /*run,*/ task, descendant, mutator, model, author, kernel_id, sum(part) AS part,
        count(*) FILTER (is_own) AS own
    FROM terms
    GROUP BY /*run,*/ task, descendant, mutator, model, author, kernel_id
),
shared AS (
    SELECT
        /*s.run,*/ s.task, s.descendant AS kernel_id, s.mutator, s.model, s.author,
        sum(s.own)::BIGINT AS kernels,
        coalesce(sum(s.part * n.log_speedup), 0) AS log_speedup,
        sqrt(sum((s.part * n.se) ** 2)) AS log_speedup_se
    FROM sums AS s
    JOIN nodes AS n USING (/*run,*/ task, descendant, kernel_id)
    GROUP BY /*s.run,*/ s.task, s.descendant, s.mutator, s.model, s.author
)
SELECT
    * EXCLUDE (certain),
    certain / nullif(sum(certain) OVER (PARTITION BY /*run,*/ task, kernel_id), 0) AS share
FROM (SELECT *, greatest(log_speedup - 1.96 * log_speedup_se, 0) AS certain FROM shared)
ORDER BY /*run,*/ task, kernel_id, certain DESC, log_speedup DESC
