"""Runs CUDA kernels on the CPU: for tests without a GPU and for a first look at drafts, never for a verdict.

It finds wrong indices, missing barriers, unwritten and uninitialised memory, swapped registers of fragments and copies
that were not waited for; not races between threads that run at the same moment, and nothing about speed. Inline PTX is
said again in C++ (`ptx`), tensor cores (mma.sync, ldmatrix) and asynchronous copies among it; TMA, mbarrier and wgmma
are not, nor are CUB, CuTe and wmma. `look` goes over small shapes, routes and tunables while an author waits.

Calls are confined as those of the cpu target are (`fitness/cpu/runner.cpp`), and what would run when a library is
loaded is refused; a kernel may still fool the emulation, on which only advice depends.
"""
