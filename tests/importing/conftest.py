"""Problems of tests/data/imports as operators, which tests of several files read, and looks that are soon over."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from evo.outside import importing
from evo.outside.importing import import_problem
from fitness.sandbox.foreign import ENVIRONMENT
from fitness.sandbox.processes import ProcessOutcome, run_confined
from tests.once import once

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "imports"


@cache
def forking() -> ForkServerContext:
    """Processes whose parent has loaded torch, which takes each jailed one longer than most looks themselves."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.importing.loaded"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


def forked(
    command: Sequence[str], *, cwd: str, environment: Mapping[str, str], timeout_s: float, **limits: Any
) -> ProcessOutcome:
    """Look at a problem in a fork without a jail."""
    from tests.importing.loaded import look  # with torch, which not all tests of imports need

    process = forking().Process(target=look, args=(cwd, environment))
    process.start()
    process.join(timeout_s)
    late = process.exitcode is None
    if late:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return ProcessOutcome(process.exitcode, "", timed_out=late, seconds=0.0)


@pytest.fixture(scope="module", autouse=True)
def forked_looks() -> Iterator[None]:
    """Looks of these tests are forks, but for those of tests that ask for `jailed`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "run_confined", forked)
        yield


@pytest.fixture
def jailed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are jailed, as a user's are."""
    monkeypatch.setattr(importing, "run_confined", run_confined)


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The operator's folder of a problem by its file; each is looked at once, and is to be read alone."""

    def found(file: str) -> Path:
        name = Path(file).stem
        return once(
            tmp_path_factory, f"imported-{name}", lambda out: import_problem(str(DATA / file), out=out, name=name)
        )

    return found


def of_function(place: Path, text: str, name: str) -> tuple[Path, list[str]]:
    """The operator's folder of a function in a source of its own, whose inputs `make` gives, and what was said."""
    place.mkdir(exist_ok=True)
    source = place / f"{name}.py"
    source.write_text(text)
    return import_problem(f"{source}:{name}", inputs=f"{source}:make", out=place / "made")
