"""Problems of tests/data/imports as operators, which tests of several files read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evo.outside.importing import import_problem
from tests.once import once

DATA = Path(__file__).parents[1] / "data" / "imports"


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
