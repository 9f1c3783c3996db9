"""Comparisons: equal budgets, equal arms, and results that no interruption changes."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from evo import rows
from evo.cli.commands import main
from evo.compare.cells import CellResult, CellState, cell_results, curves_table, results_table, standing, stored
from evo.compare.conclusions import plan
from evo.compare.config import Cell, Comparison, read_comparison
from evo.compare.leaks import hermetic
from evo.compare.record import faults, lines
from evo.compare.running import ComparisonState, check, prepare
from evo.config import RunConfig, read_config
from evo.outside.importing import operators_of
from evo.outside.questions import ComparisonInboxCheck, comparison_questions
from evo.replay import replay
from evo.store import Store, query
from evo.workers.worker import RunContext
from fitness.evaluation import Rejection, Status
from fitness.judging.base import Checked, Fitness
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import UserError
from tests.choosing import some_long
from tests.evo.comparisons import ScriptedBackend, ScriptedPool, Stages, answer, comparison, run, serving
from tests.evo.model_runs import FENCE, another, source_in
from tests.evo.outside_runs import answer as outside_answer
from tests.evo.twins import AXPB
from tests.inline import InlinePool
from tests.mutators.llm_server import LlmServer, Reply

CONFIGS = Path(__file__).parents[2] / "runs" / "configs"
TIMED = {
    "asks": ("created_at",),
    "tells": ("created_at", "seconds", "cost_usd"),
    "proposals": ("created_at", "seconds", "evaluate_s"),
    "evaluations": ("created_at", "worker", "build_ms", "verify_ms", "time_ms", "confirm_ms"),
    "timings": (), "errors": (), "kernels": (), "parents": (), "metrics": (),
    "trials": ("created_at",),
    "profiles": ("created_at", "seconds", "seq"),
    "tool_calls": ("created_at", "seconds"),
    "llm_calls": ("created_at", "call_id", "latency_s"),
}  # fmt: skip
"""Columns of each table that hold times, or names that are drawn anew."""


class FailingChecks(ScriptedBackend):
    """Devices on which no draft passes a check."""

    def pool(self, config: RunConfig, folder: Path) -> ScriptedPool:
        class Failing(Stages):
            def __missing__(self, task: Task) -> Fitness:
                made = super().__missing__(task)
                made.spot_check = lambda kernel: Checked(Rejection(Status.WRONG, "scripted"))  # type: ignore[method-assign]
                return made

        class Pool(ScriptedPool):
            def for_run(self, context: RunContext) -> InlinePool:
                return InlinePool(Failing(dict(context.operators)))

        return Pool()


@pytest.fixture(scope="module")
def server() -> Iterator[LlmServer]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def whole(server: LlmServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ComparisonState, ScriptedBackend]:
    """A comparison that ran without an interruption."""
    return run(tmp_path_factory.mktemp("whole"), comparison(server.url))


@pytest.fixture(scope="module")
def results(whole: tuple[Path, ComparisonState, ScriptedBackend]) -> dict[str, CellResult]:
    return {result.arm: result for result in cell_results(whole[0])}


def content(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """All that a cell's tables hold but times, in no particular order."""
    return {
        table: query(folder, f"select * exclude ({', '.join(timed)}) from {table} order by all").to_pylist()
        if timed
        else query(folder, f"select * from {table} order by all").to_pylist()
        for table, timed in TIMED.items()
    }


def _told(folder: Path, cell: Cell) -> int:
    return query(folder / cell.name, "from tells").num_rows


