"""A power of a square matrix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operators import drawing
from operators.dtypes import DType
from operators.relations import Relation, scaled

TORCH_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


def inputs(n: int, dtype: DType, rng: np.random.Generator, family: str) -> dict[str, Tensor]:
    """Uniform values; other families have rows of different size, ties, zeros ..., and powers that do not explode."""
    a = rng.uniform(-1, 1, (n, n))
    match family:
        case "scaled":
            a *= np.exp2(rng.uniform(-4, 4, (n, 1)))
        case "integers":
            a = rng.integers(-1, 2, (n, n)).astype(np.float64)
        case "structured":
            forms = [np.full((n, n), a[0, 0]), np.sort(a, axis=1), np.diag(a[0]), np.eye(n)[rng.permutation(n)]]
            a = [*forms, np.abs(a)][rng.integers(len(forms) + 1)]
        case "specials" | "mixture" | "few":
            a *= rng.random((n, n)) > rng.random() ** 2
    if family not in ("nominal", "integers"):
        a *= 2.0 ** -np.ceil(np.log2(max(np.abs(a).sum(axis=1).max(), 1)))
    return {"a": torch.from_numpy(a).to(TORCH_DTYPES[dtype.name])}


def reference(a: Tensor, power: int) -> Tensor:
    b = a
    for _ in range(power - 1):
        b = a @ b
    return b


def magnitude(a: Tensor, power: int) -> Tensor:
    """Every product errs by what a product does; the next one carries that on, as the root of a sum of squares.

    For products from the left and for repeated squaring, whose intermediate results differ; an order may take either.
    """
    left, s_left = a, torch.zeros_like(a)
    for _ in range(power - 1):
        s_left = _carried(a, torch.zeros_like(a), left, s_left)
        left = a @ left
    result: Tensor | None = None
    s_result, square, s_square = torch.zeros_like(a), a, torch.zeros_like(a)
    while power:
        if power % 2:
            s_result = torch.zeros_like(a) if result is None else _carried(result, s_result, square, s_square)
            result = square if result is None else result @ square
        power //= 2
        if power:
            s_square, square = _carried(square, s_square, square, s_square), square @ square
    return torch.maximum(s_left, s_result) * 2


def library(a: Tensor, power: int) -> Tensor:
    # In bf16 the vendor's call would round between the products.
    wide = torch.promote_types(a.dtype, torch.float32)
    b: Tensor = torch.linalg.matrix_power(a.to(wide), power)
    return b.to(a.dtype)


def relations(a: Tensor, power: int, rng: np.random.Generator) -> list[Relation]:
    order = drawing.permutation(len(a), rng, a.device)
    return [
        scaled("negated", {"a": a}, inputs={"a": -1.0}, outputs={"b": (-1.0) ** power}),
        Relation("transposed", {"a": a.T}, lambda found: {"b": found["b"].T}),
        Relation("nodes renamed", {"a": a[order][:, order]}, lambda found: {"b": found["b"][order][:, order]}),
    ]


def _carried(x: Tensor, s_x: Tensor, y: Tensor, s_y: Tensor) -> Tensor:
    """What x @ y is off by, when x and y are off by s_x and s_y."""
    carried: Tensor = ((x * x) @ (s_y * s_y) + (s_x * s_x) @ (y * y)).sqrt()
    return x.abs() @ y.abs() + carried
