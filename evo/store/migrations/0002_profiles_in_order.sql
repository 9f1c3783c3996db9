-- Profiles are taken beside the search and serve the questions that are asked after them: when one was there is a part
-- of the run's history, in the same count as asks and tells.
ALTER TABLE profiles ADD COLUMN seq BIGINT;
COMMENT ON COLUMN profiles.seq IS 'When it was there for prompts, in the count of asks and tells. NULL, in runs of before: from the first question on.';