@pytest.mark.slow
@pytest.mark.parametrize("count", some_long([3, 10], [10]))
def test_interruptions_change_nothing_but_time(
    count: int, whole: tuple[Path, ComparisonState, ScriptedBackend], server: LlmServer, tmp_path: Path
) -> None:
    folder, running, _ = whole
    told_in_all = sum(_told(folder, cell) for cell in running.cells)
    interrupted = tmp_path / folder.name
    points = sorted(Random(7).sample(range(1, told_in_all - 1), count))
    made = comparison(server.url)
    for point in points:

        def stop_when(now: ComparisonState, point: int = point) -> bool:
            under_way = sum(state.told for search in now.searches.values() for state in search.states.values())
            return under_way + sum(_told(interrupted, cell) for cell in now.ended if cell not in now.searches) >= point

        _, now, _ = run(tmp_path, made, stop_when=stop_when)
        assert any(standing is not CellState.DONE for standing, _ in now.ended.values())
    _, now, _ = run(tmp_path, made)
    assert {standing for standing, _ in now.ended.values()} == {CellState.DONE}
    for cell in running.cells:
        expected, found = content(folder / cell.name), content(interrupted / cell.name)
        for table in TIMED:
            assert found[table] == expected[table], (cell.name, table)


def spends_all_but_a_call(result: CellResult, limit: int) -> bool:
    """Whether what is left of a budget of tokens suffices for no other call, which takes less than a tenth of it."""
    needed = re.search(r"tokens are spent, and the next call needs (\d+) left", result.reason)
    return result.spent >= 1 or (needed is not None and (1 - result.spent) * limit < int(needed[1]) < limit / 10)


@pytest.mark.slow
def test_arms_whose_calls_cost_more_spend_the_same_budget(tmp_path: Path) -> None:
    """Prompts of a conversation grow, those of samples do not: refine spent 66-74 % where others spent 76-81 %."""
    arms: dict[str, Any] = {"refine": {"settings": {"n": 1000}}, "best_of_n": {"settings": {"n": 1000}}}
    with serving() as server:
        made = comparison(server.url, arms=arms, budget={"tokens": 30_000})
        folder, _, _ = run(tmp_path, made)
    for result in cell_results(folder):
        assert result.spent == result.used.tokens / 30_000 < 1.1
        assert spends_all_but_a_call(result, 30_000), result.reason


@pytest.mark.slow
def test_a_dialogue_that_the_budget_ends_hands_in_its_draft(tmp_path: Path) -> None:
    """Arms with long dialogues lost the tokens of the last one."""

    def mends(request: Mapping[str, Any], number: int) -> Reply:
        """One answer whose draft is at fault after the other."""
        source = source_in(request["messages"][1]["content"])
        return Reply(f"CHANGE: idea {number}\n\n{FENCE}{source}\n{another(str(number))}\n```\n{'word ' * 3000}")

    with serving(mends) as server:
        arms: dict[str, Any] = {"best_of_n": {"settings": {"n": 1000, "drafts": "check"}}}
        made = comparison(server.url, arms=arms, budget={"tokens": 30_000})
        backend = FailingChecks()
        folder, running, _ = run(tmp_path, made, backend=backend)
    (cell,) = running.cells
    asked = query(folder / cell.name, "select r.request_id, count(c.call_id) as calls, any_value(t.status) as status "
                  "from asks r join llm_calls c using (request_id) left join tells t using (request_id) "
                  "where c.status = 'answered' group by all order by min(c.created_at)").to_pylist()  # fmt: skip
    assert asked[-1]["calls"] < 4 and asked[-1]["status"], "its last dialogue was cut short, and told"


@pytest.mark.slow
def test_profiles_are_taken_and_charged_where_a_recipe_has_them(
    whole: tuple[Path, ComparisonState, ScriptedBackend],
) -> None:
    """They were most of the seconds of `best_of_n`, whose recipe has no profiler."""
    taken = {cell.arm: query(whole[0] / cell.name, "from profiles").num_rows for cell in whole[1].cells}
    assert taken["best_of_n+tune"] == taken["random+tune"] == 0 < taken["refine"]


