"""Libraries' calls for a mean of squares."""

from operators.libraries import NARROW, own

LIBRARIES = (own("torch.nn.functional.mse_loss", composed_in=NARROW),)
