"""Shared fixtures and the markers' rules."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import sys
import sysconfig
import venv
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import duckdb
import pytest
from hypothesis import settings

from evo.store import writer
from evo.store.schema import StoredTable, tables
from operators.catalog import load
from operators.definition.spec import Operator
from operators.libraries import WITHOUT_COMPILER
from tests import crashes
from tests.choosing import BRIEF, FULL
from tests.garbage import no_garbage_collected

DATA = Path(__file__).parent / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that the default leaves out")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(crashes)
    os.environ.setdefault(WITHOUT_COMPILER, "1")  # compiled rivals take seconds each; few tests ask for them
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs do, and all that they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile(FULL if config.getoption("--slow") else BRIEF)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collection makes what stays to the end: no search for garbage looks through it, neither then nor later."""
    with no_garbage_collected():
        yield
        gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries complain of what is left at the end of the process."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [] if config.getoption("--slow") else [item for item in items if "slow" in item.keywords]
    gpu = [] if _has_gpu() else [item for item in items if "gpu" in item.keywords]
    if left_out := {*slow, *gpu}:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """On small tensors Torch's threads mostly wait for each other, and all cores are shared by processes of pytest."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@cache
def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return driver.cuInit(0) == 0


@pytest.fixture
def accented_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python, `sys.executable`, whose `.pth` file names a folder beyond ASCII, as that of a checkout there does."""
    place = tmp_path / "K\u00e9rnel evo"
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "nvidia").symlink_to(Path(sysconfig.get_path("purelib"), "nvidia"))  # NVRTC is looked for there
    (packages / "checkout.pth").write_text(f"{place}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "executable", str(place / "bin" / "python"))
    return sys.executable


@pytest.fixture(scope="module", autouse=True)
def untouched_constants() -> Iterator[None]:
    """A file whose tests let C code write over an object that all of Python shares fails itself, not those after it."""
    yield
    changed = [n for n in range(256) if bytes((0, n))[1:].hex() != f"{n:02x}"]
    assert not changed, f"something wrote over Python's own one-byte objects {changed}"


@pytest.fixture(scope="session")
def axpb() -> Operator:
    """A small operator of a user's own: y = alpha x + b."""
    return load(str(DATA / "axpb"))


@pytest.fixture(scope="session")
def empty_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a run that holds nothing yet."""
    writer._create(path := tmp_path_factory.mktemp("empty") / writer.FILE)
    return path


@pytest.fixture(scope="session")
def its_tables(empty_run: Path) -> dict[str, StoredTable]:
    with duckdb.connect(str(empty_run), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return tables(connection)


@pytest.fixture(scope="module")
def made_once(empty_run: Path, its_tables: dict[str, StoredTable]) -> Iterator[None]:
    """New runs of this process begin with a copy of one database, whose tables are read back from it once."""

    def copied(path: Path) -> None:
        if not path.exists():
            shutil.copyfile(empty_run, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_create", copied)
        patch.setattr(writer, "tables", lambda _: its_tables)
        yield
