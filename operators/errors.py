"""Errors a user can cure, each of them one clear line."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path


class UserError(Exception):
    """Something the user gave us is wrong; the text is one line: where, what is wrong, what would be right."""


class MachineError(UserError):
    """A machine failed at what it was asked to do: no kernel is to blame, and elsewhere or later it may be done."""


class DeviceError(MachineError):
    """A device that kernels run on is not there, or has failed; another one may still work."""


class DiskError(MachineError):
    """A disk is full, or does not take what must be written to it; what was written before is still there."""


DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""Error numbers that blame a disk rather than what was asked of it."""


def disk_error(error: OSError, folder: str | Path = "") -> DiskError | None:
    """The fault of a disk that an error of the operating system tells; None where it tells none.

    `folder` is one that only we write to: a failure there, as when it was removed, is no fault of a kernel.
    """
    place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    ours = folder and place and Path(place).is_relative_to(folder)
    if error.errno not in DISK_FAULTS and not ours:
        return None
    return DiskError(f"{place or folder or 'a file'}: cannot be written: {error.strerror}")


SHORT_OF = ("can't allocate memory", "not enough memory", "can't start new thread")
"""Texts of libraries' errors that have no kind of their own, where a machine has no more memory or processes to
give."""


def machine_error(error: Exception) -> MachineError | None:
    """The fault of the machine that an exception tells of; None: it is ours, or the user's, to mend."""
    if isinstance(error, MachineError):
        return error
    if isinstance(error, MemoryError) or any(words in str(error) for words in SHORT_OF):
        return MachineError(f"no memory, or no thread, is left: {quote(str(error) or type(error).__name__)}")
    if isinstance(error, ImportError) and (error.path or "").endswith(".so"):  # it is there, and cannot be loaded
        return MachineError(f"a library cannot be loaded: {quote(str(error))}")
    if isinstance(error, OSError):
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return disk_error(error) or MachineError(f"{place}{error.strerror or error}")
    if isinstance(error, EOFError | subprocess.SubprocessError):
        return MachineError(f"a process of ours ended: {quote(str(error) or type(error).__name__)}")
    return None


class OperatorError(UserError):
    """An operator folder is missing something or contradicts itself."""


class PlanError(UserError):
    """The header of a kernel file cannot be used.

    A kernel that raises this is data (`Evaluation` status `invalid`), not a failure of the engine.
    """

    def __init__(self, message: str, *, line: int | None = None, source: str | Path | None = None) -> None:
        self.message = message
        self.line = line
        self.source = str(source) if source is not None else None
        where = ":".join(str(part) for part in (self.source, line and f"line {line}") if part)
        super().__init__(f"{where}: {message}" if where else message)


class UnwrittenError(PlanError):
    """Functions of a kernel file are left to write, as its header says."""


FEW_NAMES, MOST_NAMES, NEAREST = 3, 24, 5
"""Number of known names that are told beside the nearest, since `gpu` is near `cpu` and means `cuda`; of those that are
all told where none is near; and of the nearest that are told of more."""


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """One phrase for a name that does not exist, with the nearest of the known ones, or all of a few.

    `kind` is what the name should be the name of: "strategy", "tunable".
    """
    near = get_close_matches(name[:60], known, n=1)
    if near:
        all_of_few = f" Allowed are {', '.join(sorted(known))}" if 1 < len(known) <= FEW_NAMES else ""
        hint = f"did you mean `{near[0]}`?{all_of_few}"
    elif len(known) > MOST_NAMES:
        nearest = get_close_matches(name[:60], known, n=NEAREST, cutoff=0.0)
        hint = f"the nearest of {len(known)} are {', '.join(nearest)}"
    else:
        hint = f"allowed are {', '.join(sorted(known)) or 'none'}"
    return f"unknown {kind} {quote(name, 60)}; {hint}"


def quote(text: str, length: int = 80) -> str:
    """`text` as a message shows it: in backticks, on one line, printable and of bounded length."""
    cut = f"{text[: length - 3]}..." if len(text) > length else text
    return f"`{' '.join(''.join(c if c.isprintable() or c.isspace() else '?' for c in cut).split())}`"
