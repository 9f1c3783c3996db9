-- What dialogues had done before they answered: answers that call tools, and what became of these calls.

ALTER TABLE llm_calls ADD COLUMN tool_calls_json VARCHAR;
COMMENT ON COLUMN llm_calls.tool_calls_json IS 'The tools that the answer calls, in order: id, name, and arguments as the model wrote them. NULL: none.';

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
    unsaid_json    VARCHAR,
    created_at     TIMESTAMPTZ NOT NULL
);
COMMENT ON TABLE tool_calls IS 'What the dialogue of a request had done on its workbench, in the order of number: a draft built, checked, judged, profiled, something read. text: what the model was told. kernel_id: the draft, whose file is in kernels whether it was handed in or not. evaluation_id: of a draft that was judged (evaluations.is_verdict is false for it). change: what its author says of a draft that it hands in, and bases, of which kernels that draft was made. evaluations: charged to the budget; seconds: of evaluation workers.';
COMMENT ON TABLE kernels IS 'Every kernel ever proposed, and every draft of a dialogue, once. source_id is shared by all settings of one file''s tunables.';
