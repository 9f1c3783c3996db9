"""Libraries' calls for elu."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.elu"),)
