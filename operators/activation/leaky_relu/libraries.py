"""Libraries' calls for leaky relu."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.leaky_relu"),)