def test_every_cell_has_the_same_budget_counted_the_same_way(results: dict[str, CellResult]) -> None:
    assert {name: result.standing for name, result in results.items()} == dict.fromkeys(results, CellState.DONE)
    for name, result in results.items():
        assert result.used.evaluations == 8, name
        assert result.reason == "evaluations 8 of 8"
        assert result.winner and result.curve[-1].best_log_speedup == result.winner.stands_at
        assert result.curve[-1].evaluations == 8 and result.curve[-1].trials == result.used.trials
    assert results["islands-models"].used.trials == results["refine"].used.trials == 0
    assert results["random+tune"].used.calls == 0 < results["refine"].used.calls
    assert results["random+tune"].used.tokens == 0 < results["refine"].used.tokens
    assert 0 < results["islands"].used.trials <= 4


def test_all_cells_share_one_pool_and_are_begun_in_blocks_of_random_order(
    whole: tuple[Path, ComparisonState, ScriptedBackend],
) -> None:
    _, running, backend = whole
    (pool,) = backend.pools
    assert len(pool.views) == len(running.cells) + 1
    many = comparison(operators=["softmax", "dot_product"], seeds=list(range(6)))
    order = [(cell.operator, cell.seed, cell.arm) for cell in many.cells()]
    assert len(set(order)) == len(order) == 2 * 6 * 5
    blocks = [order[place : place + 5] for place in range(0, len(order), 5)]
    assert all(len({cell[:2] for cell in block}) == 1 for block in blocks)
    assert len({tuple(cell[2] for cell in block) for block in blocks}) > 6  # of 12: arms come in other orders
    assert [block[0][:2] for block in blocks] != sorted(block[0][:2] for block in blocks)
    assert order == [(cell.operator, cell.seed, cell.arm) for cell in many.cells()]


def test_results_are_tables_of_one_row_a_cell_and_one_a_point(results: dict[str, CellResult]) -> None:
    table, curves = results_table(list(results.values())), curves_table(list(results.values()))
    assert table.num_rows == len(results)
    assert {"arm", "operator", "dtype", "target", "seed", "evaluations", "tokens", "log_speedup", "source"} <= {
        *table.column_names
    }
    assert {"arm", "evaluations", "tokens", "cost_usd", "evaluator_s", "best_log_speedup"} <= {*curves.column_names}
    for result in results.values():
        speedups = [point.best_log_speedup for point in result.curve]
        assert speedups == sorted(speedups)


def test_a_comparison_is_one_subject_of_sql(whole: tuple[Path, ComparisonState, ScriptedBackend]) -> None:
    folder, running, _ = whole
    runs = [folder / cell.name for cell in running.cells]
    found = query(runs, "select run, arm, seed, evaluations, trials from used order by run").to_pylist()
    assert [(row["run"], row["arm"], row["seed"], row["evaluations"]) for row in found] == sorted(
        (cell.name, cell.arm, cell.seed, 8) for cell in running.cells
    )
    assert query(runs, "select distinct comparison from runs").to_pylist() == [{"comparison": "test"}]


def test_a_changed_configuration_is_refused_in_one_line(tmp_path: Path) -> None:
    arms: dict[str, Any] = {"random": {"models": []}}
    made = comparison(arms=arms, budget={"evaluations": 2})
    run(tmp_path, made)
    again: Comparison = comparison(arms=arms, budget={"evaluations": 2}, at_once=3)
    run(tmp_path, again)  # how many cells are under way decides nothing
    for changes, words in (
        ({"budget": {"evaluations": 3}}, r"budget.evaluations was 2.0, is 3.0"),
        ({"seeds": [1, 2]}, r"seeds was \[1\], is \[1, 2\]"),
        (
            {"arms": {"random": {"models": [], "settings": {"most_steps": 2}}}},
            "arms.random.settings.most_steps was null",
        ),
    ):
        with pytest.raises(Exception, match=words) as raised:
            run(tmp_path, comparison(**({"arms": arms, "budget": {"evaluations": 2}} | changes)))
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_no_arm_pays_for_lost_answers_and_they_are_shown(tmp_path: Path) -> None:
    """Every other question is cut off in the middle of its answer: what it may have cost is charged to no budget."""
    asked: dict[str, int] = {}

    def flaky(request: Mapping[str, Any], number: int) -> Reply:
        key = repr(request["messages"])
        asked[key] = asked.get(key, 0) + 1
        return replace(answer(request, number), cut=asked[key] == 1)

    limit = 60_000
    with serving(flaky) as server:
        made = comparison(server.url, arms={"refine": {"settings": {"turns": 100}}}, budget={"tokens": limit})
        folder, _, _ = run(tmp_path, made)
    (result,) = cell_results(folder)
    assert result.standing is CellState.DONE and result.used.lost_tokens > limit
    assert result.spent == result.used.tokens / limit < 1.1 and spends_all_but_a_call(result, limit), result.reason


