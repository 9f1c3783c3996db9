"""Runs simple CUDA kernels on the CPU: a tool for tests on machines without a GPU, not a target to search on.

It finds wrong indices, missing barriers, unwritten and uninitialised memory; not races between threads that run at the
same moment, and nothing about speed. Kernels are trusted: they are this project's own, or a test's.
"""
