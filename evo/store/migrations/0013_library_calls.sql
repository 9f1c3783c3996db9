-- A kernel is compared with the fastest of several calls of vendors' libraries, which a row names.

ALTER TABLE library_timings ADD COLUMN library VARCHAR;
COMMENT ON COLUMN library_timings.library IS 'The call, as the library''s documentation names it; NULL in runs of older versions, which had one call an operator.';
ALTER TABLE library_timings ADD COLUMN composed BOOLEAN;
COMMENT ON COLUMN library_timings.composed IS 'Whether the library has no one call for it, so that several make the result.';
