"""What one request finds out for others that want the same: verdicts that are announced before they are there."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

Promised = TypeVar("Promised")


async def announced(place: dict[str, asyncio.Future[Promised]], key: str) -> Promised | None:
    """What another request found, or is about to find, under this key; None: no request looks for it.

    Waiting for it does not cancel it, and its own cancelling is not ours: then the next one is asked.
    """
    while earlier := place.get(key):
        try:
            return await asyncio.shield(earlier)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not earlier.cancelled() or (waiting and waiting.cancelling()):
                raise
    return None


class promise(Generic[Promised]):
    """Announces a verdict under a key, and takes the announcement back when it never comes."""

    def __init__(self, place: dict[str, asyncio.Future[Promised]], key: str) -> None:
        self._place = place
        self._key = key

    def __enter__(self) -> asyncio.Future[Promised]:
        self._future: asyncio.Future[Promised] = asyncio.get_running_loop().create_future()
        self._place[self._key] = self._future
        return self._future

    def __exit__(self, *_: object) -> None:
        if not self._future.done():
            del self._place[self._key]
            self._future.cancel()
