"""Libraries' calls for normalization of rows."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.layer_norm"),)
