"""The pages on SQL and Python hold: their commands and the example are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evo.cli.commands import app
from tests.store.story import stored
from tests.structure import ROOT

DOCS = ROOT / "evo/docs"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, which is the current one."""
    for number, name in enumerate(("first", "second")):
        stored(tmp_path / "runs" / name, run_id=name, seed=number)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_page_on_sql_does_what_it_says(place: Path) -> None:
    commands = re.findall(r"^    evo (.+)$", (DOCS / "sql.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) > 8
    for command in commands:
        words = shlex.split(command.replace("RUNS", "runs").replace("RUN", "first"))
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
    assert (place / "mutators.csv").read_text().startswith("operator,mutator,proposals")
    assert (place / "parquet-folder" / "best.parquet").exists()


@pytest.mark.slow
def test_the_example_of_the_page_on_python_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(first.replace('"last"', '"first"'), names)
    assert names["table"].num_rows == 5 and names["both"].num_rows == 1 and names["newest"] is False  # type: ignore[attr-defined]
    assert "+// G" in capsys.readouterr().out
    exec(second.replace('"last"', '"first"'), names)
    assert (place / "progress.svg").exists() and (place / "individuals.html").exists()
