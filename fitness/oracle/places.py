"""Places where an oracle computes and its tensors lie: in this machine's memory, or a GPU's (`fitness.cuda.oracle`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from fitness.oracle.inputs import Inputs
from fitness.sandbox.memory import Memory, Region

T = TypeVar("T")


class Place(Protocol):
    """Flat arrays are whatever `fitness.oracle.bounds.judge` takes of this place: numpy's here, tensors on a GPU."""

    target: str
    """Target whose library call is a trusted implementation."""
    device: torch.device
    """Device where inputs are drawn and answers computed."""

    def region(self, sizes: Mapping[str, int], *, at_end: bool) -> Memory:
        """Memory for the `in` tensors."""
        ...

    def write(self, memory: Memory, name: str, value: torch.Tensor) -> None:
        """Put a tensor into a buffer."""
        ...

    def read(self, work: Memory, name: str, dtype: torch.dtype) -> Any:
        """The contents of a buffer, flat: a view where `judge` takes the type, else an fp64 copy."""
        ...

    def placed(self, inputs: Inputs) -> Mapping[str, torch.Tensor]:
        """Inputs where reference and library are computed; not to be changed."""
        ...

    def flat(self, value: torch.Tensor) -> Any:
        """In fp64, as `judge` takes it."""
        ...

    def computed(self, make: Callable[[], T]) -> T:
        """The result of `make`, which computes here and may be called twice."""
        ...

    def together(self) -> AbstractContextManager[object]:
        """Within it, what relations keep on the CPU meets outputs of this place."""
        ...


class CpuPlace:
    """`Place` in this process's own memory."""

    target = "cpu"
    device = torch.device("cpu")

    def region(self, sizes: Mapping[str, int], *, at_end: bool) -> Region:
        return Region(sizes, at_end=at_end, readonly_for_others=True)

    def write(self, memory: Memory, name: str, value: torch.Tensor) -> None:
        assert isinstance(memory, Region)
        view = memory.view(name)
        if len(view):
            # Contiguous tensors may have any stride along an axis of length 1, which bytes cannot be viewed through.
            flat = torch.as_strided(value.contiguous(), (value.numel(),), (1,))
            view[:] = flat.view(torch.uint8).numpy().data

    def read(self, work: Memory, name: str, dtype: torch.dtype) -> Any:
        assert isinstance(work, Region)
        view = work.view(name)
        if not len(view):
            return np.empty(0)
        values = torch.frombuffer(view, dtype=dtype)
        return (values if dtype in (torch.float32, torch.float64) else values.double()).numpy()

    def placed(self, inputs: Inputs) -> Mapping[str, torch.Tensor]:
        return inputs.tensors

    def flat(self, value: torch.Tensor) -> Any:
        return np.ascontiguousarray(value.numpy(), dtype=np.float64).reshape(-1)

    def computed(self, make: Callable[[], T]) -> T:
        return make()

    def together(self) -> AbstractContextManager[object]:
        return nullcontext()
