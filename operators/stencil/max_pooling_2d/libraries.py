"""Libraries' calls for pooling."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.max_pool2d"),)
