"""Files of users: read as far as such files go, as one named by mistake is to take neither time nor memory; written."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from operators.errors import DISK_FAULTS, DiskError, MachineError, UserError

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
"""Error numbers that blame a machine which cannot open or read a file, rather than the file."""
MAX_TEXT_BYTES = 4 << 20
"""The largest file that a person writes (a configuration, an operator, Python), in bytes."""


def python_fault(error: SyntaxError) -> str:
    """Return what is wrong with a file's Python, and where, without the name of the file."""
    return f"not valid Python: line {error.lineno or 1}: {error.msg}"


def read_text(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> str:
    """The text of a UTF-8 file, its lines ended by `\\n`.

    It raises OSError, for a file that is longer too, and UnicodeDecodeError.
    """
    return read_bytes(path, most_bytes).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, most_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a file. It raises OSError, for one that is longer too, and MachineError where it is not to blame."""
    try:
        with path.open("rb") as stream:
            data = stream.read(most_bytes + 1)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise MachineError(f"{path}: cannot be read now: {error.strerror}") from error
        raise
    if len(data) > most_bytes:
        most = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes >> 10} KiB"
        raise OSError(errno.EFBIG, f"it is longer than {most}, the most that is allowed", str(path))
    return data


@contextmanager
def writing(place: object, cure: str = "") -> Iterator[None]:
    """Where the system does not let a user's `place` be written, raise UserError, which ends with the `cure`.

    It is a DiskError where a disk is to blame.
    """
    try:
        yield
    except OSError as error:
        kind = DiskError if error.errno in DISK_FAULTS else UserError
        raise kind(f"{place}: cannot be written: {error.strerror}{cure}") from None


def write_new(option: str, file: Path, data: bytes, *, replace: bool = False) -> None:
    """Write the file that an option names, which must be new unless it may `replace` one. It raises UserError."""
    with writing(f"{option} {file}"):
        try:
            with file.open("wb" if replace else "xb") as stream:
                stream.write(data)
        except FileExistsError:
            raise UserError(f"{option} {file}: exists already; name another file, or say --force") from None