@pytest.mark.slow
def test_seconds_of_evaluators_are_a_budget(tmp_path: Path) -> None:
    made = comparison(arms={"random": {"models": []}}, budget={"evaluator_s": 0.1})
    folder, running, _ = run(tmp_path, made)
    (result,) = cell_results(folder)
    (spent,) = query(folder / running.cells[0].name, "select sum(evaluate_s) as s from proposals").to_pylist()
    assert result.used.evaluator_s == pytest.approx(spent["s"]) and 0.1 <= spent["s"] < 0.2
    assert result.reason.startswith("evaluator_s")


@pytest.mark.slow
def test_cells_are_hermetic_and_a_leak_is_found(
    whole: tuple[Path, ComparisonState, ScriptedBackend], tmp_path: Path
) -> None:
    folder = whole[0]
    clean = hermetic(folder)
    assert clean.leaks == [] and clean.prompts > 10 and clean.cells == len(whole[1].cells)
    leaky = tmp_path / folder.name
    shutil.copytree(folder, leaky)
    cells = {cell.arm: cell for cell in whole[1].cells}
    foreign = query(leaky / cells["random+tune"].name, "select source from kernels order by length(source)").to_pylist()
    champion = next((load("softmax").folder / "champions").glob("*.cu"))
    idea = "Swaps the two innermost loops so that rows stay in cache"
    shown = {
        "refine": f"Another one wrote:\n{champion.read_text()}",
        "best_of_n+tune": f"Another one wrote:\n  {foreign[-1]['source']}",
        "islands": f"What helped elsewhere: {idea}.",
    }
    for arm, text in shown.items():
        with Store(leaky / cells[arm].name, create=False) as store:
            row = store.rows("from llm_calls limit 1").to_pylist()[0]
            told = rows.messages_json([{"role": "user", "content": text}])
            store.commit({"llm_calls": [row | {"call_id": "leak", "messages_json": told}]}).result()
    with Store(leaky / cells["islands-models"].name, create=False) as store:
        row = store.rows("from proposals where model is not null limit 1").to_pylist()[0]
        store.commit({"proposals": [row | {"description": idea, "request_id": "x"}]}).result()
    found = {leak.run: leak.what for leak in hermetic(leaky).leaks}
    assert set(found) == {cells[arm].name for arm in shown}
    assert f"softmax/champions/{champion.name}" in found[cells["refine"].name]
    assert idea in found[cells["islands"].name]
    assert cells["random+tune"].name in found[cells["best_of_n+tune"].name]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    """Two cells that are done."""
    made = comparison(arms={"random": {"models": []}, "tune_only": {"models": []}}, budget={"evaluations": 2})
    return run(tmp_path_factory.mktemp("short"), made)[0], made


@pytest.mark.slow
def test_every_cell_holds_the_seal_of_what_the_comparison_was_begun_with(short: tuple[Path, Comparison]) -> None:
    folder, made = short
    begun = stored(folder)
    assert faults(folder, begun) == []
    for cell in begun.cells():
        (row,) = query(folder / cell.name, "select config_json from runs").to_pylist()
        assert json.loads(row["config_json"])["cell"]["registration"] == begun.digest
    assert sorted(line["kind"] for line in lines(folder)) == ["begun", "begun", "done", "done"]
    again = begun.model_copy(update={"config": made.model_copy(update={"at_once": 7})})
    other = begun.model_copy(update={"config": made.model_copy(update={"difference": 0.2})})
    kin = begun.model_copy(update={"families": {"softmax": "softmax"}})
    assert again.digest == begun.digest and len({begun.digest, other.digest, kin.digest}) == 3


