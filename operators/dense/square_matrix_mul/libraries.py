"""Libraries' calls for this product; on a GPU cuBLAS's by two ways."""

from operators.libraries import direct, own
from operators.shared.cublas import tuned_product

LIBRARIES = (
    own("torch.mm"),
    tuned_product(lambda a, b: (a, b)),
    direct("numpy.matmul", "a", "b"),
    direct("cupy.matmul", "a", "b"),
)
