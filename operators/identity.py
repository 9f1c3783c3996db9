"""Digests that identify things: every field length-prefixed, so that no two different tuples share one."""

from __future__ import annotations

import hashlib


def digest(*fields: str | bytes | int) -> str:
    """32 hex digits (BLAKE2b, 128 bits) over the fields, their types, lengths and order."""
    state = hashlib.blake2b(digest_size=16)
    for field in fields:
        kind = {str: b"s", bytes: b"b", int: b"i"}[type(field)]
        data = field if isinstance(field, bytes) else str(field).encode(errors="surrogatepass")
        state.update(kind + len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def is_digest(text: str) -> bool:
    """Return whether a text is what `digest` may have returned; names that people give kernels by hand are not."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def short(digits: str | None) -> str:
    """The first 12 digits of an id, enough for people to tell it from others; empty where there is none."""
    return (digits or "")[:12]