def test_what_was_registered_cannot_be_changed_in_silence(short: tuple[Path, Comparison], tmp_path: Path) -> None:
    folder, made = Path(shutil.copytree(short[0], tmp_path / short[0].name)), short[1]
    text = (folder / "comparison.json").read_text()
    assert '"primary": null' in text and '"difference": 0.1' in text
    (folder / "comparison.json").write_text(text.replace('"primary": null', '"primary": []'))
    (told, *rest) = faults(folder, stored(folder))
    assert told.startswith("the registration was changed: 2 of its cells are of ")
    assert len(rest) == 2 and all("was begun under another registration" in each for each in rest)
    with pytest.raises(UserError, match="the registration was changed") as raised:
        run(tmp_path, made.model_copy(update={"primary": []}))
    assert "\n" not in str(raised.value)


def test_a_cell_that_was_deleted_changed_or_brought_from_elsewhere_is_told(
    short: tuple[Path, Comparison], tmp_path: Path
) -> None:
    folder, made = Path(shutil.copytree(short[0], tmp_path / short[0].name)), short[1]
    first, second = sorted(folder.glob("*-softmax-*"))
    shutil.rmtree(first)
    assert faults(folder, stored(folder)) == [f"cell {first.name} was begun, and is gone"]
    run(tmp_path, made)
    (again,) = faults(folder, stored(folder))
    assert again == f"cell {first.name} was begun 2 times: what it had found before was removed"
    with duckdb.connect(str(second / "evo.duckdb")) as connection:
        connection.sql("update evaluations set log_speedup = log_speedup + 1")
    assert f"cell {second.name} was changed after its end" in faults(folder, stored(folder))
    record = (folder / "record.jsonl").read_text().splitlines(keepends=True)
    (folder / "record.jsonl").write_text("".join(record[1:]))
    assert "record.jsonl was changed: its lines do not follow from each other" in faults(folder, stored(folder))
    (folder / "record.jsonl").unlink()
    assert set(faults(folder, stored(folder))) == {
        f"cell {each.name} is not in record.jsonl: it was not begun here" for each in (first, second)
    }


def leak(folder: Path, cell: Cell, text: str, answer: str) -> None:
    """Have the first question of a cell show a text, and its answer hand in what it says."""
    with duckdb.connect(str(folder / cell.name / "evo.duckdb")) as connection:
        told = rows.messages_json([{"role": "user", "content": text}])
        connection.execute(
            "update llm_calls set messages_json = ?, answer = ? where rowid = (select min(rowid) from llm_calls)",
            (told, answer),
        )


def test_a_leaked_kernel_that_the_model_copies_is_a_leak_all_the_same(
    whole: tuple[Path, ComparisonState, ScriptedBackend], tmp_path: Path
) -> None:
    leaky = Path(shutil.copytree(whole[0], tmp_path / whole[0].name))
    (refine,) = (cell for cell in whole[1].cells if cell.arm == "refine")
    champion = next((load("softmax").folder / "champions").glob("*.cu")).read_text()
    leak(leaky, refine, f"Another one wrote:\n{champion}", f"CHANGE: as they did\n\n```cpp\n{champion}```")
    (found,) = hermetic(leaky).leaks
    assert found.run == refine.name and "softmax/champions/" in found.what


SHORT = [f"acc{n} += v[{n}];" for n in range(6)]
LONG = [f"    float held_back_{n} = __shfl_xor_sync(0xffffffffu, total, {n});" for n in range(2)]


