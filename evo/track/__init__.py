"""News of a run for others: trackers, notices, a log; read from its store, in a process of its own.

`news` reads what is new, `sinks` has those who take it, `trackers` the clients of MLflow, W&B, Trackio and
OpenTelemetry, `follower` the loop between them. Nothing here is in a search's way: one that is slow or down misses
nothing but time.
"""
