"""Evaluation workers: the pool of them, the order of its jobs, and the processes that do these."""
