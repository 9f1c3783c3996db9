"""Runs vendors' calls on the GPU: `python -m fitness.cuda.running.library_process SOCKET_FD ORDINAL`.

A call is no stranger's code, but it is code on the device: what torch.compile makes of a scan wrote beyond its scratch
memory once, over the error bounds that the verifier had there. So it runs here, where the verifier's memory is not,
but for the blocks that are mapped: inputs, which can only be read, and outputs. Only the call is timed, not what
prepares it. CuPy works on torch's stream and in torch's memory, so that its calls are captured and timed as torch's
are. Requests and answers are those of `fitness.cuda.running.serving`.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from fitness.cuda.running.driver import FLUSH_L2_SIZES, CudaError, device_facts
from fitness.cuda.running.mapping import Mappings
from fitness.cuda.running.memory import is_short, seen_as_tensor
from fitness.cuda.running.serving import begin, serve
from fitness.judging.library import handed, taken
from fitness.oracle.inputs import TORCH_DTYPES
from operators.catalog import functions
from operators.cupy_stream import drop_plans, keep_plans, on_torchs_stream
from operators.definition.spec import Tensor
from operators.dtypes import resolve_dtype
from operators.errors import MachineError, OperatorError
from operators.libraries import LibraryCall, forget_compiled, sum_exactly

_cuda: Any = torch.cuda
_C: Any = torch._C
AHEAD_CYCLES = 200_000
"""Least cycles that the device waits before the clock starts, while the call is queued."""
CYCLES_PER_NS = 3.0
"""Cycles per nanosecond, more than any device's clock makes, so that a call which Python queues is queued before its
clock starts."""
MOST_AHEAD_CYCLES = 60_000_000
"""Cycles from which the device waits no longer: a call that is queued late even then waits for the device itself."""
LATE_FACTOR = 4
"""Factor by which the device waits longer for a call that was queued late, and less again for the next that was not."""
KEPT_SESSIONS = 128
"""Sessions with compiled calls of which a process keeps the code: it takes some 10 MB of main memory a shape."""
KEPT_BYTES = 256 << 20
"""Memory of the device that compiled code may hold while no session is open."""
REASON_CHARACTERS = 2000
MEMORY, OWN = "memory", "own"
"""Faults that are told: what another time may not befall the call, most often no memory was left; its own error."""


@lru_cache
def import_apart(name: str) -> None:
    """Import the module that a call's name begins with, if it is one, in a thread of its own.

    Some of CuPy's modules keep the frames that import them first, for good, and so the memory of these.
    """

    def imported() -> None:
        with suppress(Exception):  # what is no module's name, or cannot be imported, is told where it is called
            importlib.import_module(name.rpartition(".")[0])

    thread = threading.Thread(target=imported)
    thread.start()
    thread.join()


class RivalCode:
    """The code that torch.compile has made in this process for rivals, and CuPy's plans of their transforms.

    A task's rivals are compiled when one is chosen, and called again by each confirmation. It takes seconds to load
    their code anew, so it stays between sessions, as long as it is not too much.
    """

    def __init__(self) -> None:
        self._open = 0
        self._compiled = 0
        self._plans = False

    def opened(self, call: LibraryCall) -> None:
        """A session of a call begins."""
        self._open += 1
        self._compiled += call.kind == "compiled"
        if call.arrays == "cupy":
            with suppress(ImportError):  # told where the call is made
                keep_plans()
                self._plans = True

    def closed(self) -> None:
        """A session has ended."""
        self._open -= 1
        if self._open:
            return
        if self._plans:
            self._plans = False
            drop_plans()
        gc.collect()
        if self._compiled > KEPT_SESSIONS or (self._compiled and torch.cuda.memory_allocated() > KEPT_BYTES):
            forget_compiled()
            self._compiled = 0
            gc.collect()


class QueuedCall:
    """A call of the library on the buffers of one slot, between two events.

    The host is busy with other processes at times, so that a call may be queued when its clock runs already: such a
    time says nothing of the call, and a kernel beside it would look the faster for it.
    """

    def __init__(self, call: Callable[[], Any], holds: object, *, queued_ns: int = 0) -> None:
        """`queued_ns` is what Python takes to queue it.

        `holds` is an object that a captured call reads, such as a vendor's matrix object: nothing else keeps it.
        """
        self._call = call
        self._holds = holds
        self._least_cycles = min(max(AHEAD_CYCLES, int(CYCLES_PER_NS * queued_ns)), MOST_AHEAD_CYCLES)
        self._ahead_cycles = self._least_cycles
        """Cycles that the device waits before the clock starts."""

    def timed(self) -> tuple[Any, int | None]:
        """Its result, and its time in nanoseconds; None where it was queued late, and the device will wait longer."""
        begin, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        _cuda._sleep(self._ahead_cycles)
        begin.record()
        result = self._call()
        end.record()
        late = begin.query()
        end.synchronize()
        if late and self._ahead_cycles < MOST_AHEAD_CYCLES:
            self._ahead_cycles = min(LATE_FACTOR * self._ahead_cycles, MOST_AHEAD_CYCLES)
            return result, None
        if not late:
            self._ahead_cycles = max(self._ahead_cycles // LATE_FACTOR, self._least_cycles)
        return result, round(1e6 * begin.elapsed_time(end))


class CallSession:
    """One call, and what it was handed by slots."""

    def __init__(self, folder: str, dtype: str, name: str, device: torch.device) -> None:
        self._functions = functions(Path(folder))
        (self.call,) = (each for each in self._functions.libraries("cuda", dtype) if each.name == name)
        self._dtype = dtype
        self._device = device
        self._memory = torch.cuda.graph_pool_handle()
        self._slots: dict[int, tuple[QueuedCall, dict[str, torch.Tensor]]] = {}
        if self.call.arrays == "cupy":
            import_apart(name)

    def bind(self, slot: int, dims: Mapping[str, int], addresses: Mapping[str, int]) -> None:
        """Prepare the call on tensors at these addresses, by name; the slot was dropped before."""
        operator = self._functions.operator
        tensors = {t.name: self._tensor(t, dims, addresses[t.name]) for t in operator.tensors}
        values: dict[str, Any] = {**dims, **{s.name: s.value for s in operator.scalars}}
        values |= {t.name: tensors[t.name] for t in operator.inputs}
        with self._arrays():
            call = self._functions.bound(self.call, handed(values, self.call.arrays))
        self._slots[slot] = self._captured(call), {t.name: tensors[t.name] for t in operator.outputs}

    def drop(self, slot: int) -> None:
        """Forget a slot, if there is such a one."""
        self._slots.pop(slot, None)

    def run(self, slot: int) -> int | None:
        """Nanoseconds of one call, whose result lies in the slot's outputs then; see `QueuedCall.timed`."""
        launch, outputs = self._slots[slot]
        result, elapsed_ns = launch.timed()
        with self._arrays():
            by_name = taken(result, list(outputs))
        for name, value in by_name.items():
            outputs[name].copy_(value)
        return elapsed_ns

    def _tensor(self, tensor: Tensor, dims: Mapping[str, int], address: int) -> torch.Tensor:
        element, shape = resolve_dtype(tensor.dtype, self._dtype), tensor.sizes(dims)
        kind, size = TORCH_DTYPES[element.name], element.size * math.prod(shape)
        if not size:
            return torch.empty(shape, dtype=kind, device=self._device)
        return seen_as_tensor(address, size, self._device.index).view(kind).reshape(shape)

    def _arrays(self) -> AbstractContextManager[None]:
        return on_torchs_stream() if self.call.arrays == "cupy" else nullcontext()

    def _captured(self, call: Callable[[], Any]) -> QueuedCall:
        """The call as a CUDA graph, so that Python's part of it is not timed.

        Where it cannot be captured it is called as it is, and the device waits for as long as that takes to be queued.
        """

        def library() -> Any:
            with self._arrays():
                return call()

        side = _cuda.Stream(self._device)
        side.wait_stream(_cuda.current_stream(self._device))
        with torch.cuda.stream(side):  # the vendor's handles and workspaces are made outside of the capture
            try:
                library()
                begin = time.perf_counter_ns()
                library()
                queued_ns = time.perf_counter_ns() - begin
            finally:  # what a call that raises had begun still uses memory that is given back
                side.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # A call that cannot be captured raises; that its graph is empty, as torch warns, needs no second word.
            with warnings.catch_warnings(action="ignore"), torch.cuda.graph(graph, pool=self._memory):
                result = library()
        except (RuntimeError, OperatorError):
            torch.cuda.synchronize()
            return QueuedCall(library, call, queued_ns=queued_ns)

        def replay() -> Any:
            graph.replay()
            return result

        return QueuedCall(replay, call)


