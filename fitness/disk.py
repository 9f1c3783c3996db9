"""Whether a compiler failed for want of room on the disk: then its source is not to blame."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from operators.errors import DiskError

FILE_BYTES = 256 << 20
"""The largest file that a compiler may write."""


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
