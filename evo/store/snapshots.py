"""Snapshots of a run that is being written, for readers in other processes: copies asked for over a socket.

A reader connects to `evo.sock` in the run's folder, sends `snapshot` and a newline, and is sent one line of JSON:
`{"path": "snapshots/..."}`, relative to the folder, or `{"error": "..."}`. The file may be gone by the time that the
reader opens it (a newer one took its place): then it asks again. Once open, it stays readable.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from evo.store.errors import StoreError, one_line

SOCKET = "evo.sock"
FOLDER = "snapshots"
ANSWER_TIMEOUT_S = 60.0
REQUEST_TIMEOUT_S = 2.0
CHUNK_BYTES = 256 << 20


class SnapshotServer:
    """Answers readers one after the other, in a thread of its own."""

    def __init__(self, folder: Path, snapshot: Callable[[], str]) -> None:
        """`snapshot` makes or reuses one and returns its path relative to `folder`. Raises OSError: no socket here."""
        self._folder = folder
        self._snapshot = snapshot
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            (folder / SOCKET).unlink(missing_ok=True)
            with _short_path(folder) as path:
                self._listening.bind(path)
            self._listening.listen()
        except OSError:
            self._listening.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="evo-snapshots", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The server stops answering and removes its socket."""
        (self._folder / SOCKET).unlink(missing_ok=True)
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # a reader that went away
                connection.settimeout(REQUEST_TIMEOUT_S)
                connection.sendall(json.dumps(self._answer(_line(connection))).encode() + b"\n")

    def _answer(self, request: str) -> dict[str, str]:
        if request != "snapshot":
            return {"error": f"unknown request {request[:40]!r}; send `snapshot`"}
        try:
            return {"path": self._snapshot()}
        except duckdb.Error as error:
            return {"error": one_line(error)}
        except (StoreError, OSError, RuntimeError) as error:  # RuntimeError: the writer is closing
            return {"error": str(error)}


def ask(folder: Path) -> Path | None:
    """A snapshot from the run's living writer; None where no writer answers. It raises StoreError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(ANSWER_TIMEOUT_S)
            with _short_path(folder) as path:
                connection.connect(path)
            connection.sendall(b"snapshot\n")
            line = _line(connection)
        except OSError:
            return None
    if not line:
        return None
    answer = json.loads(line)
    if "error" in answer:
        raise StoreError(f"run {folder.name}: no snapshot: {answer['error']}")
    return folder / str(answer["path"])


def has_writer(folder: Path) -> bool:
    """Whether a living process listens on the run's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short_path(folder) as path:
        return connection.connect_ex(path) == 0


def copy(source: Path, folder: Path) -> Path:
    """A copy of `source`, which must not change meanwhile, as a new file in `folder`; it is the only one left there."""
    folder.mkdir(exist_ok=True)
    target = folder / f"{time.time_ns()}.duckdb"
    part = target.with_suffix(".part")
    copy_file(source, part)
    part.rename(target)
    clear(folder, keep=target)
    return target


def copy_file(source: Path, target: Path) -> None:
    """Copy a database's file, which this process has open and which must not change meanwhile. It raises StoreError.

    The copy is read from the database's own descriptor: to close any other would release the lock on the file, as
    POSIX locks are a process's and not a descriptor's (fcntl(2)).
    """
    try:
        reading, writing = _descriptor(source), os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _copy_bytes(reading, writing)
        finally:
            os.close(writing)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise StoreError(f"copying {source.name} failed: {error.strerror}") from error


def _descriptor(path: Path) -> int:
    """The descriptor by which this process has a file open. It raises OSError."""
    wanted = path.stat()
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the listing's own is closed again
            if os.path.samestat(os.fstat(int(entry.name)), wanted):
                return int(entry.name)
    raise OSError(errno.EBADF, "the database is not open here")


def _copy_bytes(reading: int, writing: int) -> None:
    at = 0
    # In the kernel, and where the file system shares blocks (XFS, Btrfs) without copying anything.
    with suppress(OSError):
        while moved := os.copy_file_range(reading, writing, CHUNK_BYTES, at):
            at += moved
        return
    os.lseek(writing, at, os.SEEK_SET)
    while block := os.pread(reading, 1 << 20, at):
        at += os.write(writing, block)


def clear(folder: Path, *, keep: Path | None = None) -> None:
    """Remove all snapshots but the one to `keep`."""
    for path in folder.glob("*"):
        if path != keep and path.is_file():
            path.unlink(missing_ok=True)


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """The socket's path by way of /proc: a socket's own path may have 107 bytes at most."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def _line(connection: socket.socket) -> str:
    with connection.makefile("rb") as lines:
        return lines.readline(1 << 16).decode(errors="replace").strip()
