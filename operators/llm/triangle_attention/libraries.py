"""No library has attention of elements."""

from operators.libraries import own

LIBRARIES = (own("torch.softmax", composed=True),)
