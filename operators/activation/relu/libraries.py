"""Libraries' calls for relu."""

import numpy as np

from operators.libraries import call, own

LIBRARIES = (
    own("torch.relu"),
    call("numpy.maximum", lambda x: np.maximum(x, 0)),
    call("cupy.clip", lambda x: x.clip(0)),
)
