"""Libraries' calls for a mean times a length."""

from operators.libraries import call, own

LIBRARIES = (
    own("torch.mean", composed=True),
    call("numpy.mean", lambda samples, low, high: (high - low) * samples.mean(), composed=True),
    call("cupy.mean", lambda samples, low, high: (high - low) * samples.mean(), composed=True, dtypes=("fp32", "fp64")),
)
