"""Libraries' calls for sorting; CuPy's is Thrust's, a radix sort of whole arrays as torch's is."""

from operators.libraries import direct, own

LIBRARIES = (own("torch.sort"), direct("numpy.sort", "x"), direct("cupy.sort", "x"))
