"""Numbers that layers share."""

LEAST = 1e-6
