"""Faults of the machine where a compiler failed: then its source is not to blame."""

from __future__ import annotations

import errno
import os
import re
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path

from operators.errors import DiskError, MachineError, quote

FILE_BYTES = 256 << 20
"""The largest file that a compiler may write."""
KILLED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT)
"""Exit codes of a tool that was ended from outside: none of these comes of its input."""
JAIL_FAILED = 125
"""Exit code of a jail that could not start its program."""
SHORT = "|".join(re.escape(os.strerror(fault)) for fault in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN))
TOOL_KILLED = re.compile(
    rf"^(jail|g\+\+|gcc|collect2)(: fatal error)?: .*(Killed|Terminated|Hangup) signal terminated program"
    rf"|^(jail|g\+\+|gcc|collect2|as|ld)(: fatal error)?: .*({SHORT})$",
    re.MULTILINE,
)
"""Messages of a compiler, in its own name, on parts that were killed or that the machine could not start."""


def refuse_machine_fault(returncode: int, said: str, folder: str | Path, needed: Iterable[str] = ()) -> None:
    """Raise MachineError if a compiler that failed in `folder` was killed, or found no machine to work on.

    `needed` are other places that it reads. Its words alone make a source look like a victim, which does not make us
    judge it more kindly: it is only tried again.
    """
    refuse_full_disk(said, folder)
    if gone := next((path for path in (str(folder), *needed) if not Path(path).exists()), ""):
        raise MachineError(f"{gone}: was removed while a compiler worked with it")
    if returncode in KILLED or returncode == JAIL_FAILED:
        reason = quote(said.strip()) if said.strip() else f"code {returncode}"
        raise MachineError(f"a compiler was ended, or not begun: {reason}")
    if found := TOOL_KILLED.search(said):
        raise MachineError(f"a compiler was ended, or not begun: {quote(found[0])}")


def refuse_full_disk(said: str, folder: str | Path) -> None:
    """Raise DiskError if a compiler that failed in `folder` says that there was no room, and there is little.

    Its words alone are not believed: a source can make a compiler say anything.
    """
    for fault in (errno.ENOSPC, errno.EDQUOT):
        reason = os.strerror(fault)
        if reason in said and _is_short(folder):
            raise DiskError(f"{folder}: the compiler cannot write there: {reason}")


def _is_short(folder: str | Path) -> bool:
    """Whether a file of FILE_BYTES would not fit."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < FILE_BYTES or (disk.f_files and not disk.f_favail):
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # a quota shows nowhere else
            os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False
