"""A fuzzer of everything by which something of a candidate's gets into the engine; `python -m tests.bench.fuzz`."""
