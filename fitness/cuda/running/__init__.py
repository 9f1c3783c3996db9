"""Processes that run kernels on a GPU, and what a launch needs there."""
