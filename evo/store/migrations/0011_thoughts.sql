-- What a model thought before it called tools: providers want it back in the conversation that goes on.

ALTER TABLE llm_calls ADD COLUMN thoughts_json VARCHAR;
COMMENT ON COLUMN llm_calls.thoughts_json IS 'Of an answer that calls tools, the thoughts that its provider gave with it, as they are sent back: thinking_blocks (signed) or reasoning_content. NULL: none.';
