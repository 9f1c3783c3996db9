from torch import Tensor


def reference(q: Tensor, keys: Tensor) -> Tensor:
    return q @ keys.T


def magnitude(q: Tensor, keys: Tensor) -> Tensor:
    return q.abs() @ keys.abs().T
