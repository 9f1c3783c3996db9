"""Libraries' calls for a matrix times a number."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.mul"),
    direct("numpy.multiply", "x", "alpha"),
    direct("cupy.multiply", "x", "alpha"),
)
