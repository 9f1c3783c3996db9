"""Libraries' calls for the piecewise linear sigmoid."""

from operators.libraries import own

LIBRARIES = (own("torch.nn.functional.hardsigmoid"),)
