"""Products of matrices and of batches of them: what their reference.py share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from operators.dtypes import DType
from operators.relations import Outputs, Relation, permuted, scaled
from operators.shared.sums import zero_product


@dataclass(frozen=True)
class Product:
    """c of a and b, as an Einstein summation over one letter that both of them have and c has not."""

    letters: str
    """Such as `li,lj->ij`."""

    @property
    def axes(self) -> dict[str, dict[str, int]]:
        """By letter, the axis of each tensor that it stands for."""
        names = zip("abc", self.letters.replace("->", ",").split(","), strict=True)
        found: dict[str, dict[str, int]] = {}
        for name, letters in names:
            for axis, letter in enumerate(letters):
                found.setdefault(letter, {})[name] = axis
        return found

    def reference(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum(self.letters, a, b)

    def magnitude(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum(self.letters, a.abs(), b.abs())

    def cancel(self, a: Tensor, b: Tensor, dtype: DType, rng: np.random.Generator) -> dict[str, Tensor]:
        """Every row of terms of `a` with every column of `b`, be they of one matrix of a batch or not."""
        (summed,) = (axes for axes in self.axes.values() if "c" not in axes)
        left, right = a.movedim(summed["a"], -1), b.movedim(summed["b"], 0)
        rows, columns = zero_product(left.reshape(-1, left.shape[-1]), right.reshape(len(right), -1), dtype, rng)
        return {
            "a": rows.reshape(left.shape).movedim(-1, summed["a"]),
            "b": columns.reshape(right.shape).movedim(0, summed["b"]),
        }

    def relations(self, a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
        """Relations that permute each axis, that of the terms among them, and one that applies a factor."""
        tensors = {"a": a, "b": b}
        found = [scaled("a doubled", tensors, inputs={"a": 2.0}, outputs={"c": 2.0})]
        for letter, axes in self.axes.items():
            outputs = {"c": axes["c"]} if "c" in axes else {}
            inputs = {name: axis for name, axis in axes.items() if name != "c"}
            found.append(permuted(f"{letter} in another order", tensors, rng, inputs=inputs, outputs=outputs))
        return found


def triangular_relations(a: Tensor, b: Tensor, rng: np.random.Generator) -> list[Relation]:
    """The relations that keep matrices triangular: signs of rows and columns, and the other diagonal as a mirror.

    With J the reversal, J (a b)^T J = (J b^T J) (J a^T J), whose factors are triangular on the same side.
    """
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], len(a))).to(a.device)

    def signed(x: Tensor) -> Tensor:
        return x * signs.to(x.dtype) * signs.to(x.dtype)[:, None]

    def mirrored(x: Tensor) -> Tensor:
        return x.flip(0, 1).T

    return [
        Relation("signs of rows and columns changed", {"a": signed(a), "b": signed(b)}, _of_result(signed)),
        Relation("mirrored", {"a": mirrored(b), "b": mirrored(a)}, _of_result(mirrored)),
        scaled("a doubled", {"a": a}, inputs={"a": 2.0}, outputs={"c": 2.0}),
    ]


def _of_result(change: Callable[[Tensor], Tensor]) -> Callable[[Outputs], Outputs]:
    return lambda found: {"c": change(found["c"])}
