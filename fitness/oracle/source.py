"""A foreign source that no graph can say, asked for results by a process of its own without network or files."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fitness.sandbox.channel import receive_frame, send_frame
from fitness.sandbox.foreign import MEMORY_BYTES, furnished
from fitness.sandbox.processes import ended, kill_group, start_child
from operators.errors import OperatorError
from operators.files import read_text
from operators.importing.executing import packed, unpacked

ANSWER_S = 120.0
"""Seconds of wall time that an answer may take, the start of the process included."""
COMPUTE_S = 60
"""Seconds that the source may compute for an answer."""
FILE_BYTES = 1 << 20
MOST_BYTES = 1 << 32


class _Process:
    """The process that executes a source."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="evo-source-")
        place = self._folder.name
        environment, readable = furnished(place, files)
        self.channel, theirs = socket.socketpair()
        command = [sys.executable, "-m", "operators.importing.executing", str(theirs.fileno())]
        self._child = start_child(
            command, theirs, environment=environment, memory_bytes=MEMORY_BYTES, file_bytes=FILE_BYTES, alone=True,
            readable=readable, place=place,
        )  # fmt: skip
        self.close = weakref.finalize(self, _end, self.channel, self._child, self._folder)

    def is_over(self) -> bool:
        """Whether it ended: it does so with the thread that began it."""
        return ended(self._child)


def _end(channel: socket.socket, child: Any, folder: Any) -> None:
    channel.close()
    kill_group(child, alone=True)
    folder.cleanup()


class ConfinedSource:
    """The source that a file `source.json` holds. Any thread may ask it; one is answered at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        told = json.loads(read_text(path))
        asked = {"request": told["request"], "changed": told["changed"]}
        self._files = {**told["files"], "request.json": json.dumps(asked)}
        self._outputs: list[str] = told["outputs"]
        self._arguments: list[str] = told["inputs"]
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def results(self, tensors: Mapping[str, torch.Tensor], dims: Mapping[str, int]) -> dict[str, torch.Tensor]:
        """All results for these inputs, computed in fp64 or in the type of the inputs."""
        device = next(iter(tensors.values())).device
        found = self._asked(tensors, dims, 0)
        return {name: each.to(device) for name, each in zip(self._outputs, found, strict=True)}

    def made(
        self, names: Sequence[str], dims: Mapping[str, int], rng: np.random.Generator, device: torch.device
    ) -> dict[str, torch.Tensor]:
        """Some inputs as the source or its definition makes them: offsets, places, lengths, masks."""
        found = dict(zip(self._arguments, self._asked({}, dims, int(rng.integers(2**31))), strict=True))
        plain = {
            name: found[name].to(torch.uint8) if found[name].dtype == torch.bool else found[name] for name in names
        }
        return {name: each.to(device) for name, each in plain.items()}

    def _asked(self, tensors: Mapping[str, torch.Tensor], dims: Mapping[str, int], seed: int) -> list[torch.Tensor]:
        question = packed({"dims": dict(dims), "seed": seed, "seconds": COMPUTE_S}, tensors)
        with self._lock:
            try:
                head, found = unpacked(self._answer(question))
            except (TimeoutError, EOFError, OSError, ValueError, KeyError, TypeError) as error:
                if self._process:
                    self._process.close()
                self._process = None
                raise OperatorError(f"{self._path}: the source gave no answer ({type(error).__name__})") from None
        if "failed" in head:
            raise OperatorError(f"{self._path}: {' '.join(str(head['failed']).split())[:300]}")
        return list(found.values())

    def _answer(self, question: bytes) -> bytes:
        if self._process is None or self._process.is_over():
            self._process = _Process(self._files)
        send_frame(self._process.channel, question)
        return receive_frame(self._process.channel, time.monotonic() + ANSWER_S, most_bytes=MOST_BYTES)


def of_rows(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """S of the error bound of results of which nothing but themselves is known: |y|, and the root mean square of its
    row."""
    sizes = {}
    for name, y in outputs.items():
        finite = y.double().nan_to_num(0.0, 0.0, 0.0).abs()
        sizes[name] = finite + (finite.square().mean(-1, keepdim=True).sqrt() if y.dim() else 0.0)
    return sizes
