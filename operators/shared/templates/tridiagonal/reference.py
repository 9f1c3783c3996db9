"""Tridiagonal systems, by Thomas' elimination: put what your operator computes in its place."""

import numpy as np
import torch
from torch import Tensor

from operators.relations import Relation, permuted, scaled


def reference(a: Tensor, c: Tensor, shift: Tensor, d: Tensor) -> Tensor:  # in fp64
    systems, n = d.shape
    upper, right = d.new_zeros(systems), d.new_zeros(systems)
    uppers, rights = [], []
    for i in range(n):
        pivot = a[:, i] + c[:, i] + shift[:, i] - a[:, i] * upper
        right = (d[:, i] + a[:, i] * right) / pivot
        upper = c[:, i] / pivot
        uppers.append(upper)
        rights.append(right)
    x = [d.new_zeros(systems)]
    for i in reversed(range(n)):
        x.append(rights[i] + uppers[i] * x[-1])
    return torch.stack(x[:0:-1], dim=1)


def magnitude(a: Tensor, c: Tensor, shift: Tensor, d: Tensor) -> Tensor:
    """|A^-1| |A| |x|: what a relative change of all coefficients by one unit does to each unknown.

    Elimination without pivoting solves a system whose coefficients are changed by a few roundoffs (Higham, "Accuracy
    and Stability of Numerical Algorithms", section 9.6: of an M-matrix |L| |U| = |A|); that of an M-matrix is no
    negative number anywhere, so that |A^-1| v is one more solution.
    """
    x = reference(a, c, shift, d).abs()
    before, behind = torch.roll(x, 1, dims=1), torch.roll(x, -1, dims=1)
    before[:, 0] = behind[:, -1] = 0
    return reference(a, c, shift, (a + c + shift) * x + a * before + c * behind + d.abs())


def relations(a: Tensor, c: Tensor, shift: Tensor, d: Tensor, rng: np.random.Generator) -> list[Relation]:
    tensors = {"a": a, "c": c, "shift": shift, "d": d}
    return [
        permuted("systems in another order", tensors, rng, inputs=dict.fromkeys(tensors, 0), outputs={"x": 0}),
        scaled("right-hand sides doubled", tensors, inputs={"d": 2.0}, outputs={"x": 2.0}),
    ]
