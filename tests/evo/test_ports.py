"""Kernels that are carried over between the tasks of a run: by which rules, with which lineage, replayed equal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from evo.api import Run
from evo.replay import replay
from evo.store import query
from evo.strategies.base import Leader, StrategyContext
from evo.strategies.islands import Islands
from fitness.evaluation import Status
from fitness.testing import by_digest
from mutators.base import Request
from operators.catalog import load
from operators.definition.spec import Task, alike
from operators.kernel import Kernel
from tests.evo import model_runs
from tests.evo.worlds import TUNABLE, World, play
from tests.mutators.llm_server import Reply

AXPB = load(str(Path(__file__).parents[1] / "data" / "axpb"))
TASK, TWIN = Task("axpb", "fp32", "cpu"), Task("axpb", "fp64", "cpu")
SIBLING = Task("axmb", "fp32", "cpu")
PORTS = ("carry", "port")


def leader(task: Task, log_speedup: float, mark: str = "", share: float | None = None) -> Leader:
    return Leader(task, Kernel(task.operator, "cpu", f"{TUNABLE}// {task} {mark}\n"), log_speedup, share)


def islands(**settings: Any) -> tuple[Islands, World]:
    """A search of one task that has come some way, and its world."""
    context = StrategyContext(AXPB, TASK, 3, models=("a", "b"), questions=4)
    made, world = Islands(context, settings), World(AXPB, TASK, fate=lambda *_: 0.1)
    play(made, world, requests=12, order=Random(1), most_in_flight=1)
    assert made.best
    made.hear(Leader(TASK, made.best.kernel, 0.1))
    return made, world


def carried(strategy: Islands, world: World, requests: int = 150) -> list[Request]:
    """The requests for other tasks' kernels, everything being told at once."""
    found = []
    for _ in range(requests):
        for request in strategy.ask(1):
            told = world.answer(replace(request, parents=request.parents[:1]) if request.source_task else request)
            strategy.tell(replace(told, request=request))
            found += [request] if request.source_task else []
    return found


def test_a_twin_is_tried_as_it_stands_at_once_and_then_models_are_asked() -> None:
    strategy, world = islands()
    ahead = leader(TWIN, 1.0)
    world.kernels[ahead.kernel.id] = ahead.kernel
    strategy.hear(ahead)
    first, *others = carried(strategy, world)
    assert (first.mutator, first.parents, first.source_task) == ("carry", (ahead.kernel.id,), str(TWIN))
    assert sorted((r.mutator, r.model) for r in others) == [("port", "a"), ("port", "b")]  # each model once
    assert all(len(r.parents) == 2 and r.source == ahead.kernel.id for r in others)
    strategy.hear(leader(TWIN, 1.1, "a little further"))
    assert not carried(strategy, world)
    strategy.hear(leader(TWIN, 1.5, "much further"))
    world.kernels |= {k.id: k for k in (leader(TWIN, 1.5, "much further").kernel,)}
    assert next(r.mutator for r in carried(strategy, world)) == "carry"


@pytest.mark.parametrize(
    ("heard", "settings"),
    [
        (leader(SIBLING, 1.0), {"port": 0}),
        (leader(SIBLING, 0.2), {}),
        (leader(SIBLING, 1.0), {"port": 3}),
    ],
    ids=["switched off", "hardly ahead", "not so far ahead as was asked for"],
)
def test_nothing_is_carried_over(heard: Leader, settings: dict[str, Any]) -> None:
    strategy, world = islands(**settings)
    strategy.hear(heard)
    assert not carried(strategy, world)


def test_what_the_machine_allows_decides_where_it_is_known() -> None:
    """A sibling with a larger speedup may have had a worse naive kernel."""
    own, sibling = leader(TASK, 0.1, share=-0.1), leader(SIBLING, 2.0, share=-0.2)
    assert sibling.ahead(own) == pytest.approx(-0.1)
    assert sibling.ahead(replace(own, log_share=None)) == pytest.approx(1.9)


def test_a_model_that_is_gone_has_not_been_asked() -> None:
    strategy, world = islands()
    world.gone = ("a", "b")
    strategy.hear(leader(SIBLING, 1.0))
    asked = carried(strategy, world, requests=200)
    assert {r.model for r in asked} == {"a", "b"} and len(asked) > 2


