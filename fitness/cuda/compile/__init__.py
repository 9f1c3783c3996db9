"""From a CUDA kernel file to machine code, and what can be read from that."""
