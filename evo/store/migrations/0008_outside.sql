-- Answers may come from outside: their questions are kept whole until then, and authors are named.

ALTER TABLE llm_sent ADD COLUMN messages_json VARCHAR;
COMMENT ON TABLE llm_sent IS 'Calls of language models, written before they are sent, with the most that one attempt may cost: what is not in llm_calls in the end was cut off by the end of its process, and counts as lost. messages_json: of questions to models outside, which wait for an answer that is told (the view questions); nothing of theirs is ever lost.';

ALTER TABLE llm_calls ADD COLUMN author VARCHAR;
COMMENT ON COLUMN llm_calls.author IS 'Who gave an answer from outside, as far as that was told.';

ALTER TABLE proposals ADD COLUMN author VARCHAR;
COMMENT ON COLUMN proposals.author IS 'Who gave the answer from outside that led to it, or wrote the guest. NULL: nobody outside.';

CREATE VIEW questions AS
SELECT s.cache_key, s.request_id, s.role, s.model, s.sample, s.messages_json, s.most_tokens, s.created_at
FROM llm_sent AS s
WHERE s.messages_json IS NOT NULL AND s.cache_key NOT IN (SELECT cache_key FROM llm_calls)
ORDER BY s.rowid;
COMMENT ON VIEW questions IS 'Questions that wait for an answer from outside, the oldest first; cache_key is the custom_id of evo ask and evo tell.';

CREATE OR REPLACE VIEW individuals AS
SELECT
    task, kernel_id, parents[1] AS parent_id, parents, generation, request_id, number, mutator, model, description,
    created_at, author
FROM proposals
WHERE is_new;
COMMENT ON VIEW individuals IS 'Per task and kernel how it first came to be: the first request that proposed it. parent_id: the principal parent. author: who gave it, if it came from outside.';

CREATE OR REPLACE VIEW lineage AS
SELECT
    i.task, i.kernel_id, i.generation, i.parent_id, i.parents, i.request_id, i.number, i.mutator, i.model,
    i.description, v.status, v.level, v.log_speedup, v.speedup, v.speedup_low, v.speedup_high, v.cell, v.duplicate_of,
    i.created_at, i.author
FROM individuals AS i
LEFT JOIN verdicts AS v USING (task, kernel_id);
COMMENT ON VIEW lineage IS 'Every individual: parents (principal first), how it was made, its verdict (status NULL: none yet), and its generation: 0 for a first ancestor, else one more than the highest of its parents. author: who gave it, if it came from outside.';
