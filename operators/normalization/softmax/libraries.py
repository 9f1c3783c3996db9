"""Libraries' calls for softmax over rows."""

from torch import Tensor

from operators.libraries import call, direct, own, rival_module


def liger(x: Tensor) -> Tensor:
    found: Tensor = rival_module("liger_kernel.ops.softmax")._softmax_forward(x)[0]
    return found


LIBRARIES = (
    own("torch.softmax"),
    call("liger_kernel.ops.softmax.LigerSoftmaxFunction", liger, targets=("cuda",)),
    direct("scipy.special.softmax", "x", axis=1),
    direct("cupyx.scipy.special.softmax", "x", axis=1),
)
