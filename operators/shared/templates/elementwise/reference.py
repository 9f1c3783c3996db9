"""A square and one more: put what your operator computes in its place."""

import torch
from torch import Tensor

from operators.shared.elementwise import relations as relations


def reference(x: Tensor) -> Tensor:  # in fp64
    return x * x + 1


def library(x: Tensor) -> Tensor:  # in the task's own type; leave it out where no vendor has it
    return torch.addcmul(torch.ones_like(x), x, x)


def magnitude(x: Tensor) -> Tensor:  # the size of what is rounded on the way; needed where sums may cancel
    return x * x + 1
