"""Every run resumes, whatever was done to it, and ends as its store says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evo.histories import history

QUICK, ALL = range(24), range(200)


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in ALL[len(QUICK) :])])
def test_a_random_history_resumes_and_its_replay_is_the_same_run(seed: int, tmp_path: Path) -> None:
    history(seed, tmp_path / "run")
