"""Files that are far too long are told in a line, whatever they are named as, and never read to their end."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from evo.config import read_config
from evo.evaluate import source_of
from mutators.base import Request
from mutators.given import AncestorFile
from operators import catalog, files
from operators.definition.fingerprint import fingerprint
from operators.definition.reading import read_operator
from operators.definition.spec import Task
from operators.errors import OperatorError, UserError
from tests.redteam.arena import AXPB

HUGE_BYTES = 1 << 40
ROOM_BYTES = 256 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An operator's folder, that of axpb."""
    shutil.copytree(AXPB, tmp_path / "axpb")
    return tmp_path / "axpb"


def huge(path: Path) -> Path:
    """A file that no memory holds; it takes no room on the disk."""
    with path.open("wb") as stream:
        stream.truncate(HUGE_BYTES)
    return path


@pytest.mark.parametrize("name", ["operator.toml", "reference.py", "naive.cpp", "notes.bin"])
def test_an_operator_with_a_huge_file_is_told(folder: Path, name: str) -> None:
    huge(folder / name)
    with pytest.raises(OperatorError) as raised:
        operator = read_operator(folder)
        catalog.functions.__wrapped__(folder)
        operator.naive("cpu")
        fingerprint(operator, target="cpu", workload_set="cpu")
    assert "\n" not in str(raised.value)
    assert "MiB, the most that is allowed" in str(raised.value)


def test_a_huge_configuration_or_kernel_is_told(tmp_path: Path, folder: Path) -> None:
    file = huge(tmp_path / "huge")
    with pytest.raises(UserError, match="huge: cannot be read: it is longer than 4 MiB"):
        read_config(file, {}, [])
    with pytest.raises(UserError, match="huge: cannot be read: it is longer than 4 MiB"):
        source_of(file)
    huge(folder / "other.cpp")
    task = Task("axpb", "fp32", "cpu")
    request = Request(task, number=0, mutator="ancestor", parents=(), seed=0, params={"name": "other"})
    made = AncestorFile().propose(request, (), read_operator(folder))
    assert made.kernel is None
    assert "longer than 4 MiB" in made.failure


def test_lines_end_as_they_do_for_everybody(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes("a\r\nb\rc\né".encode())
    assert files.read_text(file) == file.read_text(encoding="utf-8") == "a\nb\nc\né"
    with pytest.raises(OSError, match="longer than 0 KiB"):
        files.read_text(file, 3)


def test_little_memory_is_taken(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(OSError, match="longer than 4 MiB"):
        files.read_bytes(huge(tmp_path / "huge"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM_BYTES >> 10
