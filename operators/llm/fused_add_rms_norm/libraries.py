"""No library adds and normalizes at once."""

from torch import Tensor

from operators.libraries import call, own, rival_module


def liger(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
    module = rival_module("liger_kernel.ops.fused_add_rms_norm")
    normalized, total, *_ = module.fused_add_rms_norm_forward(x, residual, weight, eps, 0.0, "gemma")
    return {"residual": total, "x": normalized}


LIBRARIES = (
    own("torch.nn.functional.rms_norm", composed=True),
    call("liger_kernel.ops.fused_add_rms_norm.fused_add_rms_norm_forward", liger, targets=("cuda",)),
)
