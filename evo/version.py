"""Which kernel-evo this is."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def engine_version() -> str:
    """The installed distribution's version; of a source tree that is not installed, the one it would have."""
    try:
        return version("kernel-evo")
    except PackageNotFoundError:
        pass
    try:
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return f"{project['version']} (not installed)"
    except (OSError, KeyError):
        return "unknown (not installed)"
