"""The repository's own tests."""

import torch
from bias_gelu import bias_gelu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_it_is_the_gelu_of_a_sum():
    for width in (128, 256, 5):
        x, bias = torch.randn(32, width, device=DEVICE), torch.randn(width, device=DEVICE)
        wanted = torch.nn.functional.gelu(x.double() + bias.double())
        torch.testing.assert_close(bias_gelu(x, bias).double(), wanted, rtol=1e-4, atol=1e-5)
