"""The side of a GPU process that answers the verifier. Imports no torch."""

from __future__ import annotations

import json
import pickle
import socket
from collections.abc import Callable, Sequence
from typing import Any

from fitness.sandbox.channel import receive_frame, send_frame

READY = b"{}"


def begin(channel: socket.socket) -> None:
    """Tell that all is loaded, and wait until the device may be touched. The process ends with the verifier."""
    send_frame(channel, READY)
    _request(channel)  # whatever it says


def serve(channel: socket.socket, answered: Callable[[str, Sequence[Any]], dict[str, Any]]) -> None:
    """Tell that the context is made, and answer requests until the verifier hangs up.

    `answered` is called with a method and its arguments; those of `bind` begin with file descriptors.
    """
    send_frame(channel, READY)
    while True:
        body, fds = _request(channel)
        method, *arguments = pickle.loads(body)
        if method == "bind":
            arguments.insert(0, fds)
        send_frame(channel, json.dumps(answered(method, arguments)).encode())


def _request(channel: socket.socket) -> tuple[bytes, list[int]]:
    """The next one, pickled, and the file descriptors that came with it. The process ends with the verifier."""
    fds: list[int] = []
    try:
        return receive_frame(channel, fds=fds), fds
    except EOFError:
        raise SystemExit(0) from None
