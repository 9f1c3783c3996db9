"""The shipped product: the sdist and the wheel made from it, installed apart from this tree and used from elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("evo", "operators", "mutators", "fitness")
RUNTIME_DATA = (
    "operators/shared/*.toml",
    "operators/*/*/operator.toml",
    "operators/*/*/*.cpp",
    "operators/*/*/*.cu",
    "operators/*/*/champions/*.cu",
    "operators/*/*/champions/champions.toml",
    "fitness/native/*.cpp",
    "fitness/cpu/*.cpp",
    "fitness/cpu/*.hpp",
    "evo/store/columns.toml",
    "evo/store/*.sql",
    "evo/store/queries/*.sql",
    "evo/store/reads/*.sql",
    "mutators/prompts/*.j2",
    "mutators/prompts/*/*.j2",
)


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """stdout of a command that must succeed, with nothing of this tree on its path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    run([*build, "-t", "sdist"], cwd=ROOT)
    (path,) = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (tree,) = (folder / "unpacked").iterdir()
    run([*build, "-t", "wheel"], cwd=tree)
    return folder


@pytest.fixture(scope="module")
def wheel(archives: Path) -> Path:
    (path,) = archives.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment that holds the wheel and borrows the packages it depends on from ours."""
    environment = tmp_path_factory.mktemp("installed") / "env"
    run([sys.executable, "-m", "venv", "--without-pip", environment], cwd=wheel.parent)
    python = environment / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    run([sys.executable, "-m", "pip", "--python", python, *install], cwd=wheel.parent)
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], wheel.parent).strip())
    # Written last, so that pip does not meet our own installation. Site does not follow the .pth files of folders
    # that it adds this way: an editable installation of this tree stays out of sight.
    borrowed = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (site / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    return python.parent


@pytest.mark.slow
def test_the_wheel_holds_the_code_and_every_file_it_reads(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for pattern in ("*/**/*.py", *RUNTIME_DATA):
        wanted = {str(path.relative_to(ROOT)) for package in PACKAGES for path in _below(package, pattern)}
        assert wanted, pattern
        assert wanted <= names, wanted - names


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    metadata = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, metadata}
    headers = "fitness/emulator/include/"  # called as CUDA's are, some without a suffix
    assert {Path(name).suffix for name in names if not name.startswith((metadata, headers))} <= {
        ".py", ".typed", ".toml", ".cpp", ".hpp", ".cu", ".cuh", ".sql", ".j2", ".css", ".js", ".md", ".txt",
        ".yaml", ".service", ".sh", ".svg",
    }  # fmt: skip


def test_the_sdist_can_be_tested_and_holds_no_runs(archives: Path) -> None:
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "tests/conftest.py"} <= names
    assert {"tests/data/axpb/operator.toml", "tests/test_packaging.py"} <= names
    allowed = ("runs/README", "runs/configs")
    assert not [name for name in names if name.startswith("runs/") and not name.startswith(allowed)]


@pytest.mark.slow
def test_the_installed_command_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    where = run([installed / "python", "-c", "import evo, operators; print(operators.__path__[0])"], tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)
    listed: list[dict[str, Any]] = json.loads(run([installed / "evo", "operators", "--json"], tmp_path))
    assert {"softmax", "matrix_mul", "spmv_csr"} <= {row["operator"] for row in listed}
    naive = Path(where) / "normalization" / "softmax" / "naive.cpp"
    verdict = json.loads(run([installed / "evo", "evaluate", "softmax", naive, "--json"], tmp_path))
    assert [level["status"] for level in verdict] == ["correct"] * 3
    assert verdict[-1]["log_speedup"] == 0.0


def _below(package: str, pattern: str) -> list[Path]:
    first, _, rest = pattern.partition("/")
    if first not in ("*", package):
        return []
    return [path for path in (ROOT / package).glob(rest) if "__pycache__" not in path.parts]
