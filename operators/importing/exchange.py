"""Tensors between a process that executes a foreign source and one that asks it, as bytes with a head of JSON.

Nothing of a message is executed where it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch

from operators.importing.arguments import DTYPES as TYPES

_NAMES = {dtype: name for name, dtype in TYPES.items()}
_BYTES_OF_HEAD = 4


def packed(head: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return a message of a table and of tensors by name."""
    told = [[name, _NAMES[each.dtype], list(each.shape)] for name, each in tensors.items()]
    text = json.dumps({"head": dict(head), "tensors": told}).encode()
    raw = (
        each.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for each in tensors.values()
    )
    return b"".join((len(text).to_bytes(_BYTES_OF_HEAD, "little"), text, *raw))


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return what `packed` was given. It raises ValueError, KeyError or TypeError for another message."""
    begin = _BYTES_OF_HEAD + int.from_bytes(message[:_BYTES_OF_HEAD], "little")
    told = json.loads(message[_BYTES_OF_HEAD:begin])
    tensors = {}
    for name, type_name, shape in told["tensors"]:
        dtype = TYPES[type_name]
        size = math.prod(shape) * dtype.itemsize
        if size < 0 or begin + size > len(message):
            raise ValueError(f"a message without all of `{name}`")
        raw = (
            torch.frombuffer(bytearray(message[begin : begin + size]), dtype=dtype)
            if size
            else torch.empty(0, dtype=dtype)
        )
        tensors[str(name)] = raw.reshape(shape)
        begin += size
    return dict(told["head"]), tensors
