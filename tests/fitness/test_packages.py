"""Packages that users are told to install: kernel-evo comes from where kernel-evo came from, and is of one CUDA
line."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from importlib.metadata import Distribution
from os import PathLike
from pathlib import Path
from typing import Any

import pytest

from fitness import install
from fitness.cuda.compile import line

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ["torch>=2.7", 'cupy-cuda13x>=14; extra == "cuda13"', "cuda-core[cu13]>=1 ; extra == 'cuda13'"]


class Installed(Distribution):
    """An installation of kernel-evo, from a place."""

    def __init__(self, url: str) -> None:
        self._url = url

    def read_text(self, filename: str) -> str | None:
        if filename == "direct_url.json":
            return json.dumps({"url": self._url, "dir_info": {}}) if self._url else None
        return "Name: kernel-evo\n" + "".join(f"Requires-Dist: {line}\n" for line in REQUIREMENTS)

    def locate_file(self, path: str | PathLike[str]) -> Any:
        raise NotImplementedError


def command(monkeypatch: pytest.MonkeyPatch, url: str, extra: str) -> list[str]:
    """The arguments of `pip install` for an installation apart from its source and from the current folder."""
    monkeypatch.chdir("/")
    monkeypatch.setattr(install, "ROOT", Path("/nowhere"))
    monkeypatch.setattr(install, "distribution", lambda name: Installed(url))
    words = shlex.split(install.installing(extra))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    return words[4:]


def test_a_source_tree_is_installed_again_from_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install.installing("cuda13").endswith("-m pip install -c constraints.txt -e '.[cuda13]'")
    monkeypatch.chdir(tmp_path)
    assert install.installing("cuda13").endswith(f"-m pip install -c {ROOT}/constraints.txt -e '{ROOT}[cuda13]'")


def test_what_was_installed_from_a_tree_or_a_file_comes_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "evo").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert command(monkeypatch, tmp_path.as_uri(), "cuda13") == [f"{tmp_path}[cuda13]"]
    wheel = tmp_path / "kernel_evo-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert command(monkeypatch, wheel.as_uri(), "nvrtc") == [f"{wheel}[nvrtc]"]


@pytest.mark.parametrize("url", ["", "file:///gone/kernel_evo-0.1.0-py3-none-any.whl", "https://example.org/x.whl"])
def test_where_the_source_is_gone_the_parts_of_an_extra_are_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert command(monkeypatch, url, "cuda13") == ["cupy-cuda13x>=14", "cuda-core[cu13]>=1"]
    assert install.installing() == "install kernel-evo again, from its source"


@pytest.mark.parametrize(
    ("driver", "cupy", "extra"),
    [
        ((13, 0), (), "cuda13"),
        ((12, 4), (), "cuda12"),
        ((12, 4), ("cupy-cuda13x",), "cuda12"),
        ((14, 1), (), "cuda13"),
        ((11, 8), (), "cuda12"),
        (None, (), "nvrtc"),
        (None, ("cupy-cuda12x",), "cuda12"),
        (None, ("cupy-cuda12x", "cupy-cuda13x"), "nvrtc"),
    ],
)
def test_the_driver_decides_which_line(
    monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int] | None, cupy: tuple[str, ...], extra: str
) -> None:
    monkeypatch.setattr(line, "driver_cuda", lambda: driver)
    monkeypatch.setattr(line, "installed", lambda name: "14.2.0" if name in cupy else "")
    assert line.fitting_extra() == extra


@pytest.mark.parametrize(("driver", "fits"), [(None, True), ((13, 0), True), ((14, 0), True), ((12, 9), False)])
def test_a_driver_of_an_older_line_is_told_before_kernels_fail_to_load(
    monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int] | None, fits: bool
) -> None:
    monkeypatch.setattr(line, "driver_cuda", lambda: driver)
    if fits:
        line.check_driver("13.0")
        return
    with pytest.raises(install.MissingPackage, match=r"CUDA 12\.9 and cannot load kernels of NVRTC 13\.0") as told:
        line.check_driver("13.0")
    assert "[cuda12]" in told.value.cure
    assert f"--extra-index-url {install.TORCH_INDEX['cuda12']}" in told.value.cure


def test_every_package_for_a_gpu_has_its_pin_and_every_command_of_the_readme_names_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for extra in ("cuda12", "cuda13", "nvrtc", "rivals"):
        for requirement in extras[extra]:
            name = re.match(r"[\w-]+", requirement)
            assert name
            assert re.search(rf"^{name[0]}[<=]=", pins, re.MULTILINE), requirement
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"'\.\[(\w+)\]'", readme)) == {"cuda12", "cuda13"}
    assert install.TORCH_INDEX["cuda12"] in readme
