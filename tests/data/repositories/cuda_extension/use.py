"""Uses the extension in two layers."""

import torch
from bias_gelu import bias_gelu

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
for width in (128, 256):
    for _ in range(4):
        bias_gelu(torch.randn(32, width, device=device), torch.randn(width, device=device))
