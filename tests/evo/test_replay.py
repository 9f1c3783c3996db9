"""Replay: the same run from its stored answers and evaluations, and where another one leaves its tracks."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from evo.api import Run
from evo.replay import compare, replay
from evo.report.status import model_costs
from evo.store import Store, query
from mutators.transforms.mutator import Transform
from operators.definition.spec import Operator
from operators.errors import UserError
from tests.choosing import size
from tests.evo import model_runs
from tests.evo.test_cli import evo


def count(folder: Path, sql: str) -> int:
    (row,) = query(folder, f"select count(*) as n from {sql}").to_pylist()
    return int(row["n"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without language models, of two operators, interrupted twice."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    model_runs.run(
        folder,
        stops=(4, 8),
        llm=None,
        strategy="islands",
        settings={"migration_interval": 2},
        operators=["softmax", "matrix_mul"],
        budget={"evaluations": size(20, 12)},
    )
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that asked a language model, with failing calls, broken answers, repairs and profiles."""
    folder = tmp_path_factory.mktemp("runs") / "asked"
    for evaluations in (20, 40, 80, 160):  # in which order answers arrive decides what is asked for next
        model_runs.run(folder, budget={"evaluations": evaluations})
        if all(count(folder, f"asks where mutator = '{name}'") for name in ("repair", "crossover")):
            break
    asked = "".join(query(folder, "select messages_json from llm_calls").column("messages_json").to_pylist())
    assert "could not be used" in asked and "a profiler says" in asked and "| n=9 |" in asked
    assert all(count(folder, f"asks where mutator = '{name}'") for name in ("repair", "crossover"))
    return folder


def test_a_run_of_several_tasks_is_asked_for_one_by_the_option_that_takes_it(
    plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for option, value in (("--as", "kernelbench"), ("--package", "new"), ("--export", "new.cpp")):
        code, _, said = evo(monkeypatch, capsys, "best", str(plain), option, value)
        assert (code, said.startswith(f"evo: {option} takes one kernel; choose with --task among ")) == (2, True)


def test_a_run_that_goes_on_is_not_repeated(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = copytree(plain, tmp_path / "run")
    with Store(folder, create=False):
        code, _, said = evo(monkeypatch, capsys, "replay", str(folder))
    assert (code, said) == (2, "evo: run run goes on: stop it, or wait for its end, before it is repeated\n")
    assert [*tmp_path.iterdir()] == [folder]


def test_a_run_is_the_same_again(plain: Path) -> None:
    assert count(plain, "migrations")
    done = replay(plain)
    assert done.equal, done.difference
    assert done.individuals == count(plain, "tells") >= 12


@pytest.mark.slow
def test_a_replay_is_the_same_again(plain: Path) -> None:
    done = replay(plain)
    again = replay(Path(done.replay))
    assert again.equal and again.individuals == done.individuals


@pytest.mark.slow
def test_a_run_is_the_same_again_though_better_champions_stand_there_now(axpb: Operator, tmp_path: Path) -> None:
    folder, source = tmp_path / "axpb", axpb.naive("cpu")
    copytree(axpb.folder, folder)
    (folder / "champions").mkdir()
    (folder / "champions" / "xeon.cpp").write_text(f"{source}// then\n", encoding="utf-8")
    run = tmp_path / "runs" / "r"
    model_runs.run(
        run, llm=None, strategy="islands", operators=[str(folder)], ancestors="all", budget={"evaluations": 8}
    )
    assert count(run, "proposals where description = 'champions/xeon.cpp as it stands'") == 1
    (folder / "champions" / "xeon.cpp").write_text(f"{source}// now\n", encoding="utf-8")
    (folder / "champions" / "xeon-fp32.cpp").write_text(source, encoding="utf-8")
    done = replay(run)
    assert done.equal, done.difference


@pytest.mark.slow
def test_the_answers_of_a_model_are_served_without_it(asked: Path) -> None:
    done = replay(asked)
    assert done.equal, done.difference
    assert done.individuals == count(asked, "tells")
    assert model_costs(Run(Path(done.replay))) == model_costs(Run(asked))


@pytest.mark.slow
def test_prompts_are_the_same_in_every_session(tmp_path: Path) -> None:
    folder = tmp_path / "pieces"
    _, server = model_runs.run(folder, stops=(1, 5, 8, 13, 20))
    done = replay(folder)
    assert done.equal, done.difference
    answered = query(folder, "select cache_key from llm_calls where status <> 'failed'").column(0).to_pylist()
    assert len(answered) == len(set(answered)) <= len(server.requests)


@pytest.mark.slow
def test_what_a_run_left_open_is_left_open(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    model_runs.run(folder, stops=(9,), finish=False)
    done = replay(folder)
    assert done.equal, done.difference
    assert count(Path(done.replay), "asks") == count(folder, "asks")


def test_a_mutator_that_changed_is_found_out(plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    real = Transform.propose

    def changed(self: Transform, request: Any, *rest: Any) -> Any:
        seed = request.seed + (request.number == 8)
        return real(self, type(request)(**{**vars(request), "seed": seed, "params": {}}), *rest)

    monkeypatch.setattr(Transform, "propose", changed)
    code, out, _ = evo(monkeypatch, capsys, "replay", str(plain), "--json")
    found = json.loads(out)
    assert code == 1
    assert not found["equal"]
    assert "#" in found["difference"] and found["individuals"] < count(plain, "tells")


@pytest.mark.slow
def test_a_prompt_that_changed_is_found_out(asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("mutators.prompts.informed._speedup", lambda evaluation: "12.3")
    code, out, _ = evo(monkeypatch, capsys, "replay", str(asked))
    assert code == 1
    assert "is asked for a" in out and "in other words" in out and "then" in out


def test_two_stores_are_compared(plain: Path, scripted_folder: Path) -> None:
    assert compare(plain, plain).equal
    found = compare(plain, scripted_folder)
    assert not found.equal
    assert found.difference.startswith("request 1 differs")


def test_a_run_that_never_began_has_nothing_to_replay(tmp_path: Path) -> None:

    Store(tmp_path / "empty", create=True).close()
    with pytest.raises(UserError, match="nothing to replay"):
        replay(tmp_path / "empty")
