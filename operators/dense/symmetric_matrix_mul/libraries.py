"""Libraries' calls for a product with a symmetric matrix."""

from typing import Any

import scipy.linalg

from operators.libraries import call, direct, own
from operators.shared.cublas import structured_product, tuned_product


def symm(a: Any, b: Any, prepared: Any) -> Any:
    """Multiply the transposes, which lie in memory as BLAS has matrices."""
    return prepared(1.0, a.T, b.T, side=1).T


LIBRARIES = (
    own("torch.mm"),
    tuned_product(lambda a, b: (a, b)),
    structured_product("symmetric"),
    call("scipy.linalg.blas.symm", symm, prepare=lambda a: scipy.linalg.get_blas_funcs("symm", (a,))),
    direct("numpy.matmul", "a", "b"),
    direct("cupy.matmul", "a", "b"),
)
