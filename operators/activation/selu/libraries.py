"""Libraries' calls for selu with constants of its own, which no library takes."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.elu", composed=True),)
