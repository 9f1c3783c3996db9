"""Claims cards: a run claims what is confirmed, a comparison what it registered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo.api import Run
from evo.compare.cells import begin, folder_of
from evo.report.card import run_card
from tests.evo.comparisons import comparison
from tests.evo.test_cli import evo
from tests.store.story import stored, story

HOST = {"processor": "AMD EPYC", "cpus": 2, "python": "3.11.7", "system": "Linux"}
GPUS = {"gpus": ["H200", "H200"], "versions": {"torch": "2.11.0", "driver": "580"}}


@pytest.mark.slow
def test_a_run_claims_what_is_confirmed_alone(tmp_path: Path) -> None:
    host = json.dumps(HOST | GPUS)
    doubtful = dict(run_card(Run(stored(tmp_path / "doubtful", host_json=host))))
    assert doubtful["Claim vs"].startswith("nothing: no best kernel is confirmed")
    assert doubtful["Ships"].startswith("0 confirmed kernels")

    sure = story().evaluate(None, "G", "confirmed", "correct", log_speedup=1.1)
    card = dict(run_card(Run(stored(tmp_path / "run", sure, host_json=host))))
    assert list(card) == ["Evaluation", "Claim vs", "Ships", "Budget", "Hardware", "Versions", "State"]
    assert card["Claim vs"] == "the naive kernel: 3.00x, confirmed in 1 of 1 task. Geometric means."
    assert "softmax/fp32/cpu" in card["Evaluation"] and "fp64" in card["Evaluation"]
    assert card["Ships"].startswith("1 confirmed kernel as source") and "11 candidates" in card["Ships"]
    assert "0.75 USD" in card["Budget"] and card["Budget"].endswith("models: big")
    assert card["Hardware"] == "2x H200, 2 cores of AMD EPYC" and card["Versions"].endswith("torch 2.11.0, driver 580")


def test_a_comparison_says_what_it_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(folder_of(tmp_path, "test"), comparison(primary=["refine"], reference="islands"), {})
    code, out, said = evo(monkeypatch, capsys, "card", "test", "--runs", str(tmp_path), "--json")
    assert code == 0, said
    card = json.loads(out)
    assert card["Claim vs"].startswith("the arm islands, with verdicts of: refine ")
    assert "0 of " in card["Evaluation"] and card["Budget"].startswith("8 evaluations for each cell")
    assert card["Hardware"] == "none yet"
    code, out, _ = evo(monkeypatch, capsys, "card", str(tmp_path / "compare-test"))
    assert code == 0 and out.startswith("Evaluation  1 operator (softmax)")
