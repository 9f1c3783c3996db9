"""Computations of others as our operators: graphs of core ATen operators, read, evaluated and written as kernels."""
