"""Libraries' calls for the logarithm of softmax over rows."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.log_softmax"),
    direct("scipy.special.log_softmax", "x", axis=1),
    direct("cupyx.scipy.special.log_softmax", "x", axis=1),
)
