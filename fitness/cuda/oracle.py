"""The numerical oracle on the GPU: fp64 references, bounds and judgements, in the memory that runners share."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from fitness.cuda.compile.nvrtc import CompileJob, compile_here
from fitness.cuda.running.driver import call, device_facts, driver
from fitness.cuda.running.launching import LaunchArguments, pointer
from fitness.cuda.running.memory import BlockPool, CudaRegion, MemoryBlock
from fitness.oracle.bounds import Comparisons, ErrorBound, Judgement, compare_by
from fitness.oracle.inputs import Inputs
from fitness.oracle.verify import Oracle
from fitness.sandbox.memory import Memory
from operators.catalog import Functions
from operators.definition.spec import Operator
from operators.libraries import sum_exactly

JUDGE = Path(__file__).with_name("judge.cu")
THREADS, MOST_BLOCKS, SUMS = 256, 1024, 5
"""Constants as in judge.cu; enough blocks to fill any GPU."""
TYPES = {torch.float32: "judge<float>", torch.float64: "judge<double>", torch.bfloat16: "judge<unsigned short>"}
"""Kernels that judge, by the type that they read as it is."""
LIMIT = "limit"
KERNELS = (*TYPES.values(), LIMIT)
"""Kernels of judge.cu."""
T = TypeVar("T")


class CudaOracle(Oracle):
    """`Oracle` on the device of `pool`; everything happens there, but for what reference.py draws itself."""

    def __init__(self, operator: Operator, functions: Functions, dtype: str, pool: BlockPool) -> None:
        self.pool = pool
        self._there = CudaPlace(pool)
        super().__init__(operator, functions, dtype, self._there)
        self._blocks: dict[tuple[str, int], MemoryBlock] = {}
        sum_exactly()

    def timed_blocks(self, dims: Mapping[str, int]) -> dict[str, MemoryBlock]:
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


# --- judgements -------------------------------------------------------------------------------------------------------


def judge(y: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> Judgement:
    """Returns what `fitness.oracle.bounds.judge` would for flat tensors on one GPU."""
    if not y.numel() == expected.numel() == allowed.numel():
        raise ValueError(f"{y.numel()} values against {expected.numel()} answers and {allowed.numel()} bounds")
    if not y.numel():
        return Judgement(0.0, 0.0, 0, None, 0)
    return _on_gpu(y.device.index).judge(y, expected, allowed)


class _Kernels:
    """judge.cu on one GPU, in the context and the stream of torch."""

    def __init__(self, ordinal: int) -> None:
        facts = device_facts(ordinal)
        call("CtxSetCurrent", call("DevicePrimaryCtxRetain", call("DeviceGet", ordinal)))
        made = compile_here(judge_job(facts.arch))
        if not made.cubin:
            raise RuntimeError(f"{JUDGE.name} does not compile: {made.log[:2000]}")
        module = call("ModuleLoadData", made.cubin)
        self._functions = {name: call("ModuleGetFunction", module, made.lowered[name].encode()) for name in KERNELS}
        self._parts = torch.empty(MOST_BLOCKS, SUMS, dtype=torch.float64, device=f"cuda:{ordinal}")
        self._ticket = torch.zeros(1, dtype=torch.int32, device=f"cuda:{ordinal}")
        self._result = torch.empty(SUMS, dtype=torch.float64, device=f"cuda:{ordinal}")
        self._outputs = [pointer(t.data_ptr()) for t in (self._parts, self._ticket, self._result)]

    def judge(self, y: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> Judgement:
        """Judges at least one element."""
        tensors = [t.contiguous() for t in (y if y.dtype in TYPES else y.double(), expected, allowed)]
        count = y.numel()
        largest, squares, bad, first, changes = self._sums(TYPES[tensors[0].dtype], tensors, count)
        return Judgement(
            largest,
            math.sqrt(squares / count),
            int(bad),
            int(first) if bad else None,
            int(min(2 * changes + 1, count)),
        )

    def bound(self, y: torch.Tensor, s: torch.Tensor, limits: Sequence[float]) -> ErrorBound:
        """Bounds at least one element; `limits` in the order of judge.cu."""
        allowed = torch.empty(y.numel(), dtype=torch.float64, device=y.device)
        tensors, count = [y.contiguous(), s.contiguous(), allowed], y.numel()
        least, usual, *_ = self._sums(LIMIT, tensors, count, struct.pack("<7d", *limits))
        return ErrorBound(allowed, math.sqrt(least / count), math.sqrt(usual / count))

    def _sums(self, name: str, tensors: Sequence[torch.Tensor], count: int, *numbers: bytes) -> list[float]:
        """The sums of a kernel of judge.cu over so many elements; `numbers` are its arguments after the tensors."""
        addresses = (pointer(t.data_ptr()) for t in tensors)
        arguments = LaunchArguments([*addresses, *numbers, struct.pack("<q", count), *self._outputs])
        sizes = min(-(-count // THREADS), MOST_BLOCKS), 1, 1, THREADS, 1, 1, 0
        stream = driver().CUstream(torch.cuda.current_stream(tensors[0].device).cuda_stream)
        call("LaunchKernel", self._functions[name], *sizes, stream, arguments.address, 0)
        found: list[float] = self._result.tolist()
        return found


_on_gpu = lru_cache(_Kernels)


def judge_job(arch: str) -> CompileJob:
    """The compile job for judge.cu."""
    return CompileJob(JUDGE.read_text(encoding="utf-8"), KERNELS, arch, ())


def bound(
    y: torch.Tensor,
    s: torch.Tensor,
    rounding: float,
    growth: float,
    eta: float,
    y_limit: float,
    s_limit: float,
    usual_rounding: float,
    usual_growth: float,
) -> ErrorBound:
    """Returns what `fitness.oracle.bounds.bound` would for flat tensors in fp64 on one GPU."""
    if y.numel() != s.numel():
        raise ValueError(f"{y.numel()} values and {s.numel()} magnitudes")
    if not y.numel():
        return ErrorBound(torch.empty_like(y), 0.0, 0.0)
    limits = rounding, growth, eta, y_limit, s_limit, usual_rounding, usual_growth
    return _on_gpu(y.device.index).bound(y, s, limits)


compare_by(torch.Tensor, Comparisons(judge, bound))
