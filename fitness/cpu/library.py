"""Runs one of an operator's library calls behind the same protocol as `runner.cpp`, in a process of its own.

    python -m fitness.cpu.library OPERATOR_FOLDER DTYPE CALL THREADS SOCKET_FD

LOAD, which this program alone knows, carries the JSON list of slot descriptions: shapes of tensors and the values of
dims; PLAN is accepted and ignored. Only the library call is timed; `prepare()` and copying the result are not.

A call meets what a kernel's meets in `runner.cpp`: every thread on a core of its own, pages that are there already
(those of its results too, which it allocates itself), cold caches, and neighbours that have come to rest.
"""

from __future__ import annotations

import gc
import json
import math
import mmap
import os
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fitness.judging.library import handed, taken
from fitness.oracle.inputs import TORCH_DTYPES
from fitness.sandbox.native import checks
from operators.catalog import functions
from operators.dtypes import resolve_dtype

LOAD, BIND, PLAN, RUN = 1, 2, 3, 4
OK, ERROR = 0, 1
HEAP_BYTES = 128 << 20
"""Touched before the first call, for results to lie in."""
SETTLE_NS = 500_000
"""Pause as in runner.cpp, until the verifier sleeps and the threads of the team have stopped looking for work."""


class LibraryServer:
    """Answers one verifier until it hangs up."""

    def __init__(self, folder: str, dtype: str, name: str, channel: socket.socket) -> None:
        self.functions = functions(Path(folder))
        self.dtype = dtype
        (self.call,) = (each for each in self.functions.libraries("cpu", dtype) if each.name == name)
        self.channel = channel
        self.dims: list[dict[str, int]] = []
        self.slots: dict[int, tuple[Callable[[], Any], dict[str, torch.Tensor]]] = {}

    def serve(self) -> None:
        """It answers requests until the end of file."""
        while True:
            header, fds = self._read(16)
            what, count = struct.unpack("<2q", header)
            data, more = self._read(8 * count)
            try:
                answer = self._answer(what, data, fds + more)
            except Exception as error:  # noqa: BLE001 the border to the operator's own Python
                text = f"{type(error).__name__}: {error}".encode()[:4000]
                words = struct.unpack(f"<{-(-len(text) // 8)}q", text.ljust(-(-len(text) // 8) * 8))
                self.channel.sendall(struct.pack(f"<{len(words) + 3}q", ERROR, len(words) + 1, len(text), *words))
            else:
                self.channel.sendall(struct.pack(f"<{len(answer) + 2}q", OK, len(answer), *answer))

    def _answer(self, what: int, data: bytes, fds: list[int]) -> list[int]:
        if what == LOAD:
            (size,) = struct.unpack_from("<q", data)
            self.dims = json.loads(data[8 : 8 + size])
            return [0]  # launches
        if what == BIND:
            return self._bind(struct.unpack(f"<{len(data) // 8}q", data), fds)
        if what == RUN:
            (secret,) = struct.unpack_from("<q", os.read(fds[0], 8))
            os.close(fds[0])
            return [self._run(struct.unpack_from("<2q", data)[1]), 0, secret, 0]
        return []

    def _read(self, count: int) -> tuple[bytes, list[int]]:
        data, fds = b"", []
        while len(data) < count:
            chunk, got, _, _ = socket.recv_fds(self.channel, count - len(data), 4)
            if not chunk:
                sys.exit(0)
            data += chunk
            fds += got
        return data, fds

    def _bind(self, words: tuple[int, ...], fds: list[int]) -> list[int]:
        slot, count = words[0], words[1]
        operator, dims = self.functions.operator, self.dims[words[0]]
        names = [t.name for t in operator.tensors if t.role == "in"] + [t.name for t in operator.outputs]
        tensors: dict[str, torch.Tensor] = {}
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        maps = [mmap.mmap(fds[0], 0, shared, mmap.PROT_READ), mmap.mmap(fds[1], 0, shared)]
        for name, (writable, offset, _, data_offset) in zip(
            names, (words[i : i + 4] for i in range(2, 2 + 4 * count, 4)), strict=True
        ):
            tensor = next(t for t in operator.tensors if t.name == name)
            element, shape = resolve_dtype(tensor.dtype, self.dtype), tensor.sizes(dims)
            begin = offset + data_offset
            view = memoryview(maps[writable])[begin : begin + element.size * math.prod(shape)]
            kind = TORCH_DTYPES[element.name]
            tensors[name] = (
                torch.frombuffer(view, dtype=kind).reshape(shape) if len(view) else torch.empty(shape, dtype=kind)
            )
        for fd in fds:
            os.close(fd)
        values: dict[str, Any] = dict(dims) | {s.name: s.value for s in operator.scalars}
        values |= {t.name: tensors[t.name] for t in operator.inputs}
        call = self.functions.bound(self.call, handed(values, self.call.arrays))
        self.slots[slot] = (call, {t.name: tensors[t.name] for t in operator.outputs})
        return [0] * count

    def _run(self, slot: int) -> int:
        call, outputs = self.slots[slot]
        settled = time.perf_counter_ns() + SETTLE_NS
        while time.perf_counter_ns() < settled:
            pass
        begin = time.perf_counter_ns()
        result = call()
        elapsed = time.perf_counter_ns() - begin
        for name, value in taken(result, list(outputs)).items():
            outputs[name].copy_(value)
            storage = value.untyped_storage()  # the next result will lie there
            checks().evo_flush(storage.data_ptr(), storage.nbytes())
        return elapsed


def main() -> None:
    """Entry point of the process."""
    folder, dtype, name, threads, fd = sys.argv[1:]
    warnings.simplefilter("ignore")  # torch warns of read-only memory; nothing writes to inputs here
    torch.set_num_threads(int(threads))
    torch.set_grad_enabled(False)
    torch.ones(HEAP_BYTES, dtype=torch.uint8)
    gc.disable()  # it would come in the midst of a call
    with socket.socket(fileno=int(fd)) as channel:
        LibraryServer(folder, dtype, name, channel).serve()


if __name__ == "__main__":
    main()
