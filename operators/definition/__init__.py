"""Definitions of operators: what `operator.toml` says, read, checked and as data."""
