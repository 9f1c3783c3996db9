-- The vendor's library is paired with a kernel that is confirmed, beside the baseline: its one early measurement, in
-- baselines, was another one in every run.

CREATE TABLE library_timings (
    evaluation_id      VARCHAR NOT NULL,
    workload           VARCHAR NOT NULL,
    latency_us         DOUBLE NOT NULL,
    library_latency_us DOUBLE NOT NULL,
    log_ratio          DOUBLE NOT NULL,
    log_ratio_se       DOUBLE NOT NULL,
    pairs              INTEGER NOT NULL
);
COMMENT ON TABLE library_timings IS 'Per workload: a kernel that was confirmed, measured in pairs with the vendor''s library. latency_us as in timings; log_ratio = ln(library time / kernel time) = ln(library_latency_us / latency_us).';

COMMENT ON TABLE timings IS 'Per workload: a kernel measured in pairs with its anchor. latency_us: median of the kernel''s samples; log_ratio = ln(anchor time / kernel time) over the pairs = ln(anchor_latency_us / latency_us), in older runs about.';
COMMENT ON TABLE baselines IS 'Of runs that an older version began, per workload: the naive kernel (baseline) and the vendor''s best (library), once, early in the run. Now see library_timings.';