class LibraryProcess:
    """All sessions of one verifier."""

    def __init__(self, ordinal: int) -> None:
        self._device = torch.device("cuda", ordinal)
        torch.zeros(1, device=self._device)  # the context that blocks are mapped in
        self._flush_words = int(FLUSH_L2_SIZES * device_facts(ordinal).l2_bytes) // 4
        self._flush: torch.Tensor | None = None
        """Memory that drives everything else out of the caches, while a session is open."""
        self._mappings = Mappings(ordinal)
        self._usable = True
        self._code = RivalCode()
        self._sessions: dict[int, CallSession] = {}

    def open(self, session: int, folder: str, dtype: str, name: str) -> dict[str, Any]:
        """Begin a session with a call of an operator."""
        self._sessions[session] = CallSession(folder, dtype, name, self._device)
        self._code.opened(self._sessions[session].call)
        if self._flush is None:
            self._flush = torch.empty(self._flush_words, device=self._device)
        return {}

    def bind(
        self,
        fds: Sequence[int],
        session: int,
        slot: int,
        dims: Mapping[str, int],
        buffers: Mapping[str, tuple[int, int]],
        new: Sequence[tuple[int, bool, int, int]],
        drop: Sequence[int],
    ) -> dict[str, Any]:
        """Prepare a session's call on buffers, (block, offset) by tensor; `new` and `drop` as in `Mappings.change`."""
        self._sessions[session].drop(slot)
        self._usable = False  # a change that fails leaves some blocks mapped
        self._mappings.change(fds, new, drop)
        self._usable = True
        addresses = {name: self._mappings.address(block) + offset for name, (block, offset) in buffers.items()}
        self._sessions[session].bind(slot, dims, addresses)
        torch.cuda.empty_cache()  # others need what the preparation needed
        return {}

    def run(self, session: int, slot: int, cold: bool, poison: int) -> dict[str, Any]:
        """One call, from cold caches where it is wanted."""
        if cold and self._flush is not None:
            self._flush.fill_(float(poison))
            self._flush.sum()
            torch.cuda.synchronize()
        elapsed_ns = self._sessions[session].run(slot)
        torch.cuda.synchronize()
        return {"late": True} if elapsed_ns is None else {"elapsed_ns": elapsed_ns}

    def end(self, session: int, drop: Sequence[int]) -> dict[str, Any]:
        """End a session, and forget blocks."""
        if self._sessions.pop(session, None):
            if not self._sessions:
                self._flush = None
                _C._cuda_clearCublasWorkspaces()  # one for each stream that a call was prepared on
            self._code.closed()
        torch.cuda.synchronize()
        self._mappings.forget(drop)
        torch.cuda.empty_cache()
        return {}

    def answered(self, method: str, arguments: Sequence[Any]) -> dict[str, Any]:
        """The answer of a method; an error of it is one, too."""
        try:
            found: dict[str, Any] = getattr(self, method)(*arguments)
        except Exception as error:  # noqa: BLE001 the border to the operator's own Python, and to the libraries
            known = isinstance(error, OperatorError | CudaError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            fault = MEMORY if is_short(reason) or isinstance(error, MachineError) else OWN
        else:
            return found
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            fault, reason, self._usable = OWN, f"{reason}; {error}", False
        return {
            "fault": fault,
            "reason": " ".join(reason.split())[:REASON_CHARACTERS],
            "unusable": not self._usable,
        }


def main() -> None:
    """Entry point of the process."""
    fd, ordinal = sys.argv[1:]
    with socket.socket(fileno=int(fd)) as channel:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        sum_exactly()
        begin(channel)
        process = LibraryProcess(int(ordinal))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)  # a compiler's warnings would fill the pipe, which is read when the process has ended
        serve(channel, process.answered)


if __name__ == "__main__":
    main()