def with_another_kernel(
    whole: tuple[Path, ComparisonState, ScriptedBackend], runs: Path
) -> tuple[Path, dict[str, Cell]]:
    """A copy of a comparison in which `islands` has made a kernel of these lines; its cells by arm."""
    folder = Path(shutil.copytree(whole[0], runs / whole[0].name))
    cells = {cell.arm: cell for cell in whole[1].cells}
    with Store(folder / cells["islands"].name, create=False) as store:
        row = store.rows("from kernels limit 1").to_pylist()[0]
        source = "\n".join((row["source"], *LONG, *SHORT))
        store.commit({"kernels": [row | {"kernel_id": "other", "source": source}]}).result()
    return folder, cells


@pytest.mark.parametrize("shown", [
    f"\n> {LONG[0]}\n", "\n> ".join(["", *LONG, ""]), "\n> ".join(["", *SHORT[1:4], ""]),
    f" what others had, {LONG[1].strip()}, since it saves a barrier. ",
], ids=["one line", "two lines", "short lines", "within a sentence"])  # fmt: skip
def test_a_leak_of_few_lines_or_of_short_ones_is_found_wherever_it_stands(
    whole: tuple[Path, ComparisonState, ScriptedBackend], tmp_path: Path, shown: str
) -> None:
    folder, cells = with_another_kernel(whole, tmp_path)
    leak(folder, cells["refine"], f"It helps to write{shown}Now go on.", "no")
    (found,) = hermetic(folder).leaks
    assert found.run == cells["refine"].name and cells["islands"].name in found.what


def test_what_a_cell_wrote_itself_is_no_leak_however_it_is_quoted(
    whole: tuple[Path, ComparisonState, ScriptedBackend], tmp_path: Path
) -> None:
    """Models that know the same idioms write the same lines, and say the same of them."""
    folder, cells = with_another_kernel(whole, tmp_path)
    lines, idea = [*LONG, *SHORT, 'asm volatile("fence;\\n");'], "unrolls the loop over rows by four " * 10
    calls = [{"id": "1", "name": "build", "arguments": json.dumps({"source": "\n".join(lines)})}]
    quoted = "\n".join(f"  {n + 7} | {line}" for n, line in enumerate(lines[1:]))
    told = rows.messages_json([{"role": "user", "content": f"{idea[:197]}...\nkernel.cu(7): error\n{quoted}"}])
    for arm in ("refine", "islands"):
        with duckdb.connect(str(folder / cells[arm].name / "evo.duckdb")) as connection:
            connection.execute("update proposals set description = ? where model is not null", (f"{idea[:197]}...",))
    with duckdb.connect(str(folder / cells["refine"].name / "evo.duckdb")) as connection:
        first, last = connection.sql("select min(rowid), max(rowid) from llm_calls").fetchall()[0]
        connection.execute("update llm_calls set tool_calls_json = ? where rowid = ?", (json.dumps(calls), first))
        connection.execute("update llm_calls set messages_json = ? where rowid = ?", (told, last))
    assert hermetic(folder).leaks == []


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_configurations_that_are_shipped_can_be_begun(path: Path) -> None:
    if "operators" in (raw := tomllib.loads(path.read_text())) and "arms" not in raw:
        assert read_config(path, {}, ()).tasks()
        return
    made = read_comparison(path)
    if any("*" in name for name in made.operators):  # problems of a repository that a user clones
        with pytest.raises(UserError, match="no file is there; clone the repository"):
            operators_of(made.operators)
        made = made.model_copy(update={"operators": ["softmax"]})
    assert made.name == path.stem
    first = {cell.arm: cell for cell in made.cells()}
    assert set(first) == set(made.arms)
    for cell in first.values():
        cell.config.make_strategy(*cell.config.tasks()[0])
        assert cell.config.ancestors == "naive" and not cell.config.lessons


