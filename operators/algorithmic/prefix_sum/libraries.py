"""Libraries' calls for sums of all that is before; CuPy's is CUB's scan."""

from operators.libraries import NARROW, direct, own
from operators.shared import cub

LIBRARIES = (
    own("torch.cumsum", composed_in=NARROW),
    cub.scan(),
    direct("numpy.cumsum", "x"),
    direct("cupy.cumsum", "x"),
)
