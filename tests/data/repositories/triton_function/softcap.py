"""Soft-capped scores of attention: a Triton kernel on a GPU, torch elsewhere."""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

BLOCK = 1024

if triton is not None:

    @triton.jit
    def softcap_kernel(scores, out, count, cap, BLOCK: tl.constexpr):
        """Cap a block of numbers."""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(scores + at, mask=at < count).to(tl.float32) / cap
        tanh = 2 * tl.sigmoid(2 * x) - 1
        tl.store(out + at, (tanh * cap).to(out.dtype.element_ty), mask=at < count)


def softcap(scores: torch.Tensor, *, cap: float = 30.0) -> torch.Tensor:
    """Numbers between -cap and cap."""
    if triton is None or not scores.is_cuda:
        return torch.tanh(scores / cap) * cap
    scores = scores.contiguous()
    out = torch.empty_like(scores)
    softcap_kernel[(triton.cdiv(scores.numel(), BLOCK),)](scores, out, scores.numel(), cap, BLOCK=BLOCK)
    return out


def main():
    """Cap the scores of two prompts."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for tokens in (64, 64, 128):
        softcap(torch.randn(4, tokens, tokens, device=device) * 20, cap=50.0)


if __name__ == "__main__":
    main()
