"""Libraries' calls for the logistic function."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.sigmoid"),
    direct("scipy.special.expit", "x"),
    direct("cupyx.scipy.special.expit", "x"),
)
