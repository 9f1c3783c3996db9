"""The repository's own tests."""

import torch
from norms import GatedNorm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def wanted(x, gate, weight):
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double() * gate.double().sigmoid()


def test_rows_are_normalized():
    layer = GatedNorm(256).to(DEVICE)
    for rows in (64, 512, 3):
        x, gate = torch.randn(rows, 256, device=DEVICE), torch.randn(rows, 256, device=DEVICE)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, gate).double(), wanted(x, gate, layer.weight), rtol=1e-4, atol=1e-5)


def test_it_can_be_trained():
    layer = GatedNorm(256)
    layer(torch.randn(64, 256), torch.randn(64, 256)).sum().backward()
    assert layer.weight.grad.shape == (256,)


def test_what_is_not_contiguous_and_other_numbers_are_served():
    layer = GatedNorm(64, eps=0.5)
    x = torch.randn(64, 256).t()
    assert layer(x, x).shape == x.shape
