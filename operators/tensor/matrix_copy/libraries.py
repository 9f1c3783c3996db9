"""Libraries' calls for a copy."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.clone"),
    direct("numpy.copy", "x"),
    direct("cupy.copy", "x"),
)
