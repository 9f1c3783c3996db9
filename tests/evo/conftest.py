"""Fixtures that tests of the engine share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evo.cli import commands
from evo.session import LocalBackend
from fitness.testing import scripted
from tests.inline import InlinePool

AXPB = str(Path(__file__).parents[1] / "data" / "axpb")


@pytest.fixture(scope="module", autouse=True)
def quickly_made(made_once: None) -> None:
    """They make hundreds of runs, and how a database is made is for tests/store."""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the real engine on the smallest operator, through the command line; to be read alone."""
    return _once(tmp_path_factory, "real", lambda runs: _run("--runs", str(runs), "--workers", "1"))


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with scripted stages."""

    def make(runs: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(scripted(config.tasks()))))
            _run("--runs", str(runs))

    return _once(tmp_path_factory, "scripted", make)


def _run(*options: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["evo", "run", AXPB, "--budget", "4evals", *options])
        try:
            commands.main()
        except SystemExit as stop:
            assert not stop.code


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The one run in a folder that is made by whichever of pytest's processes asks for it first."""
    base = factory.getbasetemp()
    runs = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"run-{name}"
    with runs.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not runs.exists():
            make(runs)
    (folder,) = runs.iterdir()
    return folder
