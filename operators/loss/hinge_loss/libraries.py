"""Libraries' losses of this kind have margins and reductions of their own."""

from operators.libraries import own

LIBRARIES = (own("torch.relu", composed=True),)
