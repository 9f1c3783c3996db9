"""Libraries' calls for softmax over rows."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.softmax"),
    direct("scipy.special.softmax", "x", axis=1),
    direct("cupyx.scipy.special.softmax", "x", axis=1),
)
