"""Libraries' calls for batch normalization; in 16 bits its weights must be fp32, which is done before."""

import torch
from torch import Tensor

from operators.libraries import NARROW, call, own


def wide(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return weight.float(), bias.float()


def narrow(x: Tensor, prepared: tuple[Tensor, Tensor], eps: float) -> Tensor:
    return torch.nn.functional.batch_norm(x, None, None, *prepared, training=True, eps=eps)


LIBRARIES = (
    own("torch.nn.functional.batch_norm", composed_in=NARROW),
    call("torch.nn.functional.batch_norm (fp32 weights)", narrow, prepare=wide, dtypes=NARROW),
)
