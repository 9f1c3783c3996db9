"""Libraries' calls for swish."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.silu"),)
