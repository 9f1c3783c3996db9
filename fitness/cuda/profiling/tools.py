"""NVIDIA's tools that watch a process: where they are, and how one of them is run over a candidate."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from fitness.cuda.profiling.solo import Solo
from fitness.cuda.running.driver import ENVIRONMENT
from fitness.sandbox.processes import PYTHON_LOCALE, ProcessOutcome, run_confined

FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/cuda/bin", "/opt/nvidia/nsight-compute/*")

OUTPUT_BYTES, REPORT_BYTES = 64 << 10, 64 << 20
"""Most output of a tool that is read: while it watches, and of its report, which has a line for every instruction."""

PARAMETERS = Path("/proc/driver/nvidia/params")


@lru_cache
def find_tool(name: str) -> str | None:
    """The path of ncu or compute-sanitizer: from PATH, CUDA_HOME, or where they are usually installed."""
    if found := shutil.which(name):
        return found
    homes = [Path(os.environ[v]) / "bin" for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    usual = [path for folder in FOLDERS for path in sorted(Path("/").glob(folder.lstrip("/")), reverse=True)]
    for folder in (*homes, *usual):
        if os.access(folder / name, os.X_OK) and (folder / name).is_file():
            return str(folder / name)
    return None


def profiling_is_for_root() -> bool:
    """Whether NVIDIA's driver was told so; False where it says nothing."""
    try:
        return "RmProfilingAdminOnly: 1" in PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        return False


def watch(tool: Sequence[str], solo: Path, *, scratch: Path, timeout_s: float) -> ProcessOutcome:
    """Run a command of ours that ends with the program to be watched: `fitness.cuda.profiling.solo` on this file.

    The candidate was verified; the tools need what a sandbox would take from them. Limits and deadlines hold all the
    same, and nothing of the environment is passed on but what the driver goes by.
    """
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= PYTHON_LOCALE
    command = [*tool, sys.executable, "-m", "fitness.cuda.profiling.solo", str(solo)]
    return _confined(command, scratch, timeout_s, environment)


def tell(tool: Sequence[str], *, scratch: Path, timeout_s: float) -> ProcessOutcome:
    """Run a tool that reads its own report and prints what it says; the GPU is not used."""
    return _confined([*tool], scratch, timeout_s, {}, output_bytes=REPORT_BYTES)


def _confined(
    command: list[str], scratch: Path, timeout_s: float, more: Mapping[str, str], output_bytes: int = OUTPUT_BYTES
) -> ProcessOutcome:
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return run_confined(
        command,
        cwd=str(scratch),
        timeout_s=timeout_s,
        memory_bytes=0,
        output_bytes=output_bytes,
        environment=environment | dict(more) | {"HOME": str(scratch)},
    )


def write_solo(solo: Solo, folder: Path) -> Path:
    """Into a file that `watch` takes."""
    path = folder / "solo.pickle"
    path.write_bytes(pickle.dumps(solo, protocol=pickle.HIGHEST_PROTOCOL))
    return path
