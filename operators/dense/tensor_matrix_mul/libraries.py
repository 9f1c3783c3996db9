"""Libraries' calls for this product; on a GPU cuBLAS's by two ways."""

from operators.libraries import direct, own
from operators.shared.cublas import tuned_product

LIBRARIES = (
    own("torch.matmul"),
    tuned_product(lambda a, b: (a.flatten(0, 1), b, (*a.shape[:2], b.shape[1]))),
    direct("numpy.matmul", "a", "b"),
    direct("cupy.matmul", "a", "b"),
)
