"""A gated RMS norm, and the function that computes it."""

import math

import torch
from torch import nn

from .constants import LEAST

_announced: list[str] = []


def normalized(x, eps):
    """The rows, each divided by its root mean square."""
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)


def gated_norm(x, gate, weight, eps=LEAST):
    """A gated norm of rows."""
    return normalized(x, eps) * weight * torch.sigmoid(gate)


class GatedNorm(nn.Module):
    """A layer with a weight for each column."""

    def __init__(self, width, eps=LEAST):
        """It begins with weights of one."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps
        self.scale = 1 / math.sqrt(width)

    def forward(self, x, gate):
        """Apply the norm."""
        return gated_norm(x, gate, self.weight, eps=self.eps)
