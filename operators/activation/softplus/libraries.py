"""Libraries' calls for softplus."""

import numpy as np
import torch

from operators.libraries import call, own

LIBRARIES = (
    own("torch.nn.functional.softplus"),
    call("numpy.logaddexp", lambda x: np.logaddexp(x, x.dtype.type(0))),
    call("torch.logaddexp", lambda prepared, x: torch.logaddexp(x, prepared), prepare=lambda x: x.new_zeros(())),
)
