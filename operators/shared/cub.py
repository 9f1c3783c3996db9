"""CUB's algorithms by cuda.compute (the package cuda-cccl), of the extra `rivals`.

They do no more than they are asked for, where torch's sort makes the places of the sorted elements too. All but the
algorithm itself is prepared: its code, its temporary memory, the memory of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operators.libraries import LibraryCall, ready, rival_module


class Algorithm:
    """An algorithm on arrays that stay, ready to be called. It raises what cuda.compute raises."""

    def __init__(self, made: Callable[..., int], result: Tensor, **arguments: Any) -> None:
        """`made` is one of cuda.compute's objects, `result` the array among its `arguments` that it writes."""
        self._made = made
        self._result = result
        self._arguments = arguments
        need_bytes = made(temp_storage=None, **arguments)
        self._temporary = torch.empty(max(need_bytes, 1), dtype=torch.uint8, device=result.device)

    def __call__(self) -> Tensor:
        """Return the result, in the same memory every time."""
        self._made(temp_storage=self._temporary, stream=_TorchsStream(), **self._arguments)
        return self._result


class _TorchsStream:
    """torch's current stream, by the protocol that cuda.compute takes."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, torch.cuda.current_stream().cuda_stream


def sort() -> LibraryCall:
    """Return CUB's radix sort of the operator's `x` (n,), ascending, of keys alone."""

    def prepare(x: Tensor) -> Algorithm:
        compute = rival_module("cuda.compute")
        result = torch.empty_like(x)
        arrays = {"d_in_keys": x, "d_out_keys": result, "d_in_values": None, "d_out_values": None}
        made = compute.make_radix_sort(**arrays, order=compute.SortOrder.ASCENDING)
        return Algorithm(made, result, **arrays, num_items=len(x))

    return ready("cuda.compute.radix_sort", prepare, targets=("cuda",))


def scan() -> LibraryCall:
    """Return CUB's sums of all of the operator's `x` (n,) up to each element, which it adds up in fp32 at least."""

    def prepare(x: Tensor) -> Algorithm:
        compute = rival_module("cuda.compute")
        result = torch.empty_like(x)
        wide = np.float64 if x.dtype is torch.float64 else np.float32
        arguments = {"d_in": x, "d_out": result, "op": compute.OpKind.PLUS, "init_value": np.zeros(1, wide)}
        return Algorithm(compute.make_inclusive_scan(**arguments), result, **arguments, num_items=len(x))

    return ready("cuda.compute.inclusive_scan", prepare, targets=("cuda",))
