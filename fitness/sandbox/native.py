"""Our own small native programs: compiled once per machine, kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from fitness.sandbox.disk import refuse_full_disk
from operators.errors import MachineError
from operators.identity import digest

HERE = Path(__file__).parents[1]
CXX = "g++"
LEFT_S = 3600.0
"""Age at which a folder was left behind: no compiler works for so long on one of our own programs."""


class ToolchainError(MachineError):
    """The machine lacks a working C++ compiler."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/kernel-evo`, by default under `~/.cache`; made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "kernel-evo"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compiler_environment() -> dict[str, str]:
    """Return the environment variables that keep what torch.compile makes in the user's cache folder."""
    folder = cache_folder() / "compiled"
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}


def publish(path: Path, data: bytes) -> None:
    """Write a whole file or none, whichever process writes or reads it at the same time."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


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
def _place(kind: str, text: str, *command: str) -> str:
    """The name that the cache has for what a compiler makes of a text."""
    return f"{kind}-{digest(text, *command, compiler_version())[:16]}"


@contextlib.contextmanager
def _workplace(cache: Path) -> Iterator[str]:
    """A folder beside what is made in it. Those of killed processes are removed."""
    for left in cache.glob("tmp*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_S:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        yield folder


def built(source: str, *flags: str) -> Path:
    """The compiled form of one of our own sources (a path below fitness/), made again wherever it is missing.

    Safe under concurrent use.
    """
    command = (CXX, "-std=c++17", "-O2", *flags)
    target = cache_folder() / _place(Path(source).stem, _text(source), *command)
    if not target.exists():
        with _workplace(target.parent) as folder:
            partial = Path(folder) / target.name
            run = subprocess.run(
                [*command, str(HERE / source), "-o", str(partial), "-ldl"], capture_output=True, text=True
            )
            if run.returncode != 0:
                refuse_full_disk(run.stderr, folder)
                raise ToolchainError(f"{CXX} cannot build {source}: {run.stderr.strip().splitlines()[:1]}")
            partial.replace(target)
    return target


@lru_cache
def _text(source: str) -> str:
    """One of our own sources, with all that it may include."""
    return "".join(path.read_text(encoding="utf-8") for path in (HERE / source, *sorted(HERE.glob("native/*.hpp"))))


def precompiled(includes: str, *flags: str) -> Path:
    """A header of these lines, for `-include` with the same flags, with its compiled form beside it.

    GCC takes the compiled form where it fits, which is several times faster, and the lines themselves elsewhere. It is
    made again wherever it is missing.
    """
    folder = cache_folder() / _place("headers", includes, *flags)
    if not (folder / "headers.hpp").exists():
        with _workplace(folder.parent) as scratch:
            header = Path(scratch, "made", "headers.hpp")
            header.parent.mkdir()
            header.write_text(includes, encoding="utf-8")
            command = [CXX, *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                refuse_full_disk(run.stderr, scratch)
                raise ToolchainError(f"{CXX} cannot compile its own headers: {run.stderr.strip().splitlines()[:1]}")
            # File by file: the folder stays the one that jails of other processes may already read.
            folder.mkdir(exist_ok=True)
            for made in (Path(f"{header}.gch"), header):
                made.replace(folder / made.name)
    return folder / "headers.hpp"


@lru_cache
def checks() -> ctypes.CDLL:
    """The functions of checks.cpp, typed."""
    library = ctypes.CDLL(str(built("native/checks.cpp", "-shared", "-fPIC", "-O3")))
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    library.evo_fill.argtypes = (pointer, int64, ctypes.c_int)
    library.evo_fill.restype = None
    library.evo_differs.argtypes = (pointer, int64, ctypes.c_int)
    library.evo_differs.restype = int64
    library.evo_flush.argtypes = (pointer, int64)
    library.evo_flush.restype = None
    return library


def jailed(
    command: list[str],
    *,
    cpu_s: int = 0,
    memory_bytes: int = 0,
    file_bytes: int = 0,
    readable: Sequence[str] | None = None,
    writable: Sequence[str] = (),
    alone: bool = False,
) -> list[str]:
    """`command` under limits, in its own session (kill its group with `os.killpg`), dying with this thread.

    With `readable` it reaches no other files than those below these paths and `writable`, and no network, as far as
    the machine has Landlock and seccomp (`evo doctor` tells). `alone`, as code of a candidate must be, it sees no
    other process: its number for us is that of the jail, which ends as it ends and takes all that it started along.
    """
    limits = (os.getpid(), cpu_s, memory_bytes, file_bytes)
    paths = ("*", "") if readable is None else (":".join(readable), ":".join(writable))
    return [str(built("native/jail.cpp")), *map(str, limits), *paths, str(int(alone)), "--", *command]


@lru_cache
def toolchain_folders() -> tuple[str, ...]:
    """The folders that the compiler and its programs must read: their own folders, the system's headers and
    libraries."""
    found = {str(Path(path).resolve()) for path in ("/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64")}
    found |= {"/usr/libexec", "/etc/ld.so.cache", *include_folders()}
    compiler = shutil.which(CXX)
    if compiler:
        found.add(str(Path(compiler).resolve().parent))
    run = subprocess.run([CXX, "-print-search-dirs"], capture_output=True, text=True, check=False, timeout=60)
    for line in run.stdout.splitlines():
        kind, _, paths = line.partition(": ")
        if kind in ("install", "programs", "libraries"):
            found |= {os.path.realpath(path) for path in paths.lstrip("=").split(":") if path}
    return tuple(sorted(path for path in found if Path(path).exists()))


@lru_cache
def include_folders() -> tuple[str, ...]:
    """Where the compiler looks for `<...>` headers."""
    run = subprocess.run(
        [CXX, "-xc++", "-E", "-v", os.devnull], capture_output=True, text=True, check=False, timeout=60
    )
    listed = run.stderr.partition("#include <...> search starts here:")[2].partition("End of search list")[0]
    return tuple(os.path.realpath(line.strip()) for line in listed.splitlines() if line.strip())
