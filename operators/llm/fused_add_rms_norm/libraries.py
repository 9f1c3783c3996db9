"""No library adds and normalizes at once."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.rms_norm", composed=True),)
