"""Libraries' calls for this product; on a GPU cuBLAS's by two ways."""

from operators.libraries import call, own

LIBRARIES = (
    own("torch.mm"),
    call("numpy.matmul", lambda a, b: a @ b.T),
    call("cupy.matmul", lambda a, b: a @ b.T),
)
