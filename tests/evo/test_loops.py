"""Strategies as generators: what recipes yield and hear, words and profiles, and a user's own strategy."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from evo.config import RunConfig
from evo.individual import Individual
from evo.replay import replay
from evo.search.driver import Search
from evo.session import run_row
from evo.store import Store, query
from evo.strategies.base import Rival, StrategyContext
from evo.strategies.loop import LoopStrategy, Recipe
from evo.strategies.refine import Refinement
from fitness.evaluation import Status
from fitness.judging.base import DeviceInfo
from mutators.base import Kind, Request
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from tests.evo import model_runs
from tests.evo.worlds import World
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply

TASK = Task("axpb", "fp32", "cpu")


class NoSettings(BaseModel):
    """Settings of strategies that have none."""


class Planned(LoopStrategy[NoSettings]):
    """A profile, a plan that is made of it, and a kernel that is made of the plan: three kinds in one loop."""

    Settings = NoSettings

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        """Return one of three loops."""
        return self._loop(start) if number < 3 else None

    def _loop(self, start: Individual) -> Recipe:
        assert start.kernel
        seen = yield self.profile(start.kernel)
        plan = yield self.say(
            "tests.evo.test_loops:plan", start.kernel, models=self.context.models, role="planner", context=(seen.id,)
        )
        child = yield self.child("rewrite", start.kernel, models=self.context.models, context=(plan.id,), role="coder")
        if child.correct and child.kernel:
            yield self.child("transform", child.kernel, rival=Rival())


def script(request: Mapping[str, Any], number: int) -> Reply:
    """A plan where one is asked for, else a child."""
    if "Say what to do" in request["messages"][-1]["content"]:
        return Reply(f"Plan {number}: unroll.")
    return model_runs.script(request, number)


def run(folder: Path, *, stops: tuple[int, ...] = (), **changes: Any) -> LlmServer:
    """A run in as many sessions as there are stops, and a last one."""

    async def everything() -> LlmServer:
        async with LlmServer(script) as server:
            made = model_runs.config(server.url, **changes)
            for stop in stops:
                assert await model_runs.session(folder, made, stop_after=stop) == "stopped"
            await model_runs.session(folder, made)
            return server

    return asyncio.run(everything())


def column(folder: Path, sql: str) -> list[Any]:
    found: list[Any] = query(folder, sql).column(0).to_pylist()
    return found


# --- words and profiles -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_loop_may_profile_and_plan_before_it_writes_and_is_the_same_in_pieces(tmp_path: Path) -> None:
    folder = tmp_path / "planned"
    server = run(folder, stops=(3, 6), strategy="tests.evo.test_loops:Planned", budget={"evaluations": 30})
    kinds = Counter(column(folder, "select kind from proposals"))
    assert kinds["profile"] == kinds["say"] == 3 and kinds["child"] >= 3
    assert Counter(column(folder, "select status from tells where status in ('said', 'profiled')")) == {
        "said": 3,
        "profiled": 3,
    }
    plans = column(folder, "select text from proposals where kind = 'say'")
    assert all(plan.startswith("Plan ") for plan in plans)
    metrics = [json.loads(text) for text in column(folder, "select metrics_json from proposals where kind = 'profile'")]
    assert metrics[0] and all(isinstance(value, float | int) for value in metrics[0].values())
    # What was said is shown to those who ask for it, and the profile to the planner.
    prompts = [request["messages"][-1]["content"] for request in server.requests]
    assert any(next(iter(metrics[0])) in prompt for prompt in prompts if "Say what to do" in prompt)
    assert set(column(folder, "select role from llm_calls")) - {"mend"} == {"planner", "coder"}
    # Neither words nor profiles are evaluations, and no child is counted as missing for them.
    assert not column(folder, "select status from failures where status = 'no_child' and count > 3")
    assert sum(column(folder, "select proposals from mutator_gain")) == kinds["child"] + kinds["ancestor"]
    done = replay(folder)
    assert done.equal, done.difference


def test_words_are_part_of_what_is_digested() -> None:
    request = Request(TASK, 1, "say", (), 0, kind=Kind.SAY)
    one, two = Individual(request, text="unroll"), Individual(request, text="tile")
    assert one.status == two.status == "said"
    assert one.digest != two.digest
    assert Individual(request, failure="no answer").status == "no_answer"


# --- refine -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_refinement_goes_on_with_its_conversation(tmp_path: Path) -> None:
    folder = tmp_path / "refined"
    run(folder, stops=(3,), strategy="refine", settings={"n": 2, "turns": 4}, budget={"evaluations": 50})
    requests = [Request.from_json(text) for text in column(folder, "select request_json from asks order by seq")]
    turns = [request for request in requests if request.mutator == "refine"]
    assert len(turns) == 8 and sum(not request.thread for request in turns) == 2
    by_id = {request.id: request for request in turns}
    calls = query(
        folder, "select request_id, messages_json, answer from llm_calls where status = 'answered'"
    ).to_pylist()
    first = {}
    for call in calls:
        first.setdefault(call["request_id"], json.loads(call["messages_json"]))
    answers = {call["request_id"]: call["answer"] for call in calls}
    followed = 0
    for request in turns:
        if request.thread in answers and request.id in first:
            before = first[by_id[request.thread].id]
            assert first[request.id][: len(before)] == before
            assert first[request.id][-2] == {"role": "assistant", "content": answers[request.thread]}
            followed += 1
    assert followed >= 3
    assert "What became of it" in first[turns[-1].id][-1]["content"]
    done = replay(folder)
    assert done.equal, done.difference


def test_refinement_without_a_model_is_refused(axpb: Operator) -> None:
    with pytest.raises(UserError, match="asks language models"):
        Refinement(StrategyContext(axpb, TASK, 1), {})


def test_a_refined_kernel_is_timed_beside_its_parent_without_a_race_and_kept_though_it_is_slower(
    axpb: Operator,
) -> None:
    world = World(axpb, TASK, fate=lambda request, kernel: -0.5)
    strategy = Refinement(StrategyContext(axpb, TASK, 1, "cpu", ("large",)), {"n": 1, "turns": 3})
    (naive,) = strategy.ask(1)
    strategy.tell(world.answer(naive))
    (first,) = strategy.ask(2)
    rival = strategy.rival(first, ())
    assert not rival.race and rival.anchor and rival.anchor.kernel.id == first.parents[0]
    child = world.answer(first)
    strategy.tell(child)
    (second,) = strategy.ask(2)
    assert child.kernel and second.parents == (child.kernel.id,) and second.thread == first.id
    rival = strategy.rival(second, ())
    assert rival.anchor and rival.anchor.kernel.id == child.kernel.id


# --- what strategies know and hear -------------------------------------------------------------------------------


class Listening(Planned):
    """Keeps what it is told."""

    heard_of: ClassVar[list[Individual]] = []

    def _loop(self, start: Individual) -> Recipe:
        assert start.kernel
        self.heard_of.append(start)
        self.heard_of.append((yield self.child("transform", start.kernel)))


def test_strategies_hear_whole_evaluations_also_after_a_resume(tmp_path: Path) -> None:
    folder = tmp_path / "heard"
    Listening.heard_of.clear()
    run(folder, strategy="tests.evo.test_loops:Listening", llm=None)
    first = {individual.id: individual for individual in Listening.heard_of}
    assert any(i.evaluation and i.evaluation.timings for i in first.values())
    Listening.heard_of.clear()
    run(folder, strategy="tests.evo.test_loops:Listening", llm=None)  # nothing new: all of it comes from the store
    assert {individual.id: individual for individual in Listening.heard_of} == first


def test_requests_name_the_device(axpb: Operator) -> None:
    device = DeviceInfo("two cores of a small machine", {"cpu_count": 2, "l2_bytes": 1 << 20})

    def request(**changes: Any) -> Request:
        context = StrategyContext(axpb, TASK, 1, "cpu", ("large",), device=device)
        return context.request(3, "rewrite", ("a",), Random(1), {}, **changes)

    assert request(model="large").params["device"] == device.name
    assert request().params["facts"] == {"cpu_count": 2, "l2_bytes": 1 << 20}
    for made in (request(model="large"), request()):
        read = Request.from_json(made.to_json())
        assert read == made and read.digest == made.digest


def test_a_run_names_its_device() -> None:
    made = RunConfig(operators=["softmax"]).resolved()
    assert made.device and made.device.facts["cpu_count"] >= 1 and "core" in made.device.name
    assert RunConfig.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests.evo.test_loops:Missing", "has no class Missing"),
        ("tests.evo.no_such_module:Loop", "cannot be imported"),
        ("tests.evo.test_loops:", "has no class"),
        ("evo.strategies.loop:LoopStrategy", "the class has no recipe; begin with one of"),
        ("refin", "did you mean `refine`"),
    ],
)
def test_a_strategy_that_is_not_there_gets_one_line(name: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        RunConfig(operators=["softmax"], strategy=name).resolved()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_strategy_whose_module_has_a_fault_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_strategy.py").write_text("Loop = Lop\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="module faulty_strategy cannot be imported: NameError: name 'Lop' is not"):
        RunConfig(operators=["softmax"], strategy="faulty_strategy:Loop").resolved()


# --- the adapter ----------------------------------------------------------------------------------------------------


class Numbered(Planned):
    """A loop of a single child for every number there is, and none for odd ones."""

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        return self._none() if number % 2 else self._loop(start)

    def _none(self) -> Recipe:
        return
        yield

    def _loop(self, start: Individual) -> Recipe:
        assert start.kernel
        child = yield self.child("rewrite", start.kernel, models=self.context.models)
        if child.evaluation and child.evaluation.verdict is Status.CORRECT and child.kernel:
            yield self.child("rewrite", child.kernel, models=self.context.models[:1])


def test_an_unavailable_model_costs_a_loop_nothing_but_time(axpb: Operator) -> None:
    world = World(axpb, TASK, fate=lambda request, kernel: 0.5, gone=("large", "small"))
    strategy = Numbered(StrategyContext(axpb, TASK, 1, "cpu", ("large", "small")), {})
    (naive,) = strategy.ask(1)
    strategy.tell(world.answer(naive))
    asked = strategy.ask(2)
    assert {request.model for request in asked} == {"large"}
    for request in asked:
        strategy.tell(world.answer(request))
    trial, small = strategy.ask(2)
    assert (trial.model, small.model) == ("large", "small")  # one that is out is tried once; others go to the next
    strategy.tell(world.answer(small))
    (second,) = strategy.ask(8)
    assert second.model == "small"
    assert strategy.ask(8) == []
    world.gone = ()
    for request in (trial, second):
        strategy.tell(world.answer(request))
    again = strategy.ask(4)
    assert len(again) == 4 and {request.mutator for request in again} == {"rewrite"}


def test_a_kernel_without_times_cannot_be_profiled(tmp_path: Path) -> None:
    """The scripted fitness of plain tests has no timings: the loop hears a failure and goes on."""
    from fitness.testing import ScriptedFitness

    made = RunConfig(operators=["softmax"], strategy="tests.evo.test_loops:Profiling").resolved()
    stages = {task: ScriptedFitness(task, model_runs.stages(made)[task].baseline) for _, task in made.tasks()}
    with Store(tmp_path / "run", create=True) as store:
        store.commit({"runs": [run_row(made, tmp_path / "run")]}).result()
        asyncio.run(Search(made, store, InlinePool(dict(stages))).run())
    assert column(tmp_path / "run", "select status from tells where kernel_id is null") == ["no_answer"]


class Profiling(Planned):
    """Nothing but one profile."""

    def recipe(self, number: int, start: Individual) -> Recipe | None:
        return self._loop(start) if number < 1 else None

    def _loop(self, start: Individual) -> Recipe:
        assert start.kernel
        yield self.profile(start.kernel)
