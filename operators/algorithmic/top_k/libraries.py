"""Libraries' calls for the largest k, of equal ones the lower index first.

torch.topk takes any of equal ones: it is right where the k largest differ. Keys that hold the index differ always.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from operators.libraries import call, own


def topk(x: Tensor, k: int) -> dict[str, Tensor]:
    values, indices = torch.topk(x, k)
    return {"values": values, "indices": indices.to(torch.int32)}


def keyed(x: Tensor, k: int, n: int) -> dict[str, Tensor]:
    bits = x + 0.0  # one zero
    bits = bits.view({2: torch.int16, 4: torch.int32}[x.element_size()])
    ordered = torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits).to(torch.int64)
    below = torch.arange(n - 1, -1, -1, device=x.device)
    indices = n - 1 - (torch.topk((ordered << 32) + below, k).values & 0xFFFFFFFF)
    return {"values": x[indices], "indices": indices.to(torch.int32)}


def partitioned(x: Any, k: int, n: int) -> dict[str, Any]:
    found = np.sort(np.argpartition(x, n - k)[n - k :])
    found = found[np.argsort(-x[found], kind="stable")]
    return {"values": x[found], "indices": found.astype(np.int32)}


LIBRARIES = (
    own("torch.sort (stable)", composed=True),
    call("torch.topk", topk),
    call("torch.topk (keys with indices)", keyed, composed=True, dtypes=("fp32", "bf16", "fp16")),
    call("numpy.argpartition", partitioned, composed=True),
)
