"""Libraries' calls for softsign; in 16 bits torch would round the sum."""

from operators.libraries import NARROW, own

LIBRARIES = (own("torch.nn.functional.softsign", composed_in=NARROW),)
