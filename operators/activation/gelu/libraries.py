"""Libraries' calls for gelu."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.gelu"),)
