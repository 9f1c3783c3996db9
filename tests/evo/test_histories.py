"""Every run resumes, whatever was done to it, and ends as its store says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.choosing import some_slow
from tests.evo.histories import history


@pytest.mark.long
@pytest.mark.parametrize("seed", some_slow(range(200), 1))
def test_a_random_history_resumes_and_its_replay_is_the_same_run(seed: int, tmp_path: Path) -> None:
    history(seed, tmp_path / "run")
