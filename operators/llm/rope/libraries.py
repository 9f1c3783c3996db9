"""No library turns neighbours by angles that it computes itself."""

from operators.libraries import own

LIBRARIES = (own("torch.cos, torch.sin", composed=True),)
