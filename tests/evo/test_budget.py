"""Budgets: what is written, what is spent."""

from __future__ import annotations

import pytest

from evo.budget import Budget, is_used_up, parse_limits
from evo.config import RunConfig
from operators.errors import UserError


def test_limits_are_read_in_their_units() -> None:
    assert parse_limits(["1h30m", "500evals", "9calls", "2.5usd", "2Mtok", "1gpuh"]) == {
        "wall_s": 5400, "evaluations": 500, "calls": 9, "cost_usd": 2.5, "tokens": 2e6, "gpu_s": 3600,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "60", "s", "-5s", "0s", "60 s x", "5days", "1e3s", "nanh", "1h5usd", "1h30"])
def test_what_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match=r"such as 60s, 10min, 1h30m"):
        parse_limits([text])


def test_two_limits_of_one_kind_are_refused() -> None:
    with pytest.raises(UserError, match="already a limit on time"):
        parse_limits(["60s", "1h"])


@pytest.mark.parametrize("kind", ["calls", "tokens", "cost_usd", "gpu_s"])
def test_a_limit_that_nothing_can_reach_is_refused(kind: str) -> None:
    with pytest.raises(UserError, match=f"a budget of {kind} limits nothing .*; leave it out, or add --"):
        RunConfig(operators=["softmax"], budget={kind: 5.0}).resolved()


def test_the_first_limit_reached_is_named() -> None:
    budget = Budget({"evaluations": 2, "wall_s": 60})
    budget.charge("evaluations", 1)
    assert budget.exhausted() is None
    assert budget.share() == 0.5
    budget.charge("evaluations", 1)
    assert budget.exhausted() == "evaluations 2 of 2"


@pytest.mark.parametrize(
    ("limits", "words"), [({"wall_s": 60}, "time 60 s of 60 s"), ({"gpu_s": 7200}, "GPU time 2.0 h of 2.0 h")]
)
def test_a_limit_in_time_is_told_in_words(limits: dict[str, float], words: str) -> None:
    budget = Budget(limits)
    for kind, limit in limits.items():
        budget.charge(kind, limit)
    assert budget.exhausted() == words and is_used_up(words)
    assert not is_used_up("stopped") and not is_used_up("waits for 3 answers from outside")


def test_part_of_the_time_can_be_kept_for_the_end() -> None:
    budget = Budget({"wall_s": 60})
    budget.set_wall(50)
    assert budget.exhausted(9.0) is None
    assert budget.exhausted(10.0) == "time 50 s of 60 s, the rest for confirmations"
    assert Budget({"evaluations": 2}).exhausted(1e9) is None