@pytest.mark.slow
def test_the_command_plans_runs_shows_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(
        f'operators = ["{AXPB}"]\nseeds = [1]\nbudget = {{ evaluations = 2 }}\n[arms.random]\n[arms.tune_only]\n'
    )
    monkeypatch.setattr("evo.compare.running.backend_of", lambda _: nullcontext(ScriptedBackend()))

    def evo(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["evo", "compare", str(path), "--runs", str(tmp_path), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    code, out, _ = evo("--dry-run")
    assert (
        code == 0 and "2 cells" in out and "2 evaluations a cell, 4 in all" in out and "costs nothing but time" in out
    )
    assert "what would be seen, at 80% power" in out and "of operators of 6 families, from" in out
    code, _, err = evo("--resume")
    assert code == 2 and "no comparison was begun there" in err
    code, out, err = evo("--json")
    assert code == 0, err
    shown = json.loads(out)
    assert "check hermetic: passed" in err and "check record: passed; registration " in err
    assert shown["registration"] and not shown["faults"]
    assert [(cell["arm"], cell["standing"], cell["evaluations"]) for cell in shown["cells"]] == [
        (cell["arm"], "done", 2) for cell in shown["cells"]
    ]
    assert all(cell["judged"] and cell["passed"] in (True, False) for cell in shown["cells"])
    assert {arm["arm"]: arm["verdict"] for arm in shown["arms"]} == {"random": None, "tune_only": "open"}
    code, out, _ = evo("--show")
    assert code == 0 and "tune_only" in out and "2 of 2 cells judged anew" in out and "no verdict: tune_only" in out
    code, _, err = evo("--set", "budget.evaluations=3")
    assert code == 2 and "budget.evaluations was 2.0, is 3.0" in err
    shutil.rmtree(next((tmp_path / "compare-tiny").glob("random-*")))
    code, _, err = evo("--show")
    assert code == 1 and "check record: FAILED" in err and "was begun, and is gone" in err
    code, _, err = evo("--set", "arms.random.settings.stepz=3", "--dry-run")
    assert code == 2 and "arm random" in err and "stepz" in err


REFUSED = [
    ({"primary": ["nope"]}, "primary: nope is no arm beside refine; there are best_of_n"),
    ({"budget": {"tokens": 4000}}, "a budget of 4,000 tokens does not pay for a first answer of openai/gpt-5"),
    ({"budget": {"cost_usd": 0.01}}, "a budget of 0.01 dollars does not pay for a first answer of openai/gpt-5"),
    (
        {"budget": {"cost_usd": 1}, "llm": {"models": ["openai/none"]}},
        "model openai/none: its price is not known, so that a budget in dollars would not hold; limit tokens instead",
    ),
]


@pytest.mark.parametrize("changes, words", REFUSED, ids=["primary", "few_tokens", "few_dollars", "no_price"])
def test_what_cannot_be_concluded_or_paid_is_refused_before_it_begins_in_one_line(
    changes: Mapping[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = {
        "operators": ["softmax"], "targets": ["cuda"], "seeds": [1], "budget": {"tokens": 300_000},
        "llm": {"models": ["openai/gpt-5"]}, "arms": {"refine": {}, "best_of_n": {}},
    } | changes  # fmt: skip
    path = tmp_path / "small.json"
    lines = [f"{key} = {_toml(value)}" for key, value in made.items()]
    path.write_text("\n".join(lines))
    monkeypatch.setattr("sys.argv", ["evo", "compare", str(path), "--runs", str(tmp_path), "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.strip()
    assert ended.value.code == 2 and words in said and "\n" not in said and len(said) < 400


def test_a_model_that_is_not_there_leaves_no_folder_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]  # nobody listens there when it is closed
    with pytest.raises(UserError, match="no server answers there") as raised:
        prepare(comparison(f"http://127.0.0.1:{port}/v1"), tmp_path)
    assert "\n" not in str(raised.value) and not any(tmp_path.iterdir())


@pytest.mark.parametrize("budget, words", [
    ({"evaluator_s": 60.0}, "its searches take 6 min at least on 2 workers here"),
    ({"evaluations": 8}, "a budget in evaluations limits no time, one in evaluator_s does"),
])  # fmt: skip
def test_a_plan_says_how_long_it_takes_where_the_budget_limits_time(
    budget: dict[str, float], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.session.worker_cores", lambda *_: [(0,), (1,)])
    arms: dict[str, Any] = {"islands": {}, "random": {}, "tune_only": {}}
    made = comparison(budget=budget, operators=["softmax", "relu"], seeds=[1, 2], arms=arms)
    cells = check(made)
    assert len(cells) == 12
    assert words in plan(made, cells).lines()[-2]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}"
    return json.dumps(value)


def test_a_comparison_of_a_gpu_is_planned_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise UserError("no CUDA device can be used here")

    monkeypatch.setattr("fitness.cuda.running.driver.device_facts", none)
    monkeypatch.setattr("sys.argv", ["evo", "compare", str(CONFIGS / "small.toml"), "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert not ended.value.code and "US dollars at most" in said.out, said.err


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["islands", "best_of_n+tune"])
def test_a_cell_is_a_run_that_replays(
    whole: tuple[Path, ComparisonState, ScriptedBackend], tmp_path: Path, arm: str
) -> None:
    (cell,) = (cell for cell in whole[1].cells if cell.arm == arm)
    shutil.copytree(whole[0] / cell.name, tmp_path / cell.name)
    again = replay(tmp_path / cell.name)
    assert again.equal, again.difference
    assert again.individuals == _told(whole[0], cell)


@pytest.mark.slow
def test_cells_wait_for_answers_from_outside_and_go_on_with_them(tmp_path: Path) -> None:
    made = comparison(
        arms={"refine": {"settings": {"n": 2}}, "random": {"models": []}},
        llm={"models": ["outside"]}, budget={"evaluations": 3},
    )  # fmt: skip
    folder, running, _ = run(tmp_path, made)
    cells = {cell.arm: cell for cell in running.cells}
    assert running.ended[cells["random"]][0] is CellState.DONE
    for _ in range(20):
        if running.ended[cells["refine"]][0] is CellState.DONE:
            break
        assert running.ended[cells["refine"]][0] is CellState.WAITING
        (question,) = comparison_questions(folder)  # the others are asked with its answer
        assert "refine" not in json.dumps(question.to_batch({})) + question.to_text().partition("---")[0]
        check = ComparisonInboxCheck(folder, "ann")
        assert check.look_at([("here", outside_answer(question)), ("there", '{"source": "x"}')]).answers == 1
        check.put()
        assert comparison_questions(folder) == []
        confirmed = query(
            folder / cells["refine"].name, "select count(*) as n from evaluations where level = 'confirmed'"
        )
        assert confirmed.to_pylist() == [{"n": 0}], "its winner is confirmed when it is over, not in every pause"
        _, running, _ = run(tmp_path, made)
    (refine,) = (result for result in cell_results(folder) if result.arm == "refine")
    assert refine.standing is CellState.DONE and refine.used.evaluations == 3
    assert refine.winner and refine.winner.level == "confirmed"


@pytest.mark.slow
def test_what_is_wrong_with_one_cell_ends_all_in_good_order(tmp_path: Path) -> None:
    """A machine that is another one by now, say, is told in one line; what others had under way is stored."""
    arms: dict[str, Any] = {"random": {"models": []}, "tune_only": {"models": []}}
    made = comparison(arms=arms)
    folder, cells = prepare(made, tmp_path)
    run(tmp_path, made, stop_when=lambda now: len(now.ended) >= 1)
    (cell, *_) = (each for each in cells if standing(folder / each.name)[0] is CellState.DONE)
    other = next(each for each in cells if each != cell)
    shutil.rmtree(folder / other.name, ignore_errors=True)
    shutil.copytree(folder / cell.name, folder / other.name)
    database = folder / other.name / "evo.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.sql('update runs set host_json = json_merge_patch(host_json, \'{"processor": "another"}\')')
    with Store(folder / other.name, create=False) as store:
        store.commit(rows.event_rows("session", {}, at=time.time())).result()
    with pytest.raises(UserError, match="it began on another machine") as raised:
        run(tmp_path, made)
    assert "\n" not in str(raised.value)
