"""Bytes between us and the processes that compile or run kernels, over socket pairs; none of them is trusted."""

from __future__ import annotations

import math
import socket
import struct
import time
from collections.abc import Sequence

_LENGTH = struct.Struct("<I")
_CHUNK_BYTES = 1 << 20


def send(channel: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """All of it, with file descriptors beside its first byte. Raises OSError where the other side is gone."""
    channel.settimeout(None)
    sent = socket.send_fds(channel, [data], list(fds)) if fds else 0
    channel.sendall(data[sent:])


def receive(channel: socket.socket, count: int, deadline: float = math.inf, fds: list[int] | None = None) -> bytes:
    """This number of bytes; file descriptors that come with them are appended to `fds`, if that is given.

    Raises TimeoutError once `time.monotonic()` is past the deadline, and EOFError where the other side is gone.
    """
    data = bytearray()
    while len(data) < count:
        left = deadline - time.monotonic()
        most = min(count - len(data), _CHUNK_BYTES)
        try:
            channel.settimeout(None if math.isinf(left) else max(left, 1e-6))  # 0 would mean not to wait at all
            chunk = channel.recv(most) if fds is None else _with_descriptors(channel, most, fds)
        except TimeoutError:
            raise
        except OSError:
            chunk = b""
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _with_descriptors(channel: socket.socket, most: int, fds: list[int]) -> bytes:
    # As many as the kernel passes in one message (SCM_MAX_FD).
    chunk, got, _, _ = socket.recv_fds(channel, most, 253)
    fds += got
    return chunk


def send_frame(channel: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """`data` with its length before it. Raises as `send`."""
    send(channel, _LENGTH.pack(len(data)) + data, fds)


def receive_frame(
    channel: socket.socket, deadline: float = math.inf, *, most_bytes: int = 1 << 32, fds: list[int] | None = None
) -> bytes:
    """The frame that `send_frame` sent. Raises as `receive`, and ValueError where it says that it is longer than
    allowed."""
    (size,) = _LENGTH.unpack(receive(channel, _LENGTH.size, deadline, fds))
    if size > most_bytes:
        raise ValueError(f"a message of {size} bytes")
    return receive(channel, size, deadline, fds)
