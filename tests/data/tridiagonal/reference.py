import torch
from torch import Tensor


def reference(a: Tensor, b: Tensor, c: Tensor, d: Tensor, n: int) -> Tensor:
    upper, right = [c[:, 0] / b[:, 0]], [d[:, 0] / b[:, 0]]
    for i in range(1, n):
        pivot = b[:, i] - a[:, i] * upper[-1]
        upper.append(c[:, i] / pivot)
        right.append((d[:, i] - a[:, i] * right[-1]) / pivot)
    x = [right[-1]]
    for i in reversed(range(n - 1)):
        x.append(right[i] - upper[i] * x[-1])
    return torch.stack(x[::-1], dim=1)


def magnitude(a: Tensor, b: Tensor, c: Tensor, d: Tensor, n: int) -> Tensor:
    return reference(-a.abs(), b, -c.abs(), d.abs(), n)  # nothing cancels: every sum as large as it may be inside
