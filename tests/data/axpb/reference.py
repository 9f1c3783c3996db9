from torch import Tensor


def reference(x: Tensor, b: Tensor, alpha: float) -> Tensor:
    return alpha * x + b


def magnitude(x: Tensor, b: Tensor, alpha: float) -> Tensor:
    return abs(alpha) * x.abs() + b.abs()


def library(x: Tensor, b: Tensor, alpha: float) -> Tensor:
    return b.add(x, alpha=alpha)
