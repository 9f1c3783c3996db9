"""Strategies against each other under one budget: `evo compare`."""
