"""Libraries' calls for normalization of rows."""

from torch import Tensor

from operators.libraries import call, own, rival_module


def liger(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    found: Tensor = rival_module("liger_kernel.ops.layer_norm").layer_norm_forward(x, weight, bias, eps)[0]
    return found


LIBRARIES = (
    own("torch.nn.functional.layer_norm"),
    call("liger_kernel.ops.layer_norm.layer_norm_forward", liger, targets=("cuda",)),
)
