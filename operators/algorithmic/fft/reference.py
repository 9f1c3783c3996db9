"""The discrete Fourier transform of complex numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from operators.relations import Outputs, Relation, scaled
from operators.shared.sums import SMALL

STAGE_ERROR = 8
"""What a stage may be off by, in roundoffs of the largest number: sine and cosine, products and sums, halved."""


def reference(x_re: Tensor, x_im: Tensor) -> dict[str, Tensor]:
    y = torch.fft.fft(torch.complex(x_re, x_im))
    return {"y_re": y.real.contiguous(), "y_im": y.imag.contiguous()}


def magnitude(x_re: Tensor, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Numbers on the way are not larger than the largest of the result: each is half of a sum of later ones."""
    largest = torch.hypot(outputs["y_re"], outputs["y_im"]).max()
    s = (STAGE_ERROR / 2 * largest).expand_as(x_re).clone()
    return {"y_re": s, "y_im": s}


def library(x_re: Tensor, x_im: Tensor) -> dict[str, Tensor]:
    # The vendor's transforms have no bf16.
    wide = torch.promote_types(x_re.dtype, torch.float32)
    found = reference(x_re.to(wide), x_im.to(wide))
    return {n: y.to(x_re.dtype) for n, y in found.items()}


def cancel(x_re: Tensor, x_im: Tensor, n: int) -> dict[str, Tensor]:
    """A wave of four points a turn, of which everything but one element of the result cancels, and small values."""
    wave = torch.tensor([1.0, 0.0, -1.0, 0.0], dtype=torch.float64).repeat(max(n // 4, 1))[:n]
    return {"x_re": (wave + x_re.double() * SMALL).to(x_re.dtype), "x_im": (x_im.double() * SMALL).to(x_im.dtype)}


def relations(x_re: Tensor, x_im: Tensor) -> list[Relation]:
    """Linear; real and imaginary parts swapped reverse the order of frequencies and swap the parts of the result."""
    tensors = {"x_re": x_re, "x_im": x_im}

    def swapped(found: Outputs) -> Outputs:
        return {"y_re": found["y_im"].flip(0).roll(1), "y_im": found["y_re"].flip(0).roll(1)}

    return [
        scaled("doubled", tensors, inputs={"x_re": 2.0, "x_im": 2.0}, outputs={"y_re": 2.0, "y_im": 2.0}),
        Relation("parts swapped", {"x_re": x_im, "x_im": x_re}, swapped),
    ]
