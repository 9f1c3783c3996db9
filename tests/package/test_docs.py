"""The files of evo/docs are what their programs read, as far as one machine can tell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import evo

DOCS = Path(evo.__file__).parent / "docs"


def test_systemd_takes_the_unit() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    command = ["systemd-analyze", "verify", "--man=no", str(DOCS / "evo@.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "evo@.service" not in done.stderr, done.stderr


def test_the_shell_takes_the_script() -> None:
    subprocess.run(["bash", "-n", str(DOCS / "slurm.sh")], check=True, timeout=60)


@pytest.mark.parametrize("name", ["kuberay.yaml", "ray-up.yaml"])
def test_yaml_is_read(name: str) -> None:
    yaml: Any = pytest.importorskip("yaml")
    found = yaml.safe_load((DOCS / name).read_text())
    if name == "kuberay.yaml":
        assert (found["kind"], found["apiVersion"]) == ("RayJob", "ray.io/v1")
        assert {"headGroupSpec", "workerGroupSpecs"} <= set(found["spec"]["rayClusterSpec"])
    else:
        assert {"cluster_name", "provider", "head_start_ray_commands"} <= set(found)


def test_every_file_is_named_on_the_page() -> None:
    text = (DOCS / "overnight.md").read_text()
    names = {path.name for path in DOCS.iterdir() if path.suffix not in (".md", ".svg")}
    assert names and all(f"`{name}`" in text for name in names)
