"""The vendor's library as a session: the operator's own `library(...)` on the GPU, in the verifier's process.

It is no candidate's code, so nothing has to be kept from it; only its call is timed, not `prepare()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from fitness.cases import Question
from fitness.cuda.driver import CudaError
from fitness.cuda.memory import CudaRegion
from fitness.cuda.oracle import CudaOracle
from fitness.cuda.runner import NO_MEMORY
from fitness.device import KernelFault, Sample
from fitness.evaluation import Status
from fitness.inputs import TORCH_DTYPES
from operators.errors import OperatorError

_cuda: Any = torch.cuda
AHEAD_CYCLES = 200_000
"""The device waits so long before the clock starts, while the call is queued."""
FLUSH_L2_SIZES = 2.4


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise KernelFault where the device has no memory left for the library: no error of the device."""
    try:
        yield
    except (torch.OutOfMemoryError, CudaError) as error:
        if isinstance(error, CudaError) and error.name != "CUDA_ERROR_OUT_OF_MEMORY":
            raise
        raise KernelFault(Status.RUNTIME_ERROR, f"{NO_MEMORY} for the library") from error


class LibrarySession:
    """`fitness.device.Session` for the vendor's call."""

    def __init__(self, oracle: CudaOracle, l2_bytes: int) -> None:
        self.charged = False
        self._oracle = oracle
        self._flush = torch.empty(int(FLUSH_L2_SIZES * l2_bytes) // 4, device=oracle.device)
        self._memory = torch.cuda.graph_pool_handle()
        self._slots: dict[int, tuple[Question, CudaRegion, Callable[[], Any]]] = {}
        self._values: dict[int, Mapping[str, Any]] = {}
        """What captured calls read, such as a vendor's matrix object: nothing else keeps it."""

    def bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        with enough_memory():
            self._bind(slot, question, at_end=at_end)

    def _bind(self, slot: int, question: Question, *, at_end: bool) -> None:
        oracle, operator = self._oracle, self._oracle.operator
        self._slots.pop(slot, None)
        lent = oracle.timed_blocks(question.dims) if slot else None
        work = CudaRegion(oracle.pool, oracle.work_sizes(question.dims), at_end=at_end, lent=lent)
        values: dict[str, Any] = {**question.dims, **{s.name: s.value for s in operator.scalars}}
        for tensor in operator.inputs:
            memory = work if tensor.role == "inout" else question.region
            assert isinstance(memory, CudaRegion)
            flat = memory.tensor(tensor.name, TORCH_DTYPES[oracle.element(tensor).name])
            values[tensor.name] = flat.reshape(tensor.sizes(question.dims))
        oracle.restore(question, work)
        values["prepared"] = oracle.functions.prepare(values)
        self._slots[slot] = question, work, self._captured(values)
        self._values[slot] = values

    def run(self, slot: int, *, poison: int, cold: bool = False) -> Sample:
        question, work, launch = self._slots[slot]
        work.prepare(poison)
        self._oracle.restore(question, work)
        if cold:
            self._flush.fill_(float(poison))
            self._flush.sum()
        torch.cuda.synchronize()
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        _cuda._sleep(AHEAD_CYCLES)
        begin.record()
        result = launch()
        end.record()
        end.synchronize()
        elapsed_ns = round(1e6 * begin.elapsed_time(end))
        self._store(result, question, work)
        return Sample(elapsed_ns, 0)  # its clock is ours

    def _captured(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        """The call as a CUDA graph, so that Python's part of it is not timed; as it is where it cannot be captured."""
        library = self._oracle.functions.library
        side = _cuda.Stream(self._oracle.device)
        side.wait_stream(_cuda.current_stream(self._oracle.device))  # `prepare` may still be at work
        with torch.cuda.stream(side):  # the vendor's handles and workspaces are made outside of the capture
            library(values)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._memory):
                result = library(values)
        except (RuntimeError, OperatorError):
            torch.cuda.synchronize()
            return lambda: library(values)

        def replay() -> Any:
            graph.replay()
            return result

        return replay

    def _store(self, result: Any, question: Question, work: CudaRegion) -> None:
        outputs = {t.name: t for t in self._oracle.operator.outputs}
        by_name = result if isinstance(result, Mapping) else {next(iter(outputs)): result}
        for name, value in by_name.items():
            tensor = outputs[name]
            flat = work.tensor(name, TORCH_DTYPES[self._oracle.element(tensor).name])
            flat.reshape(tensor.sizes(question.dims)).copy_(value)

    def work(self, slot: int) -> CudaRegion:
        return self._slots[slot][1]

    def close(self, *, sound: bool = False) -> None:
        self._slots.clear()
        self._values.clear()
