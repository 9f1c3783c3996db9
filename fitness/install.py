"""Packages of this environment: their versions, and the commands that messages and `evo doctor` tell users to run."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from operators.errors import UserError
from operators.libraries import RIVALS, UNSERVED, WITHOUT_COMPILER, LibraryCall, kind_of

NAME = "kernel-evo"
ROOT = Path(__file__).parents[1]
TORCH_INDEX = {"cuda12": "https://download.pytorch.org/whl/cu129"}
"""By extra: where a torch of that CUDA line is, if not on PyPI, whose torch needs CUDA 13."""
CUPY = {"cupy-cuda12x": 12, "cupy-cuda13x": 13, "cupy": 0}
"""Distributions that hold the same files, each for its CUDA line; 0: unknown, built by the user."""
PARTS = ("nvrtc", "runtime", "cccl")
TOOLCHAIN = (*CUPY, "cuda-bindings", *(f"nvidia-cuda-{part}{suffix}" for part in PARTS for suffix in ("", "-cu12")))
"""Packages that the extras cuda12, cuda13 and nvrtc bring and that must be of one CUDA line."""

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",), "numpy": ("numpy",), "scipy": ("scipy",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"), "triton": ("triton",),
    **{module: (package,) for module, package in RIVALS.items()},
}  # fmt: skip
"""Names of packages where they are installed from."""
OF_TARGET: Mapping[str, tuple[str, ...]] = {
    "cpu": ("torch", "numpy", "scipy"), "cuda": ("torch", "triton", "cupy", *RIVALS),
}  # fmt: skip
"""The packages that a target's calls are of."""
DRIVER = "driver"
"""The GPU's driver, among the versions that figures are kept with."""


class MissingPackage(UserError):
    """A package is not installed, or clashes with another one."""

    def __init__(self, what: str, cure: str, *, clash: bool = False) -> None:
        super().__init__(f"{what}: {cure}")
        self.what = what
        self.cure = cure
        """A command."""
        self.clash = clash


def evo_command(*words: object) -> str:
    """A command of ours as a user can paste it, whatever blanks a path has: `evo resume 'my runs/r1'`."""
    return shlex.join(("evo", *map(str, words)))


def pip(*arguments: str) -> str:
    """A command line of this environment's pip, to be run in the current folder."""
    return shlex.join([_shown(Path(sys.executable)), "-m", "pip", *arguments])


def installing(extra: str = "", *options: str) -> str:
    """The command that installs ours, with an extra, from where it came: it is on no index.

    That is a source tree, with its constraints, or the file of a wheel or sdist. Where these are gone, the command
    installs what the extra consists of.
    """
    index = ("--extra-index-url", TORCH_INDEX[extra]) if extra in TORCH_INDEX else ()
    source = _source(extra)
    return pip("install", *options, *index, *source) if source else f"install {NAME} again, from its source"


def reinstalling_toolchain(extra: str) -> str:
    """The commands that remove everything of `TOOLCHAIN` that is installed, of whatever line, and install an extra."""
    found = [name for name in TOOLCHAIN if installed(name)]
    return " && ".join([*([pip("uninstall", "-y", *found)] if found else []), installing(extra)])


def reinstalling_torch(extra: str) -> str:
    """The commands that put the torch of an extra's CUDA line in the place of another build."""
    return f"{pip('uninstall', '-y', 'torch')} && {installing(extra)}"


def installed(name: str) -> str:
    """The version of a distribution; empty where there is none."""
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return ""


@lru_cache
def versions(target: str) -> dict[str, str]:
    """The versions of the packages whose calls a target has; of one that is not installed, an empty text."""
    return {name: next(filter(None, map(installed, DISTRIBUTIONS[name])), "") for name in OF_TARGET[target]}


def can_be_tried(rival: str, target: str) -> bool:
    """Whether the call of this name can be tried here: its package is there, and what compiles it is not turned off.

    One that was tried, and that the machine could not serve, would not be served again.
    """
    missing = {module for module, version in versions(target).items() if not version}
    compiles = os.environ.get(WITHOUT_COMPILER) != "1"
    served = not rival.endswith(UNSERVED)
    return served and LibraryCall(rival).rival not in missing and (compiles or kind_of(rival) != "compiled")


def kept_versions(target: str, driver: str) -> dict[str, str]:
    """Those that a figure is kept with: of the packages that are installed, and of the `driver`, where there is one."""
    found = versions(target) | {DRIVER: driver}
    return {name: version for name, version in found.items() if version}


def _source(extra: str) -> list[str]:
    """The arguments that tell pip what to install; empty where they are not known."""
    suffix = f"[{extra}]" if extra else ""
    if _is_tree(ROOT):
        return [*_constraints(ROOT), "-e", _shown(ROOT) + suffix]
    try:
        ours = distribution(NAME)
    except PackageNotFoundError:
        return []
    origin = _origin(ours)
    if origin is not None and (_is_tree(origin) or origin.is_file()):
        return [*_constraints(origin), _shown(origin) + suffix]
    lines = [line.partition(";") for line in ours.requires or []]
    return [what.strip() for what, _, marker in lines if marker.strip().replace('"', "'") == f"extra == '{extra}'"]


def _origin(found: Distribution) -> Path | None:
    """The folder or file that pip installed it from (PEP 610)."""
    try:
        url = urlsplit(json.loads(found.read_text("direct_url.json") or "{}").get("url", ""))
    except ValueError:
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _is_tree(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "evo").is_dir()


def _constraints(folder: Path) -> list[str]:
    file = folder / "constraints.txt"
    return ["-c", _shown(file)] if file.is_file() else []


def _shown(path: Path) -> str:
    """Relative to the current folder where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and here != Path(here.root) else str(path)
