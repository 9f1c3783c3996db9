"""Libraries' calls for this product; on a GPU cuBLAS's by two ways."""

from operators.libraries import call, own
from operators.shared.cublas import tuned_product

LIBRARIES = (
    own("torch.mm"),
    tuned_product(lambda a, b: (a.T, b.T)),
    call("numpy.matmul", lambda a, b: a.T @ b.T),
    call("cupy.matmul", lambda a, b: a.T @ b.T),
)
