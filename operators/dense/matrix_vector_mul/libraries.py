"""Libraries' calls for a matrix times a vector."""

import torch

from operators.libraries import call, direct, own

LIBRARIES = (
    own("torch.mv"),
    call("torch.mm", lambda a, x: torch.mm(a, x[:, None])[:, 0]),
    direct("numpy.dot", "a", "x"),
    direct("cupy.dot", "a", "x"),
)
