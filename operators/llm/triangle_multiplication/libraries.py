"""No library has the whole update; these are the calls of torch that make it."""

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from operators.libraries import call, own


def stacked(
    prepared: Tensor, x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor,
    out_norm_weight: Tensor, out_norm_bias: Tensor, out_weight: Tensor, dim: int, hidden: int, eps: float,
) -> Tensor:  # fmt: skip
    """All projections are one product, and the channels of both sides matrices."""
    z = layer_norm(x, (dim,), norm_weight, norm_bias, eps) @ prepared
    values, gates, out_gate = torch.split(z, [2 * hidden, 2 * hidden, hidden], dim=-1)
    sides = (values * torch.sigmoid(gates) * mask[..., None]).movedim(-1, 1)
    left, right = torch.split(sides.contiguous(), hidden, dim=1)
    product = torch.matmul(left, right.mT).movedim(1, -1).contiguous()
    normed = layer_norm(product, (hidden,), out_norm_weight, out_norm_bias, eps)
    return (normed * torch.sigmoid(out_gate)) @ out_weight.T


def transposed(
    left_weight: Tensor, right_weight: Tensor, left_gate: Tensor, right_gate: Tensor, out_gate: Tensor
) -> Tensor:
    return torch.cat((left_weight, right_weight, left_gate, right_gate, out_gate)).T.contiguous()


LIBRARIES = (
    own("torch.einsum", composed=True),
    call("torch.matmul", stacked, prepare=transposed, composed=True, converted=True),
)
