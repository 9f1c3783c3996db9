-- Tables are append-only: no row is ever changed or removed, and there are no keys or indexes (DuckDB's secondary
-- indexes cost every append, and their replay after a crash has had bugs). The driver writes each id once.

CREATE TABLE runs (
    run_id         VARCHAR NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    engine_version VARCHAR NOT NULL,
    seed           BIGINT NOT NULL,
    config_json    VARCHAR NOT NULL,
    host_json      VARCHAR NOT NULL
);
COMMENT ON TABLE runs IS 'The run itself, one row; its sessions are in events.';

CREATE TABLE kernels (
    kernel_id   VARCHAR NOT NULL,
    source_id   VARCHAR NOT NULL,
    operator    VARCHAR NOT NULL,
    target      VARCHAR NOT NULL,
    source      VARCHAR NOT NULL,
    values_json VARCHAR NOT NULL
);
COMMENT ON TABLE kernels IS 'Every kernel ever proposed, once. source_id is shared by all settings of one file''s tunables.';

CREATE TABLE asks (
    seq          BIGINT NOT NULL,
    position     INTEGER NOT NULL,
    wanted       INTEGER NOT NULL,
    task         VARCHAR NOT NULL,
    number       BIGINT NOT NULL,
    request_id   VARCHAR NOT NULL,
    mutator      VARCHAR NOT NULL,
    request_json VARCHAR NOT NULL,
    digest       VARCHAR NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE asks IS 'Requests in the order they were made. seq counts asks and tells of the whole run; the requests of one ask share it.';

CREATE TABLE parents (
    request_id VARCHAR NOT NULL,
    position   INTEGER NOT NULL,
    parent_id  VARCHAR NOT NULL
);
COMMENT ON TABLE parents IS 'The kernels a request starts from; position 0 is the principal parent.';

CREATE TABLE proposals (
    request_id  VARCHAR NOT NULL,
    task        VARCHAR NOT NULL,
    number      BIGINT NOT NULL,
    mutator     VARCHAR NOT NULL,
    model       VARCHAR,
    kernel_id   VARCHAR,
    description VARCHAR,
    failure     VARCHAR,
    seconds     DOUBLE NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE proposals IS 'Answers to requests: a child (kernel_id), or why there is none (failure).';

CREATE TABLE llm_calls (
    call_id       VARCHAR NOT NULL,
    request_id    VARCHAR NOT NULL,
    role          VARCHAR NOT NULL,
    model         VARCHAR NOT NULL,
    messages_json VARCHAR NOT NULL,
    answer        VARCHAR,
    tokens_in     BIGINT,
    tokens_out    BIGINT,
    cost_usd      DOUBLE,
    attempts      INTEGER,
    lost_tokens   BIGINT,
    lost_usd      DOUBLE,
    latency_s     DOUBLE,
    status        VARCHAR NOT NULL,
    error         VARCHAR,
    cache_key     VARCHAR NOT NULL,
    sample        INTEGER NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE llm_calls IS 'Every call of a language model, retries included and failed ones too; cache_key and sample find the answer again. lost_tokens and lost_usd: upper bounds of what attempts without a known end were billed besides.';

CREATE TABLE llm_sent (
    request_id    VARCHAR NOT NULL,
    role          VARCHAR NOT NULL,
    model         VARCHAR NOT NULL,
    cache_key     VARCHAR NOT NULL,
    sample        INTEGER NOT NULL,
    most_tokens   BIGINT NOT NULL,
    most_usd      DOUBLE NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE llm_sent IS 'Calls of language models, written before they are sent, with the most that one attempt may cost: what is not in llm_calls in the end was cut off by the end of its process, and counts as lost.';

CREATE TABLE evaluations (
    evaluation_id      VARCHAR NOT NULL,
    request_id         VARCHAR,
    task               VARCHAR NOT NULL,
    kernel_id          VARCHAR NOT NULL,
    level              VARCHAR NOT NULL,
    status             VARCHAR NOT NULL,
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
COMMENT ON TABLE evaluations IS 'Verdicts, at most a few per kernel: levels screen, full, confirmed. log_speedup = ln(baseline time / kernel time) = anchor_log_speedup + log_ratio. request_id is NULL for examinations that no request asked for.';

CREATE TABLE tells (
    seq           BIGINT NOT NULL,
    task          VARCHAR NOT NULL,
    number        BIGINT NOT NULL,
    request_id    VARCHAR NOT NULL,
    kernel_id     VARCHAR,
    evaluation_id VARCHAR,
    status        VARCHAR NOT NULL,
    log_speedup   DOUBLE,
    seconds       DOUBLE,
    cost_usd      DOUBLE,
    digest        VARCHAR NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE tells IS 'What the strategy was told, in the order of seq. status: the verdict, or no_child. seconds: of an evaluator, until the screening verdict; cost_usd: of language models.';

CREATE TABLE timings (
    evaluation_id     VARCHAR NOT NULL,
    workload          VARCHAR NOT NULL,
    latency_us        DOUBLE NOT NULL,
    anchor_latency_us DOUBLE NOT NULL,
    log_ratio         DOUBLE NOT NULL,
    log_ratio_se      DOUBLE NOT NULL,
    pairs             INTEGER NOT NULL
);
COMMENT ON TABLE timings IS 'Per workload: a kernel measured in pairs with its anchor. log_ratio = ln(anchor time / kernel time).';

CREATE TABLE errors (
    evaluation_id VARCHAR NOT NULL,
    workload      VARCHAR NOT NULL,
    tensor        VARCHAR NOT NULL,
    family        VARCHAR NOT NULL,
    max_ratio     DOUBLE NOT NULL,
    rms_ratio     DOUBLE NOT NULL,
    mismatches    BIGINT NOT NULL,
    first_bad     BIGINT
);
COMMENT ON TABLE errors IS 'Per check: distance from the fp64 reference. max_ratio: the worst element, rms_ratio: the root mean square, both in units of what is allowed: above 1 is wrong.';

CREATE TABLE profiles (
    task          VARCHAR NOT NULL,
    kernel_id     VARCHAR NOT NULL,
    evaluation_id VARCHAR NOT NULL,
    bottleneck    VARCHAR,
    notes_json    VARCHAR NOT NULL,
    failure       VARCHAR,
    seconds       DOUBLE NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE profiles IS 'What a profiler said of kernels that language models were asked to better, each kernel once, with the evaluation whose timings it went by; notes are lines of the prompt. failure: why there is no profile. Profiles guide mutation and never enter fitness.';

CREATE TABLE metrics (
    task      VARCHAR NOT NULL,
    kernel_id VARCHAR NOT NULL,
    metric    VARCHAR NOT NULL,
    value     DOUBLE NOT NULL,
    unit      VARCHAR
);
COMMENT ON TABLE metrics IS 'The figures of profiles.';

CREATE TABLE trials (
    request_id  VARCHAR NOT NULL,
    task        VARCHAR NOT NULL,
    source_id   VARCHAR NOT NULL,
    kernel_id   VARCHAR NOT NULL,
    values_json VARCHAR NOT NULL,
    status      VARCHAR NOT NULL,
    log_speedup DOUBLE,
    created_at  TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE trials IS 'Settings of tunables that tuning tried.';

CREATE TABLE baselines (
    task                  VARCHAR NOT NULL,
    workload              VARCHAR NOT NULL,
    kind                  VARCHAR NOT NULL CHECK (kind IN ('baseline', 'library')),
    latency_us            DOUBLE NOT NULL,
    log_ratio_to_baseline DOUBLE,
    log_ratio_se          DOUBLE
);
COMMENT ON TABLE baselines IS 'Per workload: the naive kernel (baseline) and the vendor''s best (library). log_ratio_to_baseline = ln(baseline time / its time).';

CREATE TABLE events (
    created_at  TIMESTAMPTZ NOT NULL,
    kind        VARCHAR NOT NULL,
    task        VARCHAR,
    detail_json VARCHAR NOT NULL
);
COMMENT ON TABLE events IS 'What else happened: sessions, lost workers, spent budgets.';


-- Views. A speedup is exp(log_speedup); an interval is +/- 1.96 standard errors of log_speedup.

-- Beware of a CTE that is read twice below a LIMIT: on 100,000 rows DuckDB 2.0.0 waits for ever without using any CPU.

CREATE VIEW verdicts AS
-- A duplicate is judged by what is known of its original now, not by what was known when it was found.
WITH judged AS (
    SELECT
        task, kernel_id, nullif(duplicate_of, kernel_id) AS duplicate_of,
        first_value(struct_pack(
            status := coalesce(inherited, status), level := level, log_speedup := log_speedup,
            log_speedup_se := log_speedup_se, cell := nullif(cell, ''), message := message, evaluation_id := evaluation_id
        )) OVER (
            PARTITION BY task, coalesce(duplicate_of, kernel_id)
            ORDER BY status = 'duplicate', list_position(['screen', 'full', 'confirmed'], level) DESC, created_at DESC, rowid DESC
        ) AS verdict
    FROM evaluations
    QUALIFY row_number() OVER (
        PARTITION BY task, kernel_id
        ORDER BY list_position(['screen', 'full', 'confirmed'], level) DESC, created_at DESC, rowid DESC
    ) = 1
)
SELECT
    task, kernel_id, verdict.status, verdict.level, verdict.log_speedup, verdict.log_speedup_se,
    exp(verdict.log_speedup) AS speedup,
    exp(verdict.log_speedup - 1.96 * verdict.log_speedup_se) AS speedup_low,
    exp(verdict.log_speedup + 1.96 * verdict.log_speedup_se) AS speedup_high,
    verdict.cell, duplicate_of, verdict.message, verdict.evaluation_id
FROM judged;
COMMENT ON VIEW verdicts IS 'Per task and kernel the verdict that counts: the most severe level (confirmed, full, screen), of those the latest; a duplicate has its original''s.';

CREATE VIEW individuals AS
WITH births AS (
    SELECT task, kernel_id, request_id, number, mutator, model, description, created_at
    FROM proposals
    WHERE kernel_id IS NOT NULL
    UNION ALL BY NAME
    SELECT task, kernel_id, created_at FROM evaluations WHERE request_id IS NULL
),
first_births AS (
    SELECT *
    FROM births
    QUALIFY row_number() OVER (PARTITION BY task, kernel_id ORDER BY created_at, number NULLS LAST) = 1
),
origins AS (
    SELECT request_id, arg_min(parent_id, position) AS parent_id, list(parent_id ORDER BY position) AS parents
    FROM parents
    GROUP BY request_id
)
SELECT
    b.task, b.kernel_id, origins.parent_id, origins.parents, b.request_id, b.number, b.mutator, b.model, b.description,
    b.created_at
FROM first_births AS b
LEFT JOIN origins ON origins.request_id = b.request_id;
COMMENT ON VIEW individuals IS 'Per task and kernel how it first came to be: the first request that proposed it, or none for a first ancestor.';

CREATE VIEW lineage AS
WITH RECURSIVE individual AS MATERIALIZED (SELECT * FROM individuals),
-- Pointer jumping: after step k every kernel points 2^k generations up, so that depth costs its logarithm.
jumps AS (
    SELECT
        0 AS step, child.task, child.kernel_id, parent.kernel_id AS target,
        CASE WHEN child.parent_id IS NULL THEN 0 ELSE 1 END::BIGINT AS distance
    FROM individual AS child
    LEFT JOIN individual AS parent
        -- A kernel brought over from another task is its own parent: nothing to follow here.
        ON parent.task = child.task AND parent.kernel_id = child.parent_id AND parent.kernel_id <> child.kernel_id
    UNION ALL
    SELECT near.step + 1, near.task, near.kernel_id, far.target, near.distance + coalesce(far.distance, 0)
    FROM jumps AS near
    LEFT JOIN jumps AS far ON far.task = near.task AND far.kernel_id = near.target
    WHERE near.step < 32 AND EXISTS (SELECT 1 FROM jumps WHERE target IS NOT NULL)
),
generations AS (
    SELECT task, kernel_id, distance AS generation
    FROM jumps
    WHERE step = (SELECT max(step) FROM jumps) AND target IS NULL
)
SELECT
    i.task, i.kernel_id, g.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at
FROM individual AS i
LEFT JOIN generations AS g USING (task, kernel_id)
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first), how it was made, its verdict (status NULL: none yet), and its generation along principal parents.';

CREATE VIEW elites AS
SELECT
    v.task, v.cell, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at
FROM verdicts AS v
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct' AND v.cell IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY v.task, v.cell ORDER BY v.log_speedup DESC, v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
) = 1;
COMMENT ON VIEW elites IS 'Per task and cell of the behaviour space the fastest correct kernel, and how it was made.';

CREATE VIEW best AS
SELECT
    v.task, v.kernel_id, v.level, v.speedup, v.speedup_low, v.speedup_high, v.log_speedup, v.log_speedup_se, v.cell,
    i.mutator, i.model, i.description, i.parents, i.request_id, v.evaluation_id, i.created_at
FROM verdicts AS v
LEFT JOIN individuals AS i USING (task, kernel_id)
WHERE v.status = 'correct'
QUALIFY row_number() OVER (
    PARTITION BY v.task ORDER BY v.log_speedup DESC, v.duplicate_of IS NOT NULL, i.created_at, v.kernel_id
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
)
SELECT
    p.task, p.request_id, p.number, p.mutator, p.model, p.kernel_id,
    i.parent_id,
    p.kernel_id IS NOT NULL AND i.request_id IS NOT DISTINCT FROM p.request_id AS is_new,
    child.duplicate_of IS NOT NULL AS is_duplicate,
    child.status, child.log_speedup,
    parent.status AS parent_status,
    child.log_speedup - parent.log_speedup AS gain,
    p.seconds, spent.cost_usd
FROM proposals AS p
LEFT JOIN individuals AS i USING (request_id)
LEFT JOIN verdicts AS child ON child.task = p.task AND child.kernel_id = i.kernel_id
LEFT JOIN verdicts AS parent ON parent.task = p.task AND parent.kernel_id = i.parent_id
LEFT JOIN spent USING (request_id);
COMMENT ON VIEW offspring IS 'Every proposal; if its child was new to the task (is_new) also its verdict and its gain over the principal parent, ln(parent time / child time), where both are correct.';

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
    sum(seconds) AS seconds,
    coalesce(sum(cost_usd), 0) AS cost_usd
FROM offspring
GROUP BY task, mutator;
COMMENT ON VIEW mutator_gain IS 'Per task and mutator: proposals, failures (no child), kernels new to the task, of those duplicates of known programs, correct ones, and improved ones (faster than the principal parent, or correct where it was not); gains in ln.';

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
    sum(seconds) AS seconds,
    coalesce(sum(cost_usd), 0) AS cost_usd
FROM offspring
WHERE model IS NOT NULL
GROUP BY task, model;
COMMENT ON VIEW model_gain IS 'As mutator_gain, per task and model.';

CREATE VIEW cost AS
SELECT
    model,
    count(*) AS calls,
    count(*) FILTER (status = 'failed') AS failed_calls,
    coalesce(sum(tokens_in), 0)::BIGINT AS tokens_in,
    coalesce(sum(tokens_out), 0)::BIGINT AS tokens_out,
    coalesce(sum(cost_usd), 0) AS cost_usd,
    coalesce(sum(attempts), 0)::BIGINT AS attempts,
    coalesce(sum(lost_tokens), 0)::BIGINT AS lost_tokens,
    coalesce(sum(lost_usd), 0) AS lost_usd,
    coalesce(sum(latency_s), 0) AS seconds
FROM llm_calls
GROUP BY model;
COMMENT ON VIEW cost IS 'Per model: calls, tokens, dollars, attempts, what attempts without a known end may have cost besides (lost), and seconds spent waiting.';

CREATE VIEW failures AS
WITH failed AS (
    SELECT v.task, v.status, v.message, i.created_at
    FROM verdicts AS v
    LEFT JOIN individuals AS i USING (task, kernel_id)
    WHERE v.status NOT IN ('correct', 'slower')
    UNION ALL
    SELECT task, 'no_child', failure, created_at FROM proposals WHERE kernel_id IS NULL
)
SELECT task, status, count(*) AS count, arg_max(nullif(message, ''), created_at) AS example
FROM failed
GROUP BY task, status;
COMMENT ON VIEW failures IS 'Per task and status how many kernels failed (no_child: proposals without a kernel; kernels that are only slower are no failures), and the latest message as an example.';
