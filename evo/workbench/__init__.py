"""Tools for those who write kernels: language models in a dialogue, and clients of other programs.

`bench.Workbench` has them as methods over narrow interfaces, with schemas of their arguments and texts of
bounded length (`tools`).
"""
