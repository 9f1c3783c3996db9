"""Fixtures that tests of the engine share."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.cli import commands
from evo.session import LocalBackend
from fitness.testing import scripted
from tests.inline import InlinePool
from tests.once import once

AXPB = str(Path(__file__).parents[1] / "data" / "axpb")


@pytest.fixture(scope="module", autouse=True)
def quickly_made(made_once: None) -> None:
    """They make hundreds of runs, and how a database is made is for tests/store."""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the real engine on the smallest operator, through the command line; to be read alone."""
    runs = once(tmp_path_factory, "run-real", lambda runs: _run("4evals", runs, "--workers", "1"))
    return next(runs.iterdir())


@pytest.fixture(scope="session")
def waiting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the real engine that waits for one answer from outside; to be copied."""
    outside = ("--workers", "1", "--llm", "outside", "--set", "llm.concurrency=1")
    runs = once(tmp_path_factory, "run-waiting", lambda runs: _run("2evals", runs, *outside))
    return next(runs.iterdir())


@pytest.fixture(scope="session")
def scripted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with scripted stages."""

    def make(runs: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(scripted(config.tasks()))))
            _run("4evals", runs)

    return next(once(tmp_path_factory, "run-scripted", make).iterdir())


def _run(budget: str, runs: Path, *options: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["evo", "run", AXPB, "--budget", budget, "--runs", str(runs), *options])
        try:
            commands.main()
        except SystemExit as stop:
            assert not stop.code
