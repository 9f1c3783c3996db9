"""The runtime that packages of kernels carry: loaders, and a test with its cases."""
