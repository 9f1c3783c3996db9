"""Profilers of CUDA kernels: Nsight Compute, sanitizers and stall samples."""
