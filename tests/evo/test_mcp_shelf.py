"""MCP tools that need no running search: an agent finds runs, kernels and pages, and begins a run of its own."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evo.api import Run
from evo.search.driver import CONFIRMED
from evo.workbench.tools import MOST_CHARACTERS, parsed
from mutators.bench import Result, Tool
from operators.errors import UserError
from tests.bench.kills import alive
from tests.evo.ends import is_end
from tests.evo.test_cli import evo

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp import Client

from evo.outside.mcp_server import PAGES, SHELF, Shelf, make_server


class Empty:
    """A place at a task, which says what was asked of it."""

    tools: tuple[Tool, ...] = ()

    def __init__(self, folder: Path, task: str) -> None:
        self.folder, self.task = folder, task

    async def use(self, name: str, arguments: Mapping[str, Any]) -> Result:
        return Result(f"{name} of {self.folder.name} {self.task}")


def shelf(runs: Path) -> Shelf:
    return Shelf(runs, Empty)


def use(at: Shelf, name: str, **arguments: Any) -> Result:
    return asyncio.run(at.use(name, arguments))


def told(at: Shelf, name: str, **arguments: Any) -> str:
    found = use(at, name, **arguments)
    assert not found.failed, found.text
    return found.text


def test_every_tool_has_a_schema_with_meanings_and_an_example_that_it_takes(tmp_path: Path) -> None:
    at = shelf(tmp_path)
    names = [tool.name for tool in at.tools]
    assert len(names) == len(set(names)) and set(SHELF) < set(names)
    for tool in at.tools[: len(SHELF)]:
        (example,) = tool.parameters["examples"]
        parsed(tool.name, example, SHELF)
        assert tool.description.endswith(".") and tool.parameters["additionalProperties"] is False
        for name, field in tool.parameters["properties"].items():
            assert field.get("description"), f"{tool.name}.{name}"


def test_runs_are_listed_opened_and_used(run_folder: Path) -> None:
    at = shelf(run_folder.parent)
    line = told(at, "runs")
    assert run_folder.name in line and "axpb" in line and "budget" in line and "\n" not in line
    found = use(at, "status")
    assert found.failed and "no run is open" in found.text
    assert "is open" in told(at, "open_run", run="last", task="axpb")
    assert told(at, "status") == f"status of {run_folder.name} axpb"
    assert use(at, "open_run", run="none").failed and use(at, "machine").text == f"machine of {run_folder.name} axpb"


def test_a_tool_that_is_unknown_is_answered_with_all_that_there_are(run_folder: Path) -> None:
    at = shelf(run_folder.parent)
    for _ in range(2):
        found = use(at, "open_runs")
        assert found.failed and "did you mean `open_run`" in found.text
        told(at, "open_run", run="last")


def test_operators_are_listed_and_one_is_told_whole(tmp_path: Path) -> None:
    at = shelf(tmp_path)
    lines = told(at, "operators", family="activation").splitlines()
    assert len(lines) > 3 and all("activation" in line for line in lines)
    whole = told(at, "operators", operator="softmax")
    assert "name: softmax" in whole and "naive" in whole
    found = use(at, "operators", operator="../evil")
    assert found.failed and "evil" in found.text, "what is no name of the catalog is never loaded"


def test_kernels_of_all_runs_are_found_by_text_operator_instruction_and_gain(run_folder: Path) -> None:
    at = shelf(run_folder.parent)
    every = told(at, "find_kernels", rows=50)
    lines = [line for line in every.splitlines() if "axpb/" in line]
    gains = [float(re.search(r": ([0-9.]+)x \(95 %", line)[1]) for line in lines]  # type: ignore[index]
    assert len(lines) > 1 and "1 run was read" in every
    assert told(at, "find_kernels", operator="axpb", rows=50) == every
    assert "No kernel" in told(at, "find_kernels", operator="softmax")
    assert "No kernel" in told(at, "find_kernels", text="no such words 'anywhere")
    assert "No kernel" in told(at, "find_kernels", least_gain=1e6)
    assert told(at, "find_kernels", least_gain=0.5 * min(gains), rows=50).count("axpb/") == every.count("axpb/")
    assert "No kernel" in told(at, "find_kernels", least_gain=1.5 * max(gains))
    naive = told(at, "find_kernels", text="naive.cpp as it stands")
    assert sum("axpb/" in line for line in naive.splitlines()) == 1
    assert "axpb/" in told(at, "find_kernels", instruction="vector_bits")


def test_a_kernel_is_shown_in_parts_and_compared(run_folder: Path) -> None:
    at = shelf(run_folder.parent)
    run = {"run": run_folder.name}
    (best,) = Run(run_folder).rows("kernels.best", task="")
    head = f"Kernel {best['kernel_id'][:12]} of {best['task']}\n"
    verdict = told(at, "show_kernel", **run)
    assert verdict.startswith(head) and " us" in verdict and "(95 %: " in verdict
    assert "```cpp untrusted" in told(at, "show_kernel", **run, kernel=best["kernel_id"][:8], part="file")
    assert "naive" in told(at, "show_kernel", **run, part="lineage")
    profile = told(at, "show_kernel", **run, kernel="naive", part="profile")
    assert "Bottleneck" in profile or "not profiled" in profile
    others = Run(run_folder).sql("select kernel_id from lineage where mutator <> 'ancestor' and status = 'correct'")
    text = told(at, "compare_kernels", **run, new=others.to_pylist()[0]["kernel_id"][:12])
    assert "```diff untrusted" in text and " us, " in text and "+" in text
    assert use(at, "show_kernel", **run, kernel="ffffff0000").failed


def test_answers_are_short_by_default_and_pages_are_read_in_pieces(run_folder: Path) -> None:
    at = shelf(run_folder.parent)
    names = [line.partition(":")[0] for line in told(at, "pages").splitlines()]
    assert names == [*sorted(file.stem for file in PAGES.glob("*.md")), "skill"]
    whole, offset = "", 0
    while True:
        piece = told(at, "pages", page="compare", offset=offset, characters=3000)
        assert len(piece) < 3100
        following = re.search(r"\n\([0-9]+ characters follow; offset ([0-9]+)\)$", piece)
        whole += piece[: following.start()] if following else piece
        if not following:
            break
        offset = int(following[1])
    assert whole.split() == (PAGES / "compare.md").read_text().split()
    assert use(at, "pages", page="no").failed and use(at, "pages", page="../x").failed
    beyond = use(at, "pages", page="compare", offset=999_999)
    assert beyond.failed and "page compare has" in beyond.text
    for name, arguments in (("runs", {}), ("find_kernels", {}), ("show_kernel", {"run": "last"}), ("operators", {})):
        assert len(told(at, name, **arguments)) < MOST_CHARACTERS


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"operators": ["softmax"]}, "budget"),
        ({"operators": ["softmax"], "budget": []}, "budget"),
        ({"operators": ["softmax"], "budget": ["8 parsecs"]}, "budget"),
        ({"operators": ["softmax"], "budget": ["8parsec"]}, "there is no unit `parsec`"),
        ({"operators": ["--llm=openai/gpt-5"], "budget": ["1evals"]}, "operators"),
        ({"operators": ["/tmp/mine"], "budget": ["1evals"]}, "operators"),
        ({"operators": ["nothing_like_it"], "budget": ["1evals"]}, "nothing_like_it"),
        ({"operators": ["softmax"], "budget": ["1usd"], "ask_me": False}, "no model is asked"),
        ({"operators": ["softmax"], "budget": ["1evals"], "models": ["openai/gpt-5"]}, "models"),
        ({"run": "last"}, "no run"),
        ({"run": "last", "operators": ["softmax"]}, "operators: of a new run"),
        ({"run": "last", "confirm": True, "budget": ["1evals"]}, "takes no `budget`"),
        ({"operators": ["softmax"], "budget": ["1evals"], "confirm": True}, "`confirm` goes with `run`"),
    ],
)
def test_what_cannot_begin_is_one_line_and_leaves_no_run(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = use(shelf(tmp_path), "start_run", **arguments)
    assert found.failed and words in found.text and "\n" not in found.text
    assert not list(tmp_path.glob("*/evo.duckdb"))


def wait_for_its_end(text: str) -> None:
    """Wait for the process of a run that was begun. The run is not asked: to answer would take its time."""
    process = int(re.search(r"process ([0-9]+)", text)[1])  # type: ignore[index]
    while alive({process}):
        time.sleep(0.1)


@pytest.mark.slow
def test_an_agent_begins_a_run_that_goes_on_by_itself(tmp_path: Path) -> None:
    at = shelf(tmp_path)
    text = told(at, "start_run", operators=["max_pooling_2d"], budget=["1evals"], ask_me=False)  # small workloads
    assert "goes on by itself" in text and "is open" in text
    (folder,) = (path.parent for path in tmp_path.glob("*/evo.duckdb"))
    assert told(at, "status") == f"status of {folder.name} "
    wait_for_its_end(text)
    assert "finished" in told(at, "runs")


@pytest.mark.slow
def test_an_agent_raises_the_budget_of_a_run_and_has_its_best_confirmed(run_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(run_folder, tmp_path / run_folder.name)
    at = shelf(tmp_path)
    for arguments in ({"budget": ["5evals"]}, {"confirm": True}):
        text = told(at, "start_run", run="last", **arguments)
        assert f"Run {run_folder.name} goes on by itself" in text and "is open" in text
        wait_for_its_end(text)
        assert "finished" in told(at, "runs")
    run = Run(tmp_path / run_folder.name)
    ended = run.sql("select detail_json->>'reason' as reason from events where kind = 'finished' order by created_at")
    first, second, last = ended.column("reason").to_pylist()
    (used,) = run.rows("health.use")
    assert is_end(first, 4) and is_end(second, 5)
    assert (used["evaluations"] == 5) == (second == "evaluations 5 of 5")
    assert last == CONFIRMED and used["unconfirmed"] == 0


def test_a_run_whose_task_is_not_named_is_told_and_opened_with_its_task(run_folder: Path) -> None:
    def opens(folder: Path, task: str) -> Empty:
        if not task:
            raise UserError("choose one with --task: this run has a/fp32/cpu, b/fp32/cpu")
        return Empty(folder, task)

    at = Shelf(run_folder.parent, opens)
    found = use(at, "open_run", run="last")
    assert found.failed and "none of its tasks is open: choose one" in found.text
    assert use(at, "status").failed
    told(at, "open_run", run="last", task="b")
    assert told(at, "status").endswith(" b")


def test_the_server_begins_without_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    async def play() -> None:
        async with Client(make_server(shelf(tmp_path))) as client:
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} >= {*SHELF, "submit", "build"}
            result = await client.call_tool("runs", {})
            assert "no run yet" in str(getattr(result.content[0], "text", ""))

    asyncio.run(play())
    code, _, said = evo(monkeypatch, capsys, "mcp", "none", "--runs", str(tmp_path))
    assert code == 2 and "none" in said
