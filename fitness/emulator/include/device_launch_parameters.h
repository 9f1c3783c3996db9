// All that it declares for kernels is there already.
