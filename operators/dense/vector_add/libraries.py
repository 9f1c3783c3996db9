"""Libraries' calls for a sum of vectors."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.add"),
    direct("numpy.add", "x", "y"),
    direct("cupy.add", "x", "y"),
)
