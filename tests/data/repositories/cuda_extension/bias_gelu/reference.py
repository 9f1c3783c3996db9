"""The same in torch."""

from torch.nn import functional


def bias_gelu_reference(values, bias):
    """Gelu(values + bias)."""
    return functional.gelu(values + bias)
