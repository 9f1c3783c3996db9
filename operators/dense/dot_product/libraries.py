"""Libraries' calls for a dot product, whose result is fp32 in 16 bits too."""

import torch
from torch import Tensor

from operators.libraries import NARROW, call, direct, own


def gemm(x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(x[None], y[:, None], out_dtype=torch.float32)[0, 0]


LIBRARIES = (
    own("torch.dot", composed_in=NARROW),
    call("torch.mm (out_dtype)", gemm, targets=("cuda",), dtypes=NARROW),
    direct("numpy.dot", "x", "y"),
    direct("cupy.dot", "x", "y"),
)
