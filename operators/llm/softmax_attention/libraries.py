"""Libraries' calls for attention: torch's own choice of a kernel, each of its kernels, and two products."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from operators.libraries import NARROW, LibraryCall, call, own


def forced(name: str, backend: SDPBackend, *, dtypes: tuple[str, ...] = ()) -> LibraryCall:
    """Return the call with one of torch's kernels, which takes another one where it has the choice."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]

    name = f"torch.nn.functional.scaled_dot_product_attention ({name})"
    return call(name, attention, targets=("cuda",), dtypes=dtypes)


def products(q: Tensor, k: Tensor, v: Tensor, dim: int) -> Tensor:
    return torch.softmax(torch.mm(q, k.T).mul_(dim**-0.5), dim=1) @ v


LIBRARIES = (
    own("torch.nn.functional.scaled_dot_product_attention"),
    forced("cuDNN", SDPBackend.CUDNN_ATTENTION, dtypes=NARROW),
    forced("flash", SDPBackend.FLASH_ATTENTION, dtypes=NARROW),
    forced("memory-efficient", SDPBackend.EFFICIENT_ATTENTION),
    call("torch.softmax", products, composed=True),
)
