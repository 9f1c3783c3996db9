"""Libraries' calls for a product of two triangular matrices: BLAS takes one of them for what it is."""

from typing import Any

import scipy.linalg

from operators.libraries import call, direct, own
from operators.shared.cublas import structured_product, tuned_product


def trmm(a: Any, b: Any, prepared: Any) -> Any:
    """Multiply the transposes, which lie in memory as BLAS has matrices."""
    return prepared(1.0, a.T, b.T, side=1, lower=0).T


LIBRARIES = (
    own("torch.mm"),
    tuned_product(lambda a, b: (a, b)),
    structured_product("lower"),
    call("scipy.linalg.blas.trmm", trmm, prepare=lambda a: scipy.linalg.get_blas_funcs("trmm", (a,))),
    direct("numpy.matmul", "a", "b"),
    direct("cupy.matmul", "a", "b"),
)
