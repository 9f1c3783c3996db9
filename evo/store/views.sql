CREATE VIEW individuals AS
SELECT
    task, kernel_id, parents[1] AS parent_id, parents, generation, request_id, number, mutator, model, description,
    created_at, author, source_task, island
FROM proposals
WHERE is_new;
COMMENT ON VIEW individuals IS 'Per task and kernel how it first came to be: the first request that proposed it. parent_id: the principal parent, a kernel of source_task where that is not NULL. author: who gave it, if it came from outside. island: where a parent has another one, it migrated or was drawn from abroad.';

CREATE VIEW verdicts AS
WITH final AS MATERIALIZED (
    SELECT * EXCLUDE (request_id)
    FROM evaluations
    WHERE request_id IS NULL
    QUALIFY row_number() OVER (PARTITION BY task, kernel_id ORDER BY created_at DESC, rowid DESC) = 1
),
-- Of each kernel by itself. What no request asked for is in `final`, so that it need not be told from the rest here: to
-- read request_id takes half as long as all else.
own AS NOT MATERIALIZED (
    SELECT * EXCLUDE (request_id)
    FROM evaluations ANTI JOIN final USING (task, kernel_id)
    WHERE is_verdict
    UNION ALL
    FROM final
),
-- A duplicate is judged by what is known of its original now, not by what was known when it was found. By coalesce its
-- original is known never to be NULL: who asks for no duplicates has nothing of theirs read.
judged AS NOT MATERIALIZED (
    SELECT
        task, kernel_id, coalesce(inherited, status) AS status, level, log_speedup, log_speedup_se, cell,
        NULL::VARCHAR AS original, message, evaluation_id, created_at, facts_json, worker
    FROM own
    WHERE duplicate_of IS NULL OR duplicate_of = kernel_id
    UNION ALL
    SELECT
        copy.task, copy.kernel_id, coalesce(found.inherited, found.status, copy.inherited),
        coalesce(found.level, copy.level),
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup ELSE found.log_speedup END,
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup_se ELSE found.log_speedup_se END,
        coalesce(found.cell, copy.cell), coalesce(copy.duplicate_of, ''), coalesce(found.message, copy.message),
        coalesce(found.evaluation_id, copy.evaluation_id), coalesce(found.created_at, copy.created_at),
        coalesce(found.facts_json, copy.facts_json), coalesce(found.worker, copy.worker)
    FROM (FROM own WHERE duplicate_of <> kernel_id) AS copy
    LEFT JOIN own AS found ON found.task = copy.task AND found.kernel_id = copy.duplicate_of
),
-- All of the last fit of each task; NULL where a verdict is newer.
fitted AS NOT MATERIALIZED (
    SELECT
        task, unnest(kernel_ids) AS kernel_id, unnest(log_speedups) AS fitted, unnest(log_speedup_ses) AS fitted_se,
        created_at AS fitted_at
    FROM fits
    QUALIFY row_number() OVER (PARTITION BY task ORDER BY created_at DESC, rowid DESC) = 1
),
told AS NOT MATERIALIZED (
    SELECT
        judged.* EXCLUDE (log_speedup, log_speedup_se),
        coalesce(fitted.fitted, log_speedup) AS log_speedup, coalesce(fitted.fitted_se, log_speedup_se) AS log_speedup_se
    FROM judged
    LEFT JOIN fitted
        ON fitted.task = judged.task AND fitted.kernel_id = coalesce(original, judged.kernel_id)
        AND level <> 'confirmed' AND status = 'correct' AND created_at <= fitted_at
)
SELECT
    task, kernel_id, status, level, log_speedup, log_speedup_se,
    exp(log_speedup) AS speedup,
    exp(log_speedup - 1.96 * log_speedup_se) AS speedup_low,
    exp(log_speedup + 1.96 * log_speedup_se) AS speedup_high,
    -- The rule of leading: whatever is said to lead, to improve or to be the best goes by this.
    CASE WHEN status = 'correct' THEN
        CASE level WHEN 'confirmed' THEN log_speedup ELSE log_speedup - 1.96 * coalesce(log_speedup_se, 0) END
    END AS stands_at,
    nullif(cell, '') AS cell, original AS duplicate_of, message, evaluation_id, created_at AS judged_at,
    CASE WHEN contains(facts_json, '"flagged"') THEN
        nullif(array_to_string(TRY_CAST(facts_json->'flagged' AS VARCHAR[]), ', '), '')
    END AS flagged,
    worker
FROM told;
COMMENT ON VIEW verdicts IS 'Per task and kernel the verdict that counts: the most severe level (confirmed, full, screen), of those the latest; a duplicate has its original''s. log_speedup: of one that is not confirmed as the last fit has it (see the table fits), if it was judged before. stands_at: the log speedup by which the kernel leads, once confirmed its estimate, before that the lower end of its interval. flagged: what is legal and suspicious about the kernel.';

