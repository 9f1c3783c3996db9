import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, width, factor):
        super().__init__()
        self.linear = nn.Linear(features, width)
        self.factor = factor

    def forward(self, x):
        return nn.functional.gelu(self.linear(x)) * self.factor


batch = 4096
features, width = 65536, 32768
factor = 3


def get_inputs():
    return [torch.rand(batch, features) * 2 - 1]


def get_init_inputs():
    return [features, width, factor]
