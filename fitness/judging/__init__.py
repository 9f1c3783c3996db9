"""The verdict: the levels that a kernel passes, paired timing, and what it is compared with."""
