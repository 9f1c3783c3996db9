-- What language models were asked and answered for the best kernel of each task, and for all that it comes from.
-- param operator = : Only tasks of this operator.
-- param kernel = : Beginning of the id of another kernel to ask about.
-- descendant: the kernel that is asked about; kernel_id: that kernel or an ancestor of it, for whose request the model was
-- asked; call: place among the calls of the request, the last of which led to the kernel. messages_json: the whole
-- conversation as it was sent, so that the last call of a dialogue holds the earlier ones.
WITH RECURSIVE subject AS (
    SELECT /*run,*/ task, kernel_id
    FROM best
    WHERE $kernel = '' AND $operator IN ('', split_part(task, '/', 1))
    UNION ALL
    SELECT /*run,*/ task, kernel_id
    FROM individuals
    WHERE $kernel <> '' AND starts_with(kernel_id, $kernel) AND $operator IN ('', split_part(task, '/', 1))
),
ancestry AS (
    SELECT /*run,*/ task AS of_task, kernel_id AS descendant, task, kernel_id FROM subject
    UNION
    SELECT
        /*run,*/ of_task, descendant, CASE WHEN place = 1 THEN coalesce(source_task, task) ELSE task END, parent_id
    FROM (
        SELECT
            /*a.run,*/ a.of_task, a.descendant, i.task, i.source_task, unnest(i.parents) AS parent_id,
            generate_subscripts(i.parents, 1) AS place
        FROM ancestry AS a
        JOIN individuals AS i USING (/*run,*/ task, kernel_id)
    )
),
made AS (
    SELECT /*a.run,*/ a.of_task, a.descendant, l.*
    FROM ancestry AS a
    JOIN lineage AS l USING (/*run,*/ task, kernel_id)
)
SELECT
    /*m.run,*/ m.of_task AS task, m.descendant, m.generation, m.kernel_id, m.mutator, m.status AS verdict, m.speedup,
    m.request_id, row_number() OVER (PARTITION BY /*m.run,*/ m.of_task, m.descendant, m.request_id ORDER BY c.created_at) AS call,
    c.role, c.model, c.status, c.error, c.tokens_in, c.tokens_out, c.cost_usd, c.latency_s, c.messages_json, c.answer,
    c.tool_calls_json
FROM made AS m
JOIN llm_calls AS c ON /*c.run = m.run AND*/ c.request_id = m.request_id
ORDER BY /*m.run,*/ m.of_task, m.descendant, m.generation DESC, m.request_id, call
