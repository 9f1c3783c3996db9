"""Libraries' calls for tanh."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.tanh"),
    direct("numpy.tanh", "x"),
    direct("cupy.tanh", "x"),
)