def test_norms_are_alike_and_what_moves_data_is_not() -> None:
    norms = [load(name) for name in ("batch_norm", "layer_norm", "rms_norm", "softmax", "fused_add_rms_norm")]
    assert all(alike(one, other) for one in norms for other in norms)
    assert not any(alike(load(name), norm) for norm in norms for name in ("matrix_transpose", "relu", "matrix_mul"))
    assert alike(load("matrix_mul"), load("square_matrix_mul")) and not alike(load("matrix_mul"), load("dot_product"))


# --- a whole run ------------------------------------------------------------------------------------------------------


def answer(request: Mapping[str, Any], number: int) -> Reply:
    """A child of the kernel to beat, which a prompt of `port` shows last."""
    prompt = request["messages"][1]["content"]
    sources = re.findall(r"```cpp untrusted\n(.*?)\n```", prompt, re.DOTALL)
    if "# The kernel to beat" not in prompt:
        return model_runs.script(request, number)
    return Reply(f"CHANGE: its design\n\n{model_runs.FENCE}{sources[-1]}\n{model_runs.another(str(number))}\n```")


def verdict(kernel: Kernel) -> Status | float:
    """Kernels of one operator are ahead of all of the other's, by more than these gain."""
    found = by_digest(kernel)
    return found if isinstance(found, Status) else found / 8 + (kernel.operator == "rms_norm")


WISHES: dict[str, Any] = {
    "operators": ["softmax", "rms_norm"], "dtypes": ["fp32", "fp64"], "strategy": "islands",
    "budget": {"evaluations": 110},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four tasks in three sessions."""
    made = tmp_path_factory.mktemp("ports") / "run"
    reason, _ = model_runs.run(made, stops=(25, 60), answer=answer, verdict=verdict, settings={"port": 1.05}, **WISHES)
    assert reason == "evaluations 110 of 110"
    return made


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


@pytest.mark.slow
def test_a_run_of_several_tasks_carries_over_and_replays_equal(folder: Path) -> None:
    sql = "select mutator, count(*) as n from proposals where source_task is not null group by mutator"
    found = {row["mutator"]: row["n"] for row in rows(folder, sql)}
    assert found.keys() == {*PORTS}, found
    done = replay(folder)
    assert done.equal, done.difference


@pytest.mark.slow
def test_the_lineage_crosses_tasks(folder: Path) -> None:
    sql = f"select * from lineage where mutator in {PORTS} order by generation desc"
    for child in rows(folder, sql):
        assert child["source_task"] != child["task"]
        (source,) = rows(
            folder,
            f"from lineage where task = '{child['source_task']}' and kernel_id = '{child['parent_id']}'",
        )
        assert source["generation"] < child["generation"]
        chain = Run(folder).lineage(child["kernel_id"], child["task"], principal=True)
        assert [(step.task, step.kernel_id) for step in chain[-2:]] == [
            (source["task"], source["kernel_id"]), (child["task"], child["kernel_id"])
        ]  # fmt: skip
        assert chain[0].mutator == "ancestor"
    gained = rows(folder, "select mutator, gain, parents from offspring where source_task is not null and is_new")
    assert all(row["gain"] is None and len(row["parents"]) == 1 for row in gained if row["mutator"] == "carry")


@pytest.mark.slow
def test_a_prompt_tells_of_the_source_and_of_the_task_itself(folder: Path) -> None:
    calls = rows(folder, "select * from llm_calls where role = 'port' and status = 'answered' order by rowid")
    assert calls
    for call in calls:
        system, asked = (message["content"] for message in json.loads(call["messages_json"])[:2])
        request = Request.from_json(
            rows(folder, f"select request_json from asks where request_id = '{call['request_id']}'")[0]["request_json"]
        )
        own, source = rows(
            folder,
            "select kernel_id, source from kernels where kernel_id in"
            f" {request.parents} order by kernel_id = '{request.source}'",
        )
        assert system.count(f"# The operator `{request.task.operator}`") == 1
        assert model_runs.source_in(asked).strip() == source["source"].strip()
        assert own["source"].strip() in asked and f"`{request.source_task}`" in asked
        assert load(request.task.operator).naive("cpu").strip() in asked


@pytest.mark.slow
def test_a_hermetic_run_carries_nothing_over(tmp_path: Path) -> None:
    changes = WISHES | {"budget": {"evaluations": 40}, "settings": {"port": 0}}
    model_runs.run(tmp_path / "run", answer=answer, **changes)
    assert not rows(tmp_path / "run", "from proposals where source_task is not null")
