"""The compiled way from torch's tensors to a packaged kernel: `build` makes it, `built` finds it.

Packages carry this module. A binding looks at a call's tensors, makes the outputs and launches, with functions that the
loader has compiled and loaded. It says NotImplemented to all that is unusual, which the loader then does as ever.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

NAME = "binding"
CACHE = "cache"
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-shared")


def build(folder: Path, *, include: Sequence[str] = (), link: Sequence[str] = ()) -> Path:
    """Compile the binding of a package for this torch, which takes half a minute, unless it is there already.

    Programs that load the package from then on use it. It raises RuntimeError with the compiler's words.
    """
    import torch

    source, place = folder / "cpp" / f"{NAME}.cpp", _place(folder)
    if not source.is_file():
        raise RuntimeError(f"{source}: is not there: a kernel without inputs has no binding")
    if not place.is_file():
        root = Path(torch.__file__).parent  # torch.utils.cpp_extension, which tells the same folders, takes setuptools
        headers = root / "include"
        folders = [headers, headers / "torch/csrc/api/include", sysconfig.get_path("include"), *include]
        libraries = ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", *link]
        arguments = [*FLAGS, *(f"-I{each}" for each in folders), str(source), f"-L{root / 'lib'}", *libraries]
        try:
            place.parent.mkdir(exist_ok=True)
            compiled(arguments, place)
        except OSError as error:
            raise RuntimeError(f"{place.parent}: cannot be written: {error.strerror}") from None
    built.cache_clear()
    return place


@lru_cache
def built(folder: Path) -> Any:
    """The binding of a package as a module of Python; None where none was built for this torch, or it does not load."""
    place = _place(folder)
    if not place.is_file():
        return None
    name = f"{str(place).replace('.', '_')}.{NAME}"  # each its own: pybind11 gives a module of a known name out again
    loader = ExtensionFileLoader(name, str(place))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        warnings.warn(f"{place}: it is not used: {error}", RuntimeWarning, stacklevel=2)
        return None
    return module


def compiled(arguments: Sequence[str], place: Path) -> Path:
    """Have g++, or what the environment variable CXX names, write a file as a whole or not at all.

    It raises RuntimeError with the compiler's words.
    """
    with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
        made = Path(scratch, place.name)
        command = [os.environ.get("CXX", "g++"), *arguments, "-o", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise RuntimeError(f"{command[0]}: {error.strerror}; a compiler is needed, CXX names another") from None
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return made.replace(place)


def _place(folder: Path) -> Path:
    """The path of the binding for this torch and Python, made of the sources that the package has."""
    import torch

    sources = [path.read_bytes() for path in sorted((folder / "cpp").glob("*.[ch]pp"))]
    told = [torch.__version__.encode(), str(sysconfig.get_config_var("SOABI")).encode(), *map(str.encode, FLAGS)]
    key = hashlib.sha256(b"".join(len(each).to_bytes(8, "big") + each for each in (*told, *sources))).hexdigest()[:24]
    return folder / CACHE / f"{NAME}-{key}.so"
