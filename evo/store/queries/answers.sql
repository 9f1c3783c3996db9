-- What came of each language model's answers, and why: also of those that were answered and could not be used.
-- param operator = : Only tasks of this operator.
-- outcome: of the last answer of a request the verdict on its child, no_child, or said for words; again: it could not be
-- used, or its draft had a fault, and the model was asked again, with the reason; tools: it called tools; cut, refused,
-- failed and unavailable as in llm_calls, the last also where no machine could judge the child; open: its request was
-- never told. N stands for numbers. request_id: the latest, by which llm_calls has the answer.
WITH heard AS (  -- of a conversation its last message alone
    SELECT
        /*run,*/ request_id, model, status, error, tool_calls_json IS NOT NULL AS is_tools, cost_usd, latency_s, created_at,
        coalesce(left(json_extract_string(messages_json, '$[#-1].content'), 20000), '') AS last
    FROM llm_calls
),
calls AS (
    SELECT *, lead(last) OVER (PARTITION BY /*run,*/ request_id ORDER BY created_at) AS next FROM heard
),
ended AS (
    SELECT
        c.*, p.task,
        CASE
            WHEN c.status <> 'answered' THEN c.status
            WHEN c.is_tools THEN 'tools'
            WHEN c.next IS NOT NULL THEN 'again'
            WHEN p.request_id IS NULL THEN 'open'
            WHEN p.kernel_id IS NOT NULL AND v.status IS NOT NULL THEN v.status
            WHEN p.kernel_id IS NOT NULL THEN if(p.failure <> '', 'unavailable', 'open')
            WHEN p.failure <> '' THEN 'no_child'
            ELSE 'said'
        END AS outcome,
        CASE outcome
            WHEN 'again' THEN c.next
            WHEN 'no_child' THEN p.failure
            WHEN 'said' THEN ''
            ELSE if(c.status = 'answered', coalesce(v.message, p.failure), c.error)
        END AS told
    FROM calls AS c
    LEFT JOIN proposals AS p USING (/*run,*/ request_id)
    LEFT JOIN verdicts AS v USING (/*run,*/ task, kernel_id)
),
named AS (  -- what is in a fence of a complaint is the reason; a compiler's message begins with where it is
    SELECT
        *, coalesce(nullif(regexp_extract(told, '`{3,}untrusted\n(.*?)\n`{3,}', 1, 's'), ''), told, '') AS reason_text,
        coalesce(
            nullif(regexp_extract(reason_text, '[^\n]*\berror:[^\n]*'), ''), split_part(trim(reason_text), chr(10), 1)
        ) AS line
    FROM ended
)
SELECT
    /*run,*/ split_part(coalesce(task, request_id), '/', 1) AS operator, model, outcome,
    left(regexp_replace(trim(line), '[0-9]+', 'N', 'g'), 200) AS reason,
    count(*) AS answers,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    coalesce(sum(latency_s), 0) AS seconds,
    arg_max(request_id, created_at) AS request_id
FROM named
WHERE $operator IN ('', split_part(coalesce(task, request_id), '/', 1))
GROUP BY /*run,*/ operator, model, outcome, reason
ORDER BY /*run,*/ operator, model, answers DESC, outcome, reason
