"""Libraries' calls for this product; on a GPU cuBLAS's by two ways."""

from operators.libraries import direct, own

LIBRARIES = (
    own("torch.matmul"),
    direct("numpy.matmul", "a", "b"),
    direct("cupy.matmul", "a", "b"),
)
