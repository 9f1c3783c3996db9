"""Libraries have the gate's function alone."""

from torch import Tensor

from operators.libraries import call, own, rival_module


def liger(x: Tensor) -> Tensor:
    found: Tensor = rival_module("liger_kernel.ops.swiglu").swiglu_fused_gate_up_forward(x)[1]
    return found


LIBRARIES = (
    own("torch.nn.functional.silu", composed=True),
    call("liger_kernel.ops.swiglu.swiglu_fused_gate_up_forward", liger, targets=("cuda",)),
)
