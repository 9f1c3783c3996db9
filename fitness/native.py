"""Our own small native programs: compiled once per machine, kept in the user's cache folder."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from operators.errors import UserError
from operators.identity import digest

HERE = Path(__file__).parent
CXX = "g++"


class ToolchainError(UserError):
    """The machine lacks a working C++ compiler."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/kernel-evo`, by default under `~/.cache`; made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "kernel-evo"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@lru_cache
def compiler_version() -> str:
    """First line of `g++ --version`. Raises ToolchainError when there is none."""
    try:
        run = subprocess.run([CXX, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            f"{CXX} does not run ({error}); install it (Debian, Ubuntu: apt-get install g++)"
        ) from None
    return run.stdout.splitlines()[0]


@lru_cache
def built(source: str, *flags: str) -> Path:
    """The compiled form of one of our own sources (a path below this package). Safe under concurrent first use."""
    text = (HERE / source).read_text(encoding="utf-8")
    command = (CXX, "-std=c++17", "-O2", *flags)
    target = cache_folder() / f"{Path(source).stem}-{digest(text, *command, compiler_version())[:16]}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            partial = Path(folder) / target.name
            run = subprocess.run(
                [*command, str(HERE / source), "-o", str(partial), "-ldl"], capture_output=True, text=True
            )
            if run.returncode != 0:
                raise ToolchainError(f"{CXX} cannot build {source}: {run.stderr.strip().splitlines()[:1]}")
            partial.replace(target)
    return target


class Report(ctypes.Structure):
    """Mirror of `Report` in checks.cpp."""

    _fields_ = (("max_ratio", ctypes.c_double), ("mismatches", ctypes.c_int64), ("first_bad", ctypes.c_int64))


@lru_cache
def checks() -> ctypes.CDLL:
    """The functions of checks.cpp, typed."""
    library = ctypes.CDLL(str(built("native/checks.cpp", "-shared", "-fPIC", "-O3")))
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    for name in ("evo_compare_f32", "evo_compare_f64"):
        getattr(library, name).argtypes = (pointer, pointer, pointer, int64, ctypes.POINTER(Report))
        getattr(library, name).restype = None
    library.evo_fill.argtypes = (pointer, int64, ctypes.c_int)
    library.evo_fill.restype = None
    library.evo_differs.argtypes = (pointer, int64, ctypes.c_int)
    library.evo_differs.restype = int64
    library.evo_flush.argtypes = (pointer, int64)
    library.evo_flush.restype = None
    return library


def jailed(command: list[str], *, cpu_s: int = 0, memory_bytes: int = 0, file_bytes: int = 0) -> list[str]:
    """`command` under limits, in its own session (kill its group with `os.killpg`), dying with this thread."""
    limits = (os.getpid(), cpu_s, memory_bytes, file_bytes)
    return [str(built("native/jail.cpp")), *map(str, limits), "--", *command]
