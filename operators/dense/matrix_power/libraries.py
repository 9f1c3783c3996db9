"""Libraries' calls for a power of a matrix, which is several products in all of them."""

from operators.libraries import NARROW, direct, own

LIBRARIES = (
    own("torch.linalg.matrix_power", composed_in=NARROW),
    direct("numpy.linalg.matrix_power", "a", "power"),
    direct("cupy.linalg.matrix_power", "a", "power"),
)