CREATE VIEW facts AS
SELECT
    v.task, v.kernel_id, v.evaluation_id,
    (e.facts_json->>'code_bytes')::BIGINT AS code_bytes,
    (e.facts_json->>'threads')::BOOLEAN AS threads,
    (e.facts_json->>'vector_bits')::INTEGER AS vector_bits,
    (e.facts_json->>'packed_share')::DOUBLE AS packed_share,
    (e.facts_json->>'registers')::INTEGER AS registers,
    (e.facts_json->>'spill_bytes')::BIGINT AS spill_bytes,
    (e.facts_json->>'stack_bytes')::BIGINT AS stack_bytes,
    (e.facts_json->>'static_shared_bytes')::BIGINT AS static_shared_bytes,
    (e.facts_json->>'barriers')::INTEGER AS barriers,
    (e.facts_json->>'launches')::INTEGER AS launches,
    (e.facts_json->>'access_bytes')::INTEGER AS access_bytes,
    (e.facts_json->>'vectors')::BOOLEAN AS vectors,
    (e.facts_json->>'async_copies')::BOOLEAN AS async_copies,
    (e.facts_json->>'bulk_copies')::BOOLEAN AS bulk_copies,
    (e.facts_json->>'tensor_cores')::BOOLEAN AS tensor_cores,
    (e.facts_json->>'atomics')::BOOLEAN AS atomics,
    (e.facts_json->>'shared_memory')::BOOLEAN AS shared_memory,
    e.facts_json->>'cooperation' AS cooperation,
    e.facts_json->>'lower_precision' AS lower_precision,
    e.facts_json->>'uncommon' AS uncommon,
    e.facts_json->>'races' AS races,
    e.facts_json
FROM verdicts AS v
JOIN evaluations AS e USING (evaluation_id)
WHERE e.facts_json IS NOT NULL;
COMMENT ON VIEW facts IS 'Per task and kernel what the compiler and the object file tell of it; NULL: not known of this target. facts_json has the rest: undefined_symbols and flagged, and on cuda NAME_instructions, how many instructions of a kind there are.';

CREATE VIEW lineage AS
SELECT
    i.task, i.kernel_id, i.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at, i.author, i.source_task,
    v.flagged, v.stands_at, i.island, v.worker
FROM individuals AS i
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first, a kernel of source_task where that is not NULL), how it was made, its verdict (status NULL: none yet), and its generation: 0 for a first ancestor, else one more than the highest of its parents. author: who gave it, if it came from outside.';

CREATE MACRO ancestors(of_task, of_kernel) AS TABLE
WITH RECURSIVE found (task, kernel_id) AS (
    SELECT of_task, of_kernel
    UNION
    SELECT CASE WHEN place = 1 THEN coalesce(source_task, task) ELSE task END, parent_id
    FROM (
        SELECT i.task, i.source_task, unnest(i.parents) AS parent_id, generate_subscripts(i.parents, 1) AS place
        FROM found JOIN individuals AS i USING (task, kernel_id)
    )
)
SELECT l.* FROM lineage AS l JOIN found USING (task, kernel_id);

CREATE VIEW migrants AS
WITH made AS (
    SELECT task, island, number, kernel_id, unnest(parents) AS parent_id
    FROM individuals
    WHERE source_task IS NULL AND island IS NOT NULL
),
children AS (
    SELECT m.rowid AS place, made.kernel_id, v.stands_at
    FROM migrations AS m
    JOIN made ON made.task = m.task AND made.parent_id = m.kernel_id AND made.island = m.island AND made.number >= m.number
    LEFT JOIN verdicts AS v ON v.task = made.task AND v.kernel_id = made.kernel_id
)
SELECT
    m.task, m.number, m.created_at, epoch(m.created_at) - epoch((SELECT min(created_at) FROM runs)) AS elapsed_s,
    m.kernel_id, m.source_island, m.island, m.kind, m.outcome, any_value(own.stands_at) AS stands_at,
    count(o.kernel_id) AS children,
    count(*) FILTER (o.stands_at > own.stands_at) AS improved,
    arg_max(o.kernel_id, o.stands_at) AS best_child, max(o.stands_at) AS best_child_stands_at
FROM (SELECT *, rowid AS place FROM migrations) AS m
LEFT JOIN children AS o USING (place)
LEFT JOIN verdicts AS own ON own.task = m.task AND own.kernel_id = m.kernel_id
GROUP BY m.place, m.task, m.number, m.created_at, m.kernel_id, m.source_island, m.island, m.kind, m.outcome
ORDER BY m.place;
COMMENT ON VIEW migrants IS 'Every migration (who, from where to where, when) with what came of it: children that were made of the kernel on the island that it came to, from then on.';

CREATE VIEW elites AS
WITH fastest AS NOT MATERIALIZED (
    SELECT task, cell, max(stands_at) AS stands_at
    FROM verdicts
    WHERE status = 'correct' AND cell IS NOT NULL
    GROUP BY task, cell
)
SELECT
    v.task, v.cell, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at,
    v.stands_at, v.flagged
