"""Libraries' calls for the reverse."""

from operators.libraries import call, own

LIBRARIES = (
    own("torch.flip"),
    call("numpy.flip", lambda x: x[::-1].copy()),
    call("cupy.flip", lambda x: x[::-1].copy()),
)
