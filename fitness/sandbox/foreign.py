"""The place where a foreign source is executed: a folder with its files, our package and Python, and nothing else."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import operators
from fitness.sandbox.processes import GIB, PYTHON_LOCALE

MEMORY_BYTES = 12 * GIB
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "TORCHDYNAMO_DISABLE": "1"}


def furnished(place: str, files: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Write files into a folder, beside our own package; return the environment and the readable paths of a process
    that is confined to it. It raises FileExistsError where a file has the package's name."""
    for file, text in files.items():
        Path(place, file).parent.mkdir(parents=True, exist_ok=True)
        Path(place, file).write_text(text, encoding="utf-8")
    ours = Path(operators.__file__).resolve().parent
    Path(place, "operators").symlink_to(ours)  # what else lies beside the package is out of reach
    libraries = _library_folders(ours)
    environment = {"PYTHONPATH": os.pathsep.join([place, *libraries]), "HOME": place, **PYTHON_LOCALE, **ENVIRONMENT}
    return environment, [*_readable(str(ours)), *libraries]


def _library_folders(ours: Path) -> list[str]:
    """Folders of packages that PYTHONPATH names, but for the one that our own packages stand in."""
    named = [Path(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return [str(path) for path in named if path.is_dir() and path.resolve() != ours.parent]


def _readable(ours: str) -> list[str]:
    """Python, its libraries, and what they ask the system for."""
    paths = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent), sysconfig.get_path("purelib")}
    paths |= {sysconfig.get_path("stdlib"), ours, "/usr/lib", "/lib", "/lib64", "/etc/ld.so.cache"}
    paths |= {"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu", os.devnull, "/dev/urandom"}
    return sorted(path for path in paths if Path(path).exists())
