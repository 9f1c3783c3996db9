"""Profiles of a task's kernels in prompts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from evo import rows as records
from evo.budget import Budget
from evo.config import RunConfig
from evo.individual import Individual
from evo.lineage import Lineage
from evo.search.history import History
from evo.search.knowledge import KnownProfiles, ProfileNotes
from evo.search.task import task_states
from evo.store import Store
from evo.strategies.islands import Islands
from fitness.profiling import counters
from fitness.profiling.metric_sets import PROVIDERS
from fitness.profiling.profiles import Bottleneck, Metric, Profile
from mutators.base import Request
from operators.definition.spec import Operator
from operators.errors import UserError
from tests.evo.test_strategies import TASK, make
from tests.evo.worlds import World


def profile(dram: float, *notes: str) -> Profile:
    return Profile(Bottleneck.LATENCY, (Metric(counters.DRAM, dram, "%"),), notes)


def seen() -> ProfileNotes:
    """`a` was made faster by `b`, that by `c` and that by `d`; `x` is of another lineage."""
    born = (("a", (), 0.0), ("b", ("a",), 0.2), ("c", ("b", "x"), 0.3), ("d", ("c",), None), ("x", (), 0.5))
    lineage = Lineage()
    for number, (name, parents, log) in enumerate(born):
        kernel: Any = SimpleNamespace(id=name, source_id=name)
        verdict: Any = SimpleNamespace(estimate=log, correct=False)
        lineage.told(Individual(Request(TASK, number, "transform", parents, 0), kernel, verdict))
    return ProfileNotes(lineage)


def learn(known: ProfileNotes, profiles: dict[str, Profile]) -> None:
    for kernel_id, found in profiles.items():
        known.profiles.learn(kernel_id, found)


def request(*parents: str, mutator: str = "rewrite", **params: Any) -> Request:
    return Request(TASK, 1, mutator, parents, 0, params, model="m")


def test_what_the_last_edit_changed_stands_beside_its_gain() -> None:
    known = seen()
    learn(known, {"a": profile(20.0, "note a"), "b": profile(60.0, "note b")})
    assert known.lines(request("a")) == ("note a",)
    assert known.lines(request("b")) == ("note b", "since its parent: 1.22 times as fast; DRAM busy 20 -> 60 %")
    assert known.lines(request("c")) == ()


def test_a_step_without_a_profile_is_stepped_over() -> None:
    known = seen()
    learn(known, {"a": profile(20.0, "note a"), "c": profile(60.0, "note c"), "d": profile(62.0, "note d")})
    assert known.lines(request("c"))[1].startswith("in its last 2 steps: 1.35 times as fast; DRAM")
    assert known.lines(request("d")) == ("note d",)  # nothing is worth telling


def test_a_crossover_is_shown_both_profiles_and_their_difference() -> None:
    known = seen()
    learn(known, {"b": profile(60.0, "note b", "roofline: x"), "x": profile(90.0, "note x", "roofline: y")})
    assert known.lines(request("b", "x", mutator="crossover")) == (
        "note b", "roofline: x", "kernel B: note x",
        "kernel B against kernel A: 1.35 times as fast; DRAM busy 60 -> 90 %",
    )  # fmt: skip
    assert known.lines(request("b", "x", mutator="rewrite")) == ("note b", "roofline: x")


def test_a_request_names_what_it_is_shown() -> None:
    known = seen()
    learn(known, {"a": profile(20.0, "note a"), "b": profile(60.0, "note b"), "d": profile(20.0, "note d")})
    assert known.lines(request("b", profiler="none")) == ()
    assert known.lines(request("b", profiler="cudaforge")) == (
        f"{counters.DRAM}: 60 %", "since its parent: 1.22 times as fast; DRAM busy 20 -> 60 %"
    )  # fmt: skip
    assert known.lines(request("a", profiler="delayed")) == ()
    assert known.lines(request("d", profiler="delayed"))[0] == "note d"


def first_question(operator: Operator, profiler: str) -> Request:
    """The first question to a model, once the naive kernel is judged."""
    strategy, world = make(Islands, operator, models=("m",), profiler=profiler), World(operator, TASK)
    for request in strategy.ask(1):
        strategy.tell(world.answer(request))
    return next(request for request in strategy.ask(3) if request.model)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_run_chooses_what_its_models_are_shown(axpb: Operator, name: str) -> None:
    assert RunConfig.model_validate({"operators": ["softmax"], "profile": name}).profile == name
    question = first_question(axpb, name)
    assert question.params.get("profiler", "filtered") == name


def test_runs_that_only_said_yes_or_no_are_understood_and_other_names_refused(axpb: Operator) -> None:
    for said, meant in ((True, "filtered"), (False, "none")):
        assert RunConfig.model_validate({"operators": ["softmax"], "profile": said}).profile == meant
    with pytest.raises(ValidationError, match="profile"):
        RunConfig.model_validate({"operators": ["softmax"], "profile": "all"})
    with pytest.raises(UserError, match="profiler"):
        first_question(axpb, "all")


def test_of_many_profiles_the_latest_are_kept_and_others_read_again() -> None:
    known, read = KnownProfiles(kept=3), list[str]()

    def stored(kernel_id: str) -> Profile:
        read.append(kernel_id)
        return profile(1.0, f"note {kernel_id}")

    known.read = stored
    for number in range(10):
        known.learn(str(number), profile(1.0, f"note {number}"))
    assert all(str(number) in known for number in range(10)) and "10" not in known
    for number in (9, 2, 8, 2):
        found = known.get(str(number))
        assert found and found.notes == (f"note {number}",)
    assert known.get("10") is None
    assert read == ["2"]  # of the latest nothing, and what was read once stays a while
    assert len(known._whole) == 3


def test_a_profile_is_read_from_the_store_as_it_was(tmp_path: Path) -> None:
    metrics = Metric(counters.DRAM, 20.0, "%"), Metric("code_bytes", 9.0, "")
    kept = {
        "a" * 64: Profile(Bottleneck.COMPUTE, metrics, ("one",)),
        "b" * 64: Profile(None, (), ("nothing was timed", "two")),
    }
    with Store(tmp_path / "run", create=True) as store:
        config = RunConfig(operators=["softmax"], workload_set="cpu")
        states = task_states(config)
        (state,) = states.values()
        history = History(states, store, Budget({}), workload_set="cpu", now=lambda: 0.0)
        for kernel_id, found in kept.items():
            rows = records.profile_rows(found, "e", state.task, kernel_id, failure="", at=0.0)
            store.commit(rows | {"profiles": history.next_profile(rows["profiles"])}).result()
        for kernel_id, found in kept.items():
            assert state.profile_notes.profiles.read(kernel_id) == found
        assert state.profile_notes.profiles.read("c" * 64) is None