FROM verdicts AS v
JOIN fastest USING (task, cell, stands_at)
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct'
QUALIFY row_number() OVER (
    PARTITION BY v.task, v.cell ORDER BY v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW elites IS 'Per task and cell of the behaviour space the correct kernel that stands highest, and how it was made.';

CREATE VIEW best AS
WITH own AS NOT MATERIALIZED (
    SELECT * FROM verdicts WHERE status = 'correct' AND duplicate_of IS NULL
),
-- A duplicate stands where its original does, and behind it. Only those whose original has no verdict, as a draft that
-- was not handed in, may lead: to know these first takes half the time of judging all duplicates.
orphans AS MATERIALIZED (
    SELECT copy.task, copy.kernel_id
    FROM evaluations AS copy
    ANTI JOIN (FROM evaluations WHERE is_verdict) AS e ON e.task = copy.task AND e.kernel_id = copy.duplicate_of
    WHERE copy.is_verdict AND copy.duplicate_of <> copy.kernel_id AND copy.inherited = 'correct'
),
standing AS NOT MATERIALIZED (
    SELECT own.* FROM own JOIN (SELECT task, max(stands_at) AS stands_at FROM own GROUP BY task) USING (task, stands_at)
    UNION ALL
    SELECT * FROM verdicts SEMI JOIN orphans USING (task, kernel_id) WHERE status = 'correct' AND duplicate_of IS NOT NULL
)
SELECT
    v.task, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se, v.cell,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at, v.stands_at, v.flagged
FROM standing AS v
LEFT JOIN individuals AS i USING (task, kernel_id)
QUALIFY row_number() OVER (
    PARTITION BY v.task ORDER BY v.stands_at DESC, v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW best IS 'Per task the correct kernel that stands highest (each by the verdict that counts), its speedup with a 95 % interval, and how it was made. stands_at: the log speedup by which it leads, of one that is not confirmed the lower end of its interval.';

CREATE VIEW standings AS
WITH timed AS (
    SELECT evaluation_id, exp(avg(ln(latency_us))) AS best_us FROM timings GROUP BY evaluation_id
),
beside AS (
    SELECT
        evaluation_id, avg(log_ratio) AS log_ratio, sqrt(sum(log_ratio_se ** 2)) / count(*) AS se,
        list({'workload': workload, 'library': library, 'kind': kind} ORDER BY rowid) AS calls, any_value(untried) AS untried
    FROM library_timings
    GROUP BY evaluation_id
)
SELECT
    b.task, b.kernel_id, b.level, b.flagged, best_us * b.speedup AS baseline_us, best_us, exp(b.stands_at) AS best_speedup,
    b.speedup, b.speedup_low, b.speedup_high, best_us * exp(l.log_ratio) AS library_us, exp(l.log_ratio) AS against_library,
    exp(l.log_ratio - 1.96 * l.se) AS against_library_low, exp(l.log_ratio + 1.96 * l.se) AS against_library_high,
    l.calls, l.untried, b.mutator, b.model, b.evaluation_id
FROM best AS b
LEFT JOIN timed USING (evaluation_id)
LEFT JOIN beside AS l USING (evaluation_id);
COMMENT ON VIEW standings IS 'Per task its best kernel with figures of one measurement, geometric means over workloads: baseline_us / best_us is the speedup, best_speedup exp(stands_at), and library_us / best_us is against_library, NULL where there is no library or the best is not confirmed.';

CREATE VIEW progress AS
WITH started AS (
    SELECT coalesce((SELECT min(created_at) FROM runs), (SELECT min(created_at) FROM evaluations)) AS created_at
),
steps AS (
    SELECT
        e.task, e.kernel_id, e.level, e.created_at, e.rowid AS place, v.status, v.log_speedup, v.log_speedup_se,
        CASE WHEN coalesce(e.inherited, e.status) = 'correct' THEN v.stands_at END AS stands_at,
        {'kernel_id': v.kernel_id, 'log_speedup': v.log_speedup, 'se': v.log_speedup_se} AS verdict
    FROM evaluations AS e
    JOIN verdicts AS v USING (task, kernel_id)
),
running AS (
    SELECT
        *,
        row_number() OVER so_far AS evaluation,
        max(stands_at) OVER so_far AS best_log_speedup,
        arg_max(verdict, stands_at) OVER so_far AS leader,
        max(stands_at) OVER (so_far ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous
    FROM steps
    WINDOW so_far AS (PARTITION BY task ORDER BY created_at, place)
)
SELECT
    running.task, running.evaluation, epoch(running.created_at) - epoch(started.created_at) AS elapsed_s,
    running.kernel_id, running.level, running.status, running.log_speedup, running.log_speedup_se, running.stands_at,
    running.best_log_speedup,
    exp(running.best_log_speedup) AS best_speedup,
    running.leader.kernel_id AS leader_id, running.leader.log_speedup AS leader_log_speedup,
    running.leader.se AS leader_log_speedup_se,
    coalesce(running.stands_at > coalesce(running.previous, '-inf'), false) AS improved,
    running.created_at
FROM running, started
ORDER BY running.task, running.evaluation;
COMMENT ON VIEW progress IS 'Per task its leader over its evaluations, with hindsight: a kernel counts from its first correct evaluation on, with what its verdict that counts now makes certain (stands_at), and not at all if it was refuted later. best_log_speedup ends where the view best stands; leader_log_speedup is the leader''s estimate.';

CREATE VIEW offspring AS
WITH spent AS (
    SELECT request_id, sum(cost_usd) AS cost_usd FROM llm_calls GROUP BY request_id
),
-- Each proposal asks for the verdicts of its child and of its parents: once for all.
judged AS MATERIALIZED (
    SELECT task, kernel_id, status, log_speedup, log_speedup_se, duplicate_of FROM verdicts
),
-- Speedups of other tasks are over other kernels: what comes from there is compared with parents of its own task alone.
compared AS NOT MATERIALIZED (
    SELECT *, CASE WHEN source_task IS NULL THEN parents ELSE parents[2:] END AS own_parents FROM proposals
),
-- What is beside the principal parent, which most have alone.
others AS (
    SELECT
        p.request_id, bool_or(v.status = 'correct') AS correct, max(v.log_speedup) FILTER (v.status = 'correct') AS log_speedup,
        arg_max(v.log_speedup_se, v.log_speedup) FILTER (v.status = 'correct') AS se
    FROM (SELECT task, request_id, unnest(own_parents[2:]) AS kernel_id FROM compared WHERE is_new AND len(own_parents) > 1) AS p
    JOIN judged AS v USING (task, kernel_id)
    GROUP BY p.request_id
)
SELECT
    p.task, p.request_id, p.number, p.mutator, p.model, p.kernel_id, p.is_new, p.generation,
    p.parents[1] AS parent_id, p.parents,
    child.duplicate_of IS NOT NULL AS is_duplicate,
    child.status, child.log_speedup, child.log_speedup_se,
    CASE
        WHEN parent.status = 'correct' OR coalesce(others.correct, false) THEN 'correct' ELSE parent.status
    END AS parent_status,
    child.log_speedup - greatest(CASE WHEN parent.status = 'correct' THEN parent.log_speedup END, others.log_speedup) AS gain,
    CASE
        WHEN gain IS NULL THEN NULL
        WHEN parent.status = 'correct' AND coalesce(parent.log_speedup >= others.log_speedup, true)
            THEN sqrt(coalesce(child.log_speedup_se, 0) ** 2 + coalesce(parent.log_speedup_se, 0) ** 2)
        ELSE sqrt(coalesce(child.log_speedup_se, 0) ** 2 + coalesce(others.se, 0) ** 2)
    END AS gain_se,
    coalesce(child.status = 'correct' AND (gain > 1.96 * gain_se OR parent_status <> 'correct'), false) AS improved,
    p.seconds AS propose_s, p.evaluate_s, spent.cost_usd, p.source_task
FROM compared AS p
LEFT JOIN judged AS child ON p.is_new AND child.task = p.task AND child.kernel_id = p.kernel_id
LEFT JOIN judged AS parent ON p.is_new AND parent.task = p.task AND parent.kernel_id = p.own_parents[1]
LEFT JOIN others USING (request_id)
LEFT JOIN spent USING (request_id)
WHERE p.kind NOT IN ('say', 'profile');
COMMENT ON VIEW offspring IS 'Every proposal that a kernel was asked of; if its child was new to the task (is_new) also its verdict, that of its parents in its own task (correct if one of them is) and its gain over the fastest correct one of them, ln(its time / child time), where both are correct: a kernel that was carried over as it stands (parents of source_task alone) has none. improved: its gain is certain, or none of its parents was correct. propose_s: of the mutator, models included; evaluate_s: of evaluators.';

CREATE VIEW gains AS
SELECT
    task, kind, name,
    count(*) AS proposals,
    count(*) FILTER (kernel_id IS NULL) AS failures,
    count(*) FILTER (is_new) AS kernels,
    count(*) FILTER (is_duplicate) AS duplicates,
    count(*) FILTER (status = 'correct') AS correct,
    count(*) FILTER (improved) AS improved,
    avg(gain) AS mean_gain,
    sqrt(sum(gain_se ** 2)) / nullif(count(gain), 0) AS mean_gain_se,
    arg_max(gain, gain - 1.96 * gain_se) AS max_gain,
    arg_max(gain_se, gain - 1.96 * gain_se) AS max_gain_se,
    sum(propose_s) AS propose_s,
    sum(evaluate_s) AS evaluate_s,
    coalesce(sum(cost_usd), 0) AS cost_usd
-- Two parts, so that who asks for models alone pays for their children alone.
FROM (
    SELECT *, 'mutator' AS kind, mutator AS name FROM offspring WHERE mutator IS NOT NULL
    UNION ALL
    SELECT *, 'model' AS kind, model AS name FROM offspring WHERE model IS NOT NULL
)
GROUP BY task, kind, name;
COMMENT ON VIEW gains IS 'Per task and mutator, and per task and model (kind): proposals, failures (no child), kernels new to the task, of those duplicates of known programs, correct ones, and improved ones (certainly faster than every parent, or correct where none was); gains over the fastest parent, in ln, with standard errors: the mean, and the one whose lower end is highest; seconds of proposing and of evaluating.';

CREATE VIEW mutator_gain AS
SELECT task, name AS mutator, * EXCLUDE (task, kind, name) FROM gains WHERE kind = 'mutator';
COMMENT ON VIEW mutator_gain IS 'As gains, of mutators.';

CREATE VIEW model_gain AS
SELECT task, name AS model, * EXCLUDE (task, kind, name) FROM gains WHERE kind = 'model';
COMMENT ON VIEW model_gain IS 'As gains, of models.';

CREATE VIEW raised AS
SELECT
    task, request_id,
    greatest(stands_at, 0) - greatest(lag(stands_at) OVER (PARTITION BY task ORDER BY seq), 0) AS raised
FROM (
    SELECT
        t.task, t.seq, t.request_id,
        max(v.stands_at) OVER (PARTITION BY t.task ORDER BY t.seq) AS stands_at
    FROM tells AS t
    LEFT JOIN verdicts AS v USING (task, kernel_id)
);
COMMENT ON VIEW raised IS 'Per request how far it moved what the best of its task certainly has over the naive kernel (stands_at), ln, in the order in which requests were told, with the verdicts that count now.';

CREATE VIEW stretches AS
WITH spans AS (
    SELECT worker, created_at AS ended, created_at - to_microseconds((1e6 * took_s)::BIGINT) AS began, is_profile
    FROM (
        SELECT
            worker, created_at, false AS is_profile,
            (coalesce(build_ms, 0) + coalesce(verify_ms, 0) + coalesce(time_ms, 0) + coalesce(confirm_ms, 0)) / 1e3 AS took_s
        FROM evaluations
        UNION ALL
        SELECT worker, created_at, true, seconds FROM profiles
        UNION ALL
        SELECT worker, created_at, true, seconds FROM tool_calls
    )
    WHERE worker IS NOT NULL
),
marked AS (
    SELECT *, began > max(ended) OVER (
        PARTITION BY worker ORDER BY began, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS after_a_pause
    FROM spans
),
numbered AS (
    -- A sum, because a count with FILTER over a growing frame takes time by the square of the rows.
    SELECT *, sum(coalesce(after_a_pause, false)::INTEGER) OVER (PARTITION BY worker ORDER BY began, ended) AS stretch
    FROM marked
)
SELECT
    worker, min(began) AS began, max(ended) AS ended, epoch(max(ended)) - epoch(min(began)) AS busy_s,
    count(*) FILTER (NOT is_profile) AS verdicts, count(*) FILTER (is_profile) AS profiles
FROM numbered
GROUP BY worker, stretch
ORDER BY worker, began;
COMMENT ON VIEW stretches IS 'Per worker the stretches of time in which it built, checked, timed or profiled a kernel. Verdicts overlap on a worker: what their stages took adds up to more.';

CREATE VIEW sessions AS
WITH marks AS (
    SELECT
        rowid AS place, kind, created_at, detail_json->>'reason' AS reason,
        CASE json_type(detail_json, '$.budget') WHEN 'OBJECT' THEN detail_json->>'budget' END AS budget_json
    FROM events
    WHERE kind IN ('session', 'finished', 'stopped', 'failed')
),
begun AS (
    SELECT
        place, created_at AS began, budget_json, lead(place, 1, 9e18::BIGINT) OVER (ORDER BY place) AS next_place,
        lead(created_at) OVER (ORDER BY place) AS next_began
    FROM marks
    WHERE kind = 'session'
),
signs AS (
    SELECT created_at FROM events UNION ALL SELECT created_at FROM asks UNION ALL SELECT created_at FROM tells
),
ended_calls AS (
    SELECT cache_key, max(created_at) AS created_at FROM llm_calls GROUP BY cache_key
),
-- Each call at the moment in which it was sent: what the end of a process cut off is in llm_calls since the next session.
sent AS (
    SELECT
        coalesce(s.created_at, c.created_at) AS sent_at, true AS has_ended, status IN ('failed', 'unavailable') AS failed,
        tokens_in, tokens_out, cost_usd, lost_tokens, lost_usd
    FROM llm_calls AS c
    ASOF LEFT JOIN llm_sent AS s ON s.cache_key = c.cache_key AND s.created_at <= c.created_at
    UNION ALL BY NAME
    SELECT s.created_at AS sent_at, false AS has_ended, most_tokens AS lost_tokens, most_usd AS lost_usd
    FROM llm_sent AS s
    LEFT JOIN ended_calls AS e USING (cache_key)
    WHERE messages_json IS NULL AND coalesce(e.created_at < s.created_at, true)
),
spent AS (
    SELECT
        place,
        count(*) FILTER (has_ended) AS calls, count(*) FILTER (has_ended AND failed) AS failed_calls,
        coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in, coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
        coalesce(sum(cost_usd), 0) AS cost_usd,
        coalesce(sum(lost_tokens) FILTER (has_ended), 0)::BIGINT AS lost_tokens,
        coalesce(sum(lost_usd) FILTER (has_ended), 0) AS lost_usd,
        count(*) FILTER (NOT has_ended) AS open_calls,
        coalesce(sum(lost_tokens) FILTER (NOT has_ended), 0)::BIGINT AS open_tokens,
        coalesce(sum(lost_usd) FILTER (NOT has_ended), 0) AS open_usd
    FROM sent
    ASOF JOIN (SELECT place, began FROM begun) ON sent_at >= began
    GROUP BY place
)
SELECT
    row_number() OVER (ORDER BY place) AS session, began, next_began,
    -- No sign is within it where the machine's clock was set back.
    coalesce(epoch((
        SELECT max(created_at) FROM signs WHERE created_at >= began AND created_at < coalesce(next_began, 'infinity')
    )) - epoch(began), 0) AS took_s,
    (SELECT arg_max(kind, m.place) FROM marks AS m WHERE m.place > b.place AND m.place < next_place) AS ended,
    coalesce((SELECT arg_max(reason, m.place) FROM marks AS m WHERE m.place > b.place AND m.place < next_place), '') AS reason,
    budget_json,
    coalesce(calls, 0) AS calls, coalesce(failed_calls, 0) AS failed_calls,
    coalesce(tokens_in, 0) AS tokens_in, coalesce(tokens_out, 0) AS tokens_out, coalesce(cost_usd, 0) AS cost_usd,
    coalesce(lost_tokens, 0) AS lost_tokens, coalesce(lost_usd, 0) AS lost_usd,
    coalesce(open_calls, 0) AS open_calls, coalesce(open_tokens, 0) AS open_tokens, coalesce(open_usd, 0) AS open_usd
FROM begun AS b
LEFT JOIN spent USING (place);
COMMENT ON VIEW sessions IS 'The sessions of a run, in their order: each lasts from its beginning to its last sign of life before the next one; ended: finished, stopped or failed; NULL: it goes on, or its process ended without a word. budget_json: the limits of the whole run that held in it. Calls of language models count in the session that sent them. lost: upper bounds of what calls without a known end cost besides; open: the same of calls that have no end yet, since the session goes on, or its process ended and no other session has begun.';

CREATE VIEW tasks AS
WITH named AS (
    SELECT rowid AS place, TRY_CAST(detail_json->'tasks' AS VARCHAR[]) AS tasks FROM events WHERE kind = 'session'
),
wanted AS (
    SELECT task, min(place) AS place
    FROM (SELECT unnest(tasks) AS task, generate_subscripts(tasks, 1) AS place FROM named)
    GROUP BY task
),
begun AS (
    SELECT task, min(rowid) AS place FROM asks GROUP BY task
)
SELECT
    task, row_number() OVER (ORDER BY begun.place NULLS LAST, wanted.place) AS place, begun.task IS NOT NULL AS is_begun
FROM wanted FULL JOIN begun USING (task)
ORDER BY place;
COMMENT ON VIEW tasks IS 'Every task that the run was asked for, also one that was never begun: first those that were, in the order in which they were begun, then the others in the order of the configuration.';

CREATE VIEW cost AS
WITH sent AS (
    SELECT cache_key, any_value(most_tokens) AS most_tokens, any_value(most_usd) AS most_usd
    FROM llm_sent
    GROUP BY cache_key
),
-- The part of its upper bound that a call of the model really takes.
usual AS (
    SELECT
        c.model,
        sum(c.tokens_in + c.tokens_out) / nullif(sum(sent.most_tokens), 0) AS tokens,
        sum(c.cost_usd) / nullif(sum(sent.most_usd), 0) AS usd
    FROM llm_calls AS c
    JOIN sent USING (cache_key)
    WHERE c.heard AND coalesce(c.usage_doubt, '') = ''
    GROUP BY c.model
),
spent AS (
    SELECT
        model,
        count(*) FILTER (status <> 'withdrawn') AS calls,
        count(*) FILTER (status IN ('failed', 'unavailable')) AS failed_calls,
        count(*) FILTER (status = 'withdrawn') AS asked_anew,
        count(*) FILTER (usage_doubt <> '') AS doubted_calls,
        coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in,
        coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
        coalesce(sum(cost_usd), 0) AS cost_usd,
        coalesce(sum(attempts), 0)::BIGINT AS attempts,
        coalesce(sum(lost_tokens), 0)::BIGINT AS lost_tokens,
        coalesce(sum(lost_usd), 0) AS lost_usd,
        coalesce(sum(latency_s), 0) AS seconds
    FROM llm_calls
    GROUP BY model
)
SELECT
    s.model, s.calls, s.failed_calls, s.asked_anew, s.doubted_calls, s.tokens_in, s.tokens_out, s.cost_usd, s.attempts,
    s.lost_tokens, s.lost_usd,
    round(s.lost_tokens * coalesce(usual.tokens, 1))::BIGINT AS likely_lost_tokens,
    s.lost_usd * coalesce(usual.usd, 1) AS likely_lost_usd,
    s.seconds
FROM spent AS s
LEFT JOIN usual USING (model);
COMMENT ON VIEW cost IS 'Per model: calls, questions asked anew, tokens, dollars, attempts, and seconds spent waiting. lost: what attempts without a known end may have cost besides, at most; it counts against the budget. likely_lost: the same, if they took the part of that bound that the model''s answered calls took. doubted_calls: those whose provider said a usage that cannot be, see llm_calls.usage_doubt.';

CREATE VIEW failures AS
WITH failed AS (
    SELECT task, status, message, judged_at AS happened_at
    FROM verdicts
    WHERE status NOT IN ('correct', 'slower')
    UNION ALL
    SELECT task, CASE WHEN kind IN ('say', 'profile') THEN 'no_answer' ELSE 'no_child' END, failure, created_at
    FROM proposals
    WHERE failure <> '' AND kernel_id IS NULL
)
SELECT task, status, count(*) AS count, arg_max(nullif(message, ''), happened_at) AS example
FROM failed
GROUP BY task, status;
COMMENT ON VIEW failures IS 'Per task and status how many kernels failed (no_child: requests for a kernel that led to none; no_answer: those for words or for a profile; kernels that are only slower are no failures), and the latest message as an example.';

CREATE VIEW questions AS
SELECT s.cache_key, s.request_id, s.role, s.model, s.sample, s.messages_json, s.most_tokens, s.created_at
FROM llm_sent AS s
WHERE s.messages_json IS NOT NULL AND s.request_id NOT IN (SELECT request_id FROM tells)
    AND s.cache_key NOT IN (SELECT cache_key FROM llm_calls WHERE status <> 'withdrawn')
ORDER BY s.rowid;
COMMENT ON VIEW questions IS 'Questions that wait for an answer from outside, the oldest first; cache_key is the custom_id of evo ask and evo tell.';

CREATE VIEW steps AS
WITH calls AS (
    SELECT
        request_id,
        count(*) FILTER (heard) AS calls,
        coalesce(sum(tokens_in), 0) + coalesce(sum(tokens_out), 0) AS tokens,
        coalesce(sum(cost_usd), 0) AS cost_usd
    FROM llm_calls
    GROUP BY request_id
),
drafts AS (
    SELECT
        request_id,
        sum(evaluations) AS evaluations,
        count(*) FILTER (tool IN ('build', 'check') AND kernel_id IS NOT NULL) AS checks
    FROM tool_calls
    GROUP BY request_id
),
told AS (
    SELECT
        t.task, t.seq, t.request_id, t.kernel_id, t.status, t.created_at, p.evaluate_s, p.parents,
        p.kind
    FROM tells AS t
    LEFT JOIN proposals AS p USING (request_id)
)
SELECT
    t.task, t.seq, t.request_id, t.kernel_id, t.kind, t.status,
    (
        t.kernel_id IS NOT NULL AND t.kind <> 'trial'
        AND t.status NOT IN ('duplicate', 'invalid', 'unsupported', 'unavailable')
    )::INTEGER + coalesce(drafts.evaluations, 0)::INTEGER AS evaluations,
    (
        t.kernel_id IS NOT NULL AND t.kind = 'trial' AND t.status NOT IN ('duplicate', 'unavailable')
    )::INTEGER AS trials,
    (t.status = 'duplicate')::INTEGER AS duplicates,
    (t.status IN ('invalid', 'unsupported'))::INTEGER AS rejected,
    (
        t.kernel_id IS NOT NULL AND t.kind = 'child'
        AND t.status NOT IN ('duplicate', 'invalid', 'unsupported', 'unavailable')
        AND parent.status NOT IN ('correct', 'slower')
    )::INTEGER AS repairs,
    coalesce(drafts.checks, 0)::INTEGER AS checks,
    coalesce(calls.calls, 0)::BIGINT AS calls,
    coalesce(calls.tokens, 0)::BIGINT AS tokens,
    coalesce(calls.cost_usd, 0) AS cost_usd,
    coalesce(t.evaluate_s, 0) AS evaluator_s,
    t.created_at
FROM told AS t
LEFT JOIN drafts USING (request_id)
LEFT JOIN calls USING (request_id)
LEFT JOIN verdicts AS parent ON parent.task = t.task AND parent.kernel_id = t.parents[1]
UNION ALL BY NAME
SELECT task, seq, kernel_id, 'profiled' AS status, seconds AS evaluator_s, created_at
FROM profiles;
COMMENT ON VIEW steps IS 'What a run used, request by request in the order of seq, and profile by profile (request_id NULL). evaluations: kernels that reached the compiler, were no duplicates and got a verdict, ancestors and repairs among them, and drafts that a dialogue had judged; this is what a budget of evaluations counts. Counted apart: trials (settings of tunables), duplicates, rejected (the compiler saw nothing of them), checks (drafts that a dialogue had compiled, and at most run on a few small shapes). repairs: of the evaluations those whose principal parent was not correct. calls: answers of language models, each turn of a dialogue one; those that failed are none. tokens: in and out, without what is lost. evaluator_s: of evaluators, drafts and profiles included; the confirmation at the end of a run is charged to nobody.';

CREATE VIEW curve AS
SELECT
    s.task, s.seq, s.request_id, s.kernel_id, s.status,
    (sum(coalesce(s.evaluations, 0)) OVER so_far)::BIGINT AS evaluations,
    (sum(coalesce(s.trials, 0)) OVER so_far)::BIGINT AS trials,
    (sum(coalesce(s.calls, 0)) OVER so_far)::BIGINT AS calls,
    (sum(coalesce(s.tokens, 0)) OVER so_far)::BIGINT AS tokens,
    sum(coalesce(s.cost_usd, 0)) OVER so_far AS cost_usd,
    sum(s.evaluator_s) OVER so_far AS evaluator_s,
    epoch(s.created_at) - epoch((SELECT min(created_at) FROM runs)) AS elapsed_s,
    max(v.stands_at) OVER so_far AS best_log_speedup,
    arg_max(v.kernel_id, v.stands_at) OVER so_far AS leader_id,
    arg_max(v.log_speedup, v.stands_at) OVER so_far AS leader_log_speedup,
    arg_max(coalesce(v.log_speedup_se, 0), v.stands_at) OVER so_far AS leader_log_speedup_se
FROM steps AS s
LEFT JOIN verdicts AS v ON s.request_id IS NOT NULL AND v.task = s.task AND v.kernel_id = s.kernel_id
WINDOW so_far AS (PARTITION BY s.task ORDER BY s.seq)
ORDER BY s.task, s.seq;
COMMENT ON VIEW curve IS 'Per task its leader so far over all that was used by then (see steps), with hindsight: a kernel counts with what its verdict that counts now makes certain (stands_at), and not at all if it was refuted later. best_log_speedup ends where the view best stands; leader_log_speedup is the leader''s estimate.';

CREATE VIEW used AS
WITH calls AS (
    SELECT
        regexp_replace(request_id, '#.*$', '') AS task,
        count(*) FILTER (status <> 'withdrawn') AS calls,
        count(*) FILTER (status IN ('failed', 'unavailable')) AS failed_calls,
        coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in, coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
        coalesce(sum(cost_usd), 0) AS cost_usd,
        coalesce(sum(lost_tokens), 0)::BIGINT AS lost_tokens, coalesce(sum(lost_usd), 0) AS lost_usd
    FROM llm_calls
    GROUP BY 1
),
done AS (
    SELECT
        task,
        sum(evaluations) AS evaluations, sum(trials) AS trials, sum(duplicates) AS duplicates,
        sum(rejected) AS rejected, sum(repairs) AS repairs, sum(checks) AS checks, sum(evaluator_s) AS evaluator_s
    FROM steps
    GROUP BY task
)
SELECT
    d.task, d.evaluations::BIGINT AS evaluations, d.trials::BIGINT AS trials, d.duplicates::BIGINT AS duplicates,
    d.rejected::BIGINT AS rejected, d.repairs::BIGINT AS repairs, d.checks::BIGINT AS checks,
    coalesce(c.calls, 0)::BIGINT AS calls, coalesce(c.failed_calls, 0)::BIGINT AS failed_calls,
    coalesce(c.tokens_in, 0)::BIGINT AS tokens_in, coalesce(c.tokens_out, 0)::BIGINT AS tokens_out,
    coalesce(c.cost_usd, 0) AS cost_usd,
    coalesce(c.lost_tokens, 0)::BIGINT AS lost_tokens, coalesce(c.lost_usd, 0) AS lost_usd,
    d.evaluator_s
FROM done AS d
LEFT JOIN calls AS c USING (task);
COMMENT ON VIEW used IS 'Per task what a run used in all, counted as in steps; calls, tokens and dollars also of requests that were never told. lost_tokens and lost_usd: upper bounds of what calls without a known end cost besides.';
