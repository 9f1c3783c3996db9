-- Tables are append-only: no row is ever changed or removed, and there are no keys or indexes (DuckDB's secondary
-- indexes cost every append, and their replay after a crash has had bugs). The driver writes each id once.

CREATE TABLE runs (
    run_id         VARCHAR NOT NULL,
    created_at     TIMESTAMPTZ NOT NULL,
    engine_version VARCHAR NOT NULL,
    seed           BIGINT NOT NULL,
    config_json    VARCHAR NOT NULL,
    host_json      VARCHAR NOT NULL,
    comparison     VARCHAR,
    arm            VARCHAR
);
COMMENT ON TABLE runs IS 'The run itself, one row; its sessions are in events. comparison and arm: of a run that is a cell of one (evo compare); NULL for any other.';

CREATE TABLE kernels (
    kernel_id   VARCHAR NOT NULL,
    source_id   VARCHAR NOT NULL,
    operator    VARCHAR NOT NULL,
    target      VARCHAR NOT NULL,
    source      VARCHAR NOT NULL,
    values_json VARCHAR NOT NULL
);
COMMENT ON TABLE kernels IS 'Every kernel ever proposed, and every draft of a dialogue, once. source_id is shared by all settings of one file''s tunables.';

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

CREATE TABLE migrations (
    task          VARCHAR NOT NULL,
    number        BIGINT NOT NULL,
    kernel_id     VARCHAR NOT NULL,
    source_island INTEGER NOT NULL,
    island        INTEGER NOT NULL,
    kind          VARCHAR NOT NULL,
    outcome       VARCHAR NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE migrations IS 'Kernels that one island (source_island) offered to another one (island) that had them not; the view migrants says what came of them.';

CREATE TABLE proposals (
    request_id   VARCHAR NOT NULL,
    task         VARCHAR NOT NULL,
    number       BIGINT NOT NULL,
    mutator      VARCHAR NOT NULL,
    model        VARCHAR,
    kernel_id    VARCHAR,
    is_new       BOOLEAN NOT NULL,
    generation   INTEGER NOT NULL,
    parents      VARCHAR[] NOT NULL,
    description  VARCHAR,
    failure      VARCHAR,
    seconds      DOUBLE NOT NULL,
    evaluate_s   DOUBLE NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    kind         VARCHAR,
    role         VARCHAR,
    text         VARCHAR,
    metrics_json VARCHAR,
    author       VARCHAR,
    source_task  VARCHAR,
    island       INTEGER
);
COMMENT ON TABLE proposals IS 'Answers to requests: a child (kernel_id), words (text), metrics of a profiler (metrics_json), or why there is none of them (failure). kind: ancestor, child, trial, say or profile; role: what a model was called for, where that is not the mutator. is_new: no request told before had this child in its task. generation: 0 without parents, else one more than the highest of theirs. parents: the principal one first. seconds: of proposing; evaluate_s: of evaluators, all levels.';
COMMENT ON COLUMN proposals.author IS 'Who gave the answer from outside that led to it, or wrote the guest. NULL: none from outside.';
COMMENT ON COLUMN proposals.source_task IS 'The task that the principal parent is a kernel of, where that is another one; the other parents are of the proposal''s own task.';
COMMENT ON COLUMN proposals.island IS 'The island that the request was made for and its child belongs to, from 0 on. NULL: the strategy has none, or it is a guest''s.';

CREATE TABLE llm_calls (
    call_id         VARCHAR NOT NULL,
    request_id      VARCHAR NOT NULL,
    role            VARCHAR NOT NULL,
    model           VARCHAR NOT NULL,
    messages_json   VARCHAR NOT NULL,
    answer          VARCHAR,
    tokens_in       BIGINT,
    tokens_out      BIGINT,
    cost_usd        DOUBLE,
    attempts        INTEGER,
    lost_tokens     BIGINT,
    lost_usd        DOUBLE,
    latency_s       DOUBLE,
    status          VARCHAR NOT NULL,
    heard           BOOLEAN GENERATED ALWAYS AS (status IN ('answered', 'cut', 'refused')) VIRTUAL,
    error           VARCHAR,
    cache_key       VARCHAR NOT NULL,
    sample          INTEGER NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    usage_json      VARCHAR,
    usage_doubt     VARCHAR,
    author          VARCHAR,
    tool_calls_json VARCHAR,
    thoughts_json   VARCHAR
);
COMMENT ON TABLE llm_calls IS 'Every call of a language model, retries included and failed ones too; cache_key and sample find the answer again. status: answered, cut, refused, failed, unavailable (the model could not be asked at all and was put aside), or withdrawn (a question to a model outside that was taken back, to be asked anew about faster kernels). usage_json: what the provider said of tokens; usage_doubt: why tokens_in and tokens_out are not that (empty: they are). lost_tokens and lost_usd: upper bounds of what attempts without a known end were billed besides; the view cost says what is likely.';
COMMENT ON COLUMN llm_calls.author IS 'Who gave an answer from outside, as far as that was told.';
COMMENT ON COLUMN llm_calls.tool_calls_json IS 'The tools that the answer calls, in order: id, name, and arguments as the model wrote them. NULL: none.';
COMMENT ON COLUMN llm_calls.thoughts_json IS 'Of an answer that calls tools, the thoughts that its provider gave with it, as they are sent back: thinking_blocks (signed) or reasoning_content. NULL: none.';

CREATE TABLE llm_sent (
    request_id    VARCHAR NOT NULL,
    role          VARCHAR NOT NULL,
    model         VARCHAR NOT NULL,
    cache_key     VARCHAR NOT NULL,
    sample        INTEGER NOT NULL,
    most_in       BIGINT NOT NULL,
    most_tokens   BIGINT NOT NULL,
    most_usd      DOUBLE NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    messages_json VARCHAR
);
COMMENT ON TABLE llm_sent IS 'Calls of language models, written before they are sent, with the most that one attempt may cost: what is not in llm_calls in the end was cut off by the end of its process, and counts as lost. messages_json: of questions to models outside, which wait for an answer that is told (the view questions); nothing of theirs is ever lost.';

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
COMMENT ON TABLE evaluations IS 'Verdicts, at most a few per kernel: levels screen, full, confirmed. log_speedup = ln(baseline time / kernel time) = anchor_log_speedup + log_ratio. request_id is NULL for examinations that no request asked for: the last confirmations, the latest of which outranks all else. is_verdict: for those, and for the most severe level of the first request for the kernel in its task that led to a verdict: none of what was only measured in bad seconds.';

CREATE TABLE fits (
    task            VARCHAR NOT NULL,
    kernel_ids      VARCHAR[] NOT NULL,
    log_speedups    DOUBLE[] NOT NULL,
    log_speedup_ses DOUBLE[] NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE fits IS 'Log speedups of a task''s kernels that are not confirmed, fitted jointly to all paired ratios known by then, with their standard errors: what a confirmation says of one kernel moves those that were timed beside it. A row holds all of them; the latest of a task counts, see the view verdicts.';

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
COMMENT ON TABLE tells IS 'What the strategy was told, in the order of seq. status: the verdict, or no_child, said, profiled, no_answer, unavailable. seconds: of an evaluator, until the screening verdict; cost_usd: of language models.';

CREATE TABLE timings (
    evaluation_id     VARCHAR NOT NULL,
    workload          VARCHAR NOT NULL,
    latency_us        DOUBLE NOT NULL,
    anchor_latency_us DOUBLE NOT NULL,
    log_ratio         DOUBLE NOT NULL,
    log_ratio_se      DOUBLE NOT NULL,
    pairs             INTEGER NOT NULL
);
COMMENT ON TABLE timings IS 'Per workload: a kernel measured in pairs with its anchor. latency_us: median of the kernel''s samples; log_ratio = ln(anchor time / kernel time) over the pairs = ln(anchor_latency_us / latency_us).';

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
    worker        VARCHAR,
    created_at    TIMESTAMPTZ NOT NULL,
    seq           BIGINT NOT NULL
);
COMMENT ON TABLE profiles IS 'What a profiler said of kernels that language models were asked to better, each kernel once, with the evaluation whose timings it went by; notes are lines of the prompt. failure: why there is no profile. Profiles guide mutation and never enter fitness.';
COMMENT ON COLUMN profiles.seq IS 'When it was there for prompts, in the count of asks and tells.';

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

CREATE TABLE events (
    created_at  TIMESTAMPTZ NOT NULL,
    kind        VARCHAR NOT NULL,
    task        VARCHAR,
    detail_json VARCHAR NOT NULL
);
COMMENT ON TABLE events IS 'What else happened: sessions, lost workers, spent budgets.';

CREATE TABLE library_timings (
    evaluation_id      VARCHAR NOT NULL,
    workload           VARCHAR NOT NULL,
    latency_us         DOUBLE NOT NULL,
    library_latency_us DOUBLE NOT NULL,
    log_ratio          DOUBLE NOT NULL,
    log_ratio_se       DOUBLE NOT NULL,
    pairs              INTEGER NOT NULL,
    library            VARCHAR,
    kind               VARCHAR,
    untried            VARCHAR
);
COMMENT ON TABLE library_timings IS 'Per workload: a kernel that was confirmed, measured in pairs with the vendor''s library. latency_us as in timings; log_ratio = ln(library time / kernel time) = ln(library_latency_us / latency_us).';
COMMENT ON COLUMN library_timings.library IS 'The call, as the library''s documentation names it.';
COMMENT ON COLUMN library_timings.kind IS 'Class of the call: call (one of a vendor''s), compiled (torch.compile of an expression), converted (it gets an operand in another form, untimed), composed (several calls, since the library has no one for it).';
COMMENT ON COLUMN library_timings.untried IS 'Names of rivals that were not tried, for want of minutes, memory or a package: one of these may be faster. NULL: none.';

CREATE TABLE tool_calls (
    tool_key       VARCHAR NOT NULL,
    task           VARCHAR NOT NULL,
    request_id     VARCHAR NOT NULL,
    number         INTEGER NOT NULL,
    tool           VARCHAR NOT NULL,
    arguments_json VARCHAR NOT NULL,
    kernel_id      VARCHAR,
    evaluation_id  VARCHAR,
    failed         BOOLEAN NOT NULL,
    text           VARCHAR NOT NULL,
    change         VARCHAR,
    bases          VARCHAR[],
    evaluations    INTEGER NOT NULL,
    seconds        DOUBLE NOT NULL,
    worker         VARCHAR,
    unsaid_json    VARCHAR,
    created_at     TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE tool_calls IS 'What the dialogue of a request had done on its workbench, in the order of number: a draft built, checked, judged, profiled, something read. text: what the model was told. kernel_id: the draft, whose file is in kernels whether it was handed in or not. evaluation_id: of a draft that was judged (evaluations.is_verdict is false for it). change: what its author says of a draft that it hands in, and bases, of which kernels that draft was made. evaluations: charged to the budget; seconds: of evaluation workers.';
