"""The repository's own tests."""

import torch
from softcap import softcap

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_scores_are_capped():
    for tokens in (64, 128, 7):
        for cap in (50.0, 30.0):
            scores = torch.randn(4, tokens, tokens, device=DEVICE) * 20
            wanted = torch.tanh(scores.double() / cap) * cap
            torch.testing.assert_close(softcap(scores, cap=cap).double(), wanted, rtol=1e-3, atol=1e-3)
