"""Libraries have the gate's function alone."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.silu", composed=True),)
