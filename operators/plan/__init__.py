"""Plans of kernels: what the header of a kernel file declares, and what it comes to for one workload."""
