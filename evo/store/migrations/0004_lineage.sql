-- What views worked out anew from everything there is, for every question, is written down when it becomes known: with
-- the tell. Tables are made again rather than updated.

DROP VIEW failures;
DROP VIEW model_gain;
DROP VIEW mutator_gain;
DROP VIEW offspring;
DROP VIEW progress;
DROP VIEW best;
DROP VIEW elites;
DROP VIEW lineage;
DROP VIEW individuals;
DROP VIEW verdicts;

ALTER TABLE proposals RENAME TO old_proposals;
CREATE TABLE proposals (
    request_id  VARCHAR NOT NULL,
    task        VARCHAR NOT NULL,
    number      BIGINT NOT NULL,
    mutator     VARCHAR NOT NULL,
    model       VARCHAR,
    kernel_id   VARCHAR,
    is_new      BOOLEAN NOT NULL,
    generation  INTEGER NOT NULL,
    parents     VARCHAR[] NOT NULL,
    description VARCHAR,
    failure     VARCHAR,
    seconds     DOUBLE NOT NULL,
    evaluate_s  DOUBLE NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE proposals IS 'Answers to requests: a child (kernel_id), or why there is none (failure). is_new: no request told before had this child in its task. generation: 0 without parents, else one more than the highest of theirs. parents: the principal one first. seconds: of proposing; evaluate_s: of evaluators, all levels.';

ALTER TABLE evaluations RENAME TO old_evaluations;
CREATE TABLE evaluations (
    evaluation_id      VARCHAR NOT NULL,
    request_id         VARCHAR,
    task               VARCHAR NOT NULL,
    kernel_id          VARCHAR NOT NULL,
    level              VARCHAR NOT NULL,
    status             VARCHAR NOT NULL,
    is_verdict         BOOLEAN NOT NULL,
    inherited          VARCHAR,
    duplicate_of       VARCHAR,
    message            VARCHAR,
    log_speedup        DOUBLE,
    log_speedup_se     DOUBLE,
    anchor_id          VARCHAR,
    anchor_log_speedup DOUBLE,
    log_ratio          DOUBLE,
    log_ratio_se       DOUBLE,
    code_digest        VARCHAR,
    cell               VARCHAR,
    facts_json         VARCHAR,
    build_ms           DOUBLE,
    verify_ms          DOUBLE,
    time_ms            DOUBLE,
    confirm_ms         DOUBLE,
    worker             VARCHAR,
    created_at         TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE evaluations IS 'Verdicts, at most a few per kernel: levels screen, full, confirmed. log_speedup = ln(baseline time / kernel time) = anchor_log_speedup + log_ratio. request_id is NULL for examinations that no request asked for: the last confirmations, the latest of which outranks all else. is_verdict: for those, and for the most severe level of the request that was the first to propose the kernel in its task.';

-- The temporary table `placed` is made by evo/store/placing.py, before this file is run.
INSERT INTO proposals BY NAME
SELECT p.*, o.is_new, o.generation, o.parents, coalesce(spent.evaluate_s, 0) AS evaluate_s
FROM old_proposals AS p
JOIN placed AS o USING (request_id)
LEFT JOIN (
    SELECT
        request_id,
        sum(coalesce(build_ms, 0) + coalesce(verify_ms, 0) + coalesce(time_ms, 0) + coalesce(confirm_ms, 0)) / 1e3 AS evaluate_s
    FROM old_evaluations
    GROUP BY request_id
) AS spent USING (request_id)
ORDER BY p.rowid;

INSERT INTO evaluations BY NAME
SELECT
    e.*,
    e.request_id IS NULL OR (coalesce(o.is_new, false) AND row_number() OVER (
        PARTITION BY e.request_id ORDER BY list_position(['screen', 'full', 'confirmed'], e.level) DESC, e.rowid DESC
    ) = 1) AS is_verdict
FROM old_evaluations AS e
LEFT JOIN placed AS o USING (request_id)
ORDER BY e.rowid;

DROP TABLE old_proposals;
DROP TABLE old_evaluations;
DROP TABLE placed;

-- Views. A speedup is exp(log_speedup); an interval is +/- 1.96 standard errors of log_speedup.

-- None holds a CTE that is read twice and kept in memory: conditions from outside would not reach its tables, and below
-- a LIMIT DuckDB 2.0.0 waits for ever, without using any CPU.

CREATE VIEW individuals AS
SELECT
    task, kernel_id, parents[1] AS parent_id, parents, generation, request_id, number, mutator, model, description,
    created_at
FROM proposals
WHERE is_new;
COMMENT ON VIEW individuals IS 'Per task and kernel how it first came to be: the first request that proposed it. parent_id: the principal parent.';

CREATE VIEW verdicts AS
WITH final AS NOT MATERIALIZED (
    SELECT * EXCLUDE (request_id), NULL::VARCHAR AS original
    FROM evaluations
    WHERE request_id IS NULL
    QUALIFY row_number() OVER (PARTITION BY task, kernel_id ORDER BY created_at DESC, rowid DESC) = 1
),
-- Of each kernel by itself; NULL is easier to skip than a duplicate that is its own original.
own AS NOT MATERIALIZED (
    SELECT * EXCLUDE (request_id), nullif(duplicate_of, kernel_id) AS original
    FROM evaluations ANTI JOIN final USING (task, kernel_id)
    WHERE is_verdict AND request_id IS NOT NULL
    UNION ALL
    FROM final
),
-- A duplicate is judged by what is known of its original now, not by what was known when it was found.
judged AS NOT MATERIALIZED (
    SELECT
        task, kernel_id, coalesce(inherited, status) AS status, level, log_speedup, log_speedup_se, cell, original,
        message, evaluation_id, created_at
    FROM own
    WHERE original IS NULL
    UNION ALL
    SELECT
        copy.task, copy.kernel_id, coalesce(found.inherited, found.status, copy.inherited),
        coalesce(found.level, copy.level),
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup ELSE found.log_speedup END,
        CASE WHEN found.kernel_id IS NULL THEN copy.log_speedup_se ELSE found.log_speedup_se END,
        coalesce(found.cell, copy.cell), copy.original, coalesce(found.message, copy.message),
        coalesce(found.evaluation_id, copy.evaluation_id), coalesce(found.created_at, copy.created_at)
    FROM (FROM own WHERE original IS NOT NULL) AS copy
    LEFT JOIN own AS found ON found.task = copy.task AND found.kernel_id = copy.original
)
SELECT
    task, kernel_id, status, level, log_speedup, log_speedup_se,
    exp(log_speedup) AS speedup,
    exp(log_speedup - 1.96 * log_speedup_se) AS speedup_low,
    exp(log_speedup + 1.96 * log_speedup_se) AS speedup_high,
    nullif(cell, '') AS cell, original AS duplicate_of, message, evaluation_id, created_at AS judged_at
FROM judged;
COMMENT ON VIEW verdicts IS 'Per task and kernel the verdict that counts: the most severe level (confirmed, full, screen), of those the latest; a duplicate has its original''s.';

CREATE VIEW lineage AS
SELECT
    i.task, i.kernel_id, i.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at
FROM individuals AS i
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first), how it was made, its verdict (status NULL: none yet), and its generation: 0 for a first ancestor, else one more than the highest of its parents.';

CREATE MACRO ancestors(of_task, of_kernel) AS TABLE
WITH RECURSIVE found (kernel_id) AS (
    SELECT of_kernel
    UNION
    SELECT unnest(i.parents) FROM found JOIN individuals AS i ON i.task = of_task AND i.kernel_id = found.kernel_id
)
SELECT * FROM lineage WHERE task = of_task AND kernel_id IN (FROM found);

CREATE VIEW elites AS
WITH fastest AS NOT MATERIALIZED (
    SELECT task, cell, max(log_speedup) AS log_speedup
    FROM verdicts
    WHERE status = 'correct' AND cell IS NOT NULL
    GROUP BY task, cell
)
SELECT
    v.task, v.cell, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at
FROM verdicts AS v
JOIN fastest USING (task, cell, log_speedup)
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct'
QUALIFY row_number() OVER (
    PARTITION BY v.task, v.cell ORDER BY v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW elites IS 'Per task and cell of the behaviour space the fastest correct kernel, and how it was made.';

CREATE VIEW best AS
WITH fastest AS NOT MATERIALIZED (
    SELECT task, max(log_speedup) AS log_speedup FROM verdicts WHERE status = 'correct' GROUP BY task
)
SELECT
    v.task, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se, v.cell,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at
FROM verdicts AS v
JOIN fastest USING (task, log_speedup)
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct'
QUALIFY row_number() OVER (
    PARTITION BY v.task ORDER BY v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW best IS 'Per task the fastest correct kernel (each by the verdict that counts), its speedup with a 95 % interval, and how it was made.';

CREATE VIEW progress AS
WITH started AS (
    SELECT coalesce((SELECT min(created_at) FROM runs), (SELECT min(created_at) FROM evaluations)) AS created_at
),
steps AS (
    SELECT
        e.task, e.kernel_id, e.level, e.created_at, e.rowid AS place, v.status,
        CASE WHEN coalesce(e.inherited, e.status) = 'correct' AND v.status = 'correct' THEN v.log_speedup END AS log_speedup
    FROM evaluations AS e
    JOIN verdicts AS v USING (task, kernel_id)
),
running AS (
    SELECT
        *,
        row_number() OVER so_far AS evaluation,
        max(log_speedup) OVER so_far AS best_log_speedup,
        max(log_speedup) OVER (so_far ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS previous_log_speedup
    FROM steps
    WINDOW so_far AS (PARTITION BY task ORDER BY created_at, place)
)
SELECT
    running.task, running.evaluation, epoch(running.created_at) - epoch(started.created_at) AS elapsed_s,
    running.kernel_id, running.level, running.status, running.log_speedup, running.best_log_speedup,
    exp(running.best_log_speedup) AS best_speedup,
    coalesce(running.log_speedup > coalesce(running.previous_log_speedup, '-inf'), false) AS improved,
    running.created_at
FROM running, started
ORDER BY running.task, running.evaluation;
COMMENT ON VIEW progress IS 'Per task the running best over its evaluations, with hindsight: a kernel counts from its first correct evaluation on, with the verdict that counts now, and not at all if it was refuted later.';

CREATE VIEW offspring AS
WITH spent AS (
    SELECT request_id, sum(cost_usd) AS cost_usd FROM llm_calls GROUP BY request_id
),
-- What is beside the principal parent, which most have alone.
others AS (
    SELECT p.request_id, max(v.log_speedup) FILTER (v.status = 'correct') AS log_speedup, bool_or(v.status = 'correct') AS correct
    FROM (SELECT task, request_id, unnest(parents[2:]) AS kernel_id FROM proposals WHERE is_new AND len(parents) > 1) AS p
    JOIN verdicts AS v USING (task, kernel_id)
    GROUP BY p.request_id
)
SELECT
    p.task, p.request_id, p.number, p.mutator, p.model, p.kernel_id, p.is_new, p.generation,
    CASE WHEN p.is_new THEN p.parents[1] END AS parent_id,
    CASE WHEN p.is_new THEN p.parents END AS parents,
    child.duplicate_of IS NOT NULL AS is_duplicate,
    child.status, child.log_speedup,
    CASE
        WHEN parent.status = 'correct' OR coalesce(others.correct, false) THEN 'correct' ELSE parent.status
    END AS parent_status,
    child.log_speedup - greatest(CASE WHEN parent.status = 'correct' THEN parent.log_speedup END, others.log_speedup) AS gain,
    p.seconds AS propose_s, p.evaluate_s, spent.cost_usd
FROM proposals AS p
LEFT JOIN verdicts AS child ON p.is_new AND child.task = p.task AND child.kernel_id = p.kernel_id
LEFT JOIN verdicts AS parent ON p.is_new AND parent.task = p.task AND parent.kernel_id = p.parents[1]
LEFT JOIN others USING (request_id)
LEFT JOIN spent USING (request_id);
COMMENT ON VIEW offspring IS 'Every proposal; if its child was new to the task (is_new) also its verdict, that of its parents (correct if one of them is) and its gain over the fastest correct one of them, ln(its time / child time), where both are correct. propose_s: of the mutator, models included; evaluate_s: of evaluators.';

CREATE VIEW mutator_gain AS
SELECT
    task, mutator,
    count(*) AS proposals,
    count(*) FILTER (kernel_id IS NULL) AS failures,
    count(*) FILTER (is_new) AS kernels,
    count(*) FILTER (is_duplicate) AS duplicates,
    count(*) FILTER (status = 'correct') AS correct,
    count(*) FILTER (status = 'correct' AND parent_id IS NOT NULL AND (gain > 0 OR parent_status <> 'correct')) AS improved,
    avg(gain) AS mean_gain,
    max(gain) AS max_gain,
    sum(propose_s) AS propose_s,
    sum(evaluate_s) AS evaluate_s,
    coalesce(sum(cost_usd), 0) AS cost_usd
FROM offspring
GROUP BY task, mutator;
COMMENT ON VIEW mutator_gain IS 'Per task and mutator: proposals, failures (no child), kernels new to the task, of those duplicates of known programs, correct ones, and improved ones (faster than every parent, or correct where none was); gains over the fastest parent, in ln; seconds of proposing and of evaluating.';

CREATE VIEW model_gain AS
SELECT
    task, model,
    count(*) AS proposals,
    count(*) FILTER (kernel_id IS NULL) AS failures,
    count(*) FILTER (is_new) AS kernels,
    count(*) FILTER (is_duplicate) AS duplicates,
    count(*) FILTER (status = 'correct') AS correct,
    count(*) FILTER (status = 'correct' AND parent_id IS NOT NULL AND (gain > 0 OR parent_status <> 'correct')) AS improved,
    avg(gain) AS mean_gain,
    max(gain) AS max_gain,
    sum(propose_s) AS propose_s,
    sum(evaluate_s) AS evaluate_s,
    coalesce(sum(cost_usd), 0) AS cost_usd
FROM offspring
WHERE model IS NOT NULL
GROUP BY task, model;
COMMENT ON VIEW model_gain IS 'As mutator_gain, per task and model.';

CREATE VIEW failures AS
WITH failed AS (
    SELECT task, status, message, judged_at AS happened_at
    FROM verdicts
    WHERE status NOT IN ('correct', 'slower')
    UNION ALL
    SELECT task, 'no_child', failure, created_at FROM proposals WHERE kernel_id IS NULL
)
SELECT task, status, count(*) AS count, arg_max(nullif(message, ''), happened_at) AS example
FROM failed
GROUP BY task, status;
COMMENT ON VIEW failures IS 'Per task and status how many kernels failed (no_child: proposals without a kernel; kernels that are only slower are no failures), and the latest message as an example.';
