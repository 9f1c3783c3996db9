"""The tutorial: its commands do what it says, as they stand there.

Verdicts come from a script, as nothing here is about how fast a kernel is: the search takes a second and finds some.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evo.cli.commands import app
from evo.session import LocalBackend
from tests.evo.model_runs import stages
from tests.inline import InlinePool
from tests.structure import ROOT


def commands() -> list[str]:
    tutorial = (ROOT / "evo/docs/tutorial.md").read_text(encoding="utf-8")
    return re.findall(r"\n\n    ((?:make|\.venv/bin/evo) .+)\n\n", tutorial)


def recipe(command: str, budget: str) -> str:
    """The commands that make would run once everything is set up, with another budget."""
    asked = [*shlex.split(command), "--dry-run", "--no-print-directory", "--old-file=.venv/.installed", "-C", str(ROOT)]
    environment = {**os.environ, "BUDGET": budget}
    return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_five_commands_lead_from_nothing_to_why_the_best_kernel_is_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = commands()
    assert first == "make search" and len(others) == 4
    lines = [recipe(first, "20evals"), *others]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalBackend, "pool", lambda _, config, *__: InlinePool(dict(stages(config))))
    said = []
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/evo", line
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"
        said.append(done.stdout)
    search, lineage, diff, sql, report = said
    for operator in ("softmax/fp32/cpu", "matrix_mul/fp32/cpu"):
        assert operator in search and operator in lineage
    assert "naive.cpp as it stands" in lineage
    assert re.search(r"^A +\w{12} +softmax/fp32/cpu", diff, re.MULTILINE) and re.search(r"^\+ +\S", diff, re.MULTILINE)
    assert (
        sql.split()[:5] == ["kernel", "level", "speedup", "speedup_low", "speedup_high"] and len(sql.splitlines()) > 1
    )
    assert (tmp_path / report.strip()).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
