"""Libraries' calls for the piecewise linear tanh."""

from operators.libraries import call, own

LIBRARIES = (
    own("torch.nn.functional.hardtanh"),
    call("torch.clamp", lambda x: x.clamp(-1, 1)),
    call("numpy.clip", lambda x: x.clip(-1, 1)),
    call("cupy.clip", lambda x: x.clip(-1, 1)),
)
