"""Libraries' calls for attention: torch's own choice of a kernel, and cuDNN's."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from operators.libraries import NARROW, call, own


def cudnn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def products(q: Tensor, k: Tensor, v: Tensor, dim: int) -> Tensor:
    return torch.softmax(torch.mm(q, k.T).mul_(dim**-0.5), dim=1) @ v


LIBRARIES = (
    own("torch.nn.functional.scaled_dot_product_attention"),
    call("torch.nn.functional.scaled_dot_product_attention (cuDNN)", cudnn, targets=("cuda",), dtypes=NARROW),
    call("torch.softmax", products, composed=True),
)
