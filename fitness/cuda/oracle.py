"""The numerical oracle on the GPU: fp64 references, bounds and judgements, in the memory that runners share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from fitness.cuda import compare
from fitness.cuda.running.memory import Block, BlockPool, CudaRegion
from fitness.oracle.inputs import Inputs
from fitness.oracle.verify import Oracle
from fitness.sandbox.memory import Memory
from operators.catalog import Functions
from operators.definition.spec import Operator

assert compare  # it has tensors on a GPU compared there
T = TypeVar("T")


class CudaOracle(Oracle):
    """`Oracle` on the device of `pool`; everything happens there, but for what reference.py draws itself."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, pool: BlockPool) -> None:
        self.pool = pool
        self._there = CudaPlace(pool)
        super().__init__(operator, functions, dtype, self._there)
        self._blocks: dict[tuple[str, int], Block] = {}
        # What a second opinion is worth: sums of 16-bit products kept in fp32, fp32 products without TF32.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False  # of convolutions
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def timed_blocks(self, dims: Mapping[str, int]) -> dict[str, Block]:
        """Memory for the outputs of timed calls, the same for every kernel that is timed.

        Where in physical memory an output lies can make a kernel half as fast again; a pair must not differ in that.
        """
        sizes = self.work_sizes(dims)
        for key in sizes.items():
            if key not in self._blocks:
                self._blocks[key] = self.pool.take(key[1])
        return {name: self._blocks[name, size] for name, size in sizes.items()}

    def forget(self) -> None:
        """Give memory back to the device that no case holds."""
        self._there.forget()
        self.pool.give_back(self._blocks.values())
        self._blocks.clear()
        self.pool.trim()


class CudaPlace:
    """`fitness.oracle.places.Place` on the device of a pool."""

    target = "cuda"

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.device = torch.device("cuda", pool.ordinal)
        self._last: tuple[Inputs, dict[str, torch.Tensor]] | None = None

    def forget(self) -> None:
        """Drop the inputs that were placed last."""
        self._last = None

    def region(self, sizes: Mapping[str, int], *, at_end: bool) -> CudaRegion:
        return CudaRegion(self._pool, sizes, at_end=at_end, readonly=True)

    def write(self, memory: Memory, name: str, value: torch.Tensor) -> None:
        assert isinstance(memory, CudaRegion)
        if value.numel():
            memory.tensor(name).copy_(value.contiguous().reshape(-1).view(torch.uint8))

    def read(self, work: Memory, name: str, dtype: torch.dtype) -> Any:
        assert isinstance(work, CudaRegion)
        return work.tensor(name, dtype)

    def placed(self, inputs: Inputs) -> Mapping[str, torch.Tensor]:
        if self._last is None or self._last[0] is not inputs:
            self._last = inputs, {name: t.to(self.device) for name, t in inputs.tensors.items()}
        return self._last[1]

    def flat(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.device, torch.float64).reshape(-1)

    def computed(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except torch.OutOfMemoryError:
            self._last = None
            self._pool.trim()
            return make()
        finally:
            self._last = None

    def together(self) -> AbstractContextManager[object]:
        return _Together(self.device)


class _Together(TorchFunctionMode):
    """Tensors on the CPU that meet some on the GPU are copied there."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        values = (*args, *(kwargs or {}).values())
        if any(isinstance(value, torch.Tensor) and value.device == self._device for value in values):
            return function(*map(self._here, args), **{name: self._here(v) for name, v in (kwargs or {}).items()})
        return function(*args, **(kwargs or {}))

    def _here(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.ndim:
            return value.to(self._device)
        return value
