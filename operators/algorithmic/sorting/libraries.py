"""Libraries' calls for sorting; CuPy's is Thrust's, a radix sort of whole arrays as torch's is."""

from operators.libraries import direct, own
from operators.shared import cub

LIBRARIES = (own("torch.sort"), cub.sort(), direct("numpy.sort", "x"), direct("cupy.sort", "x"))
