"""Progress of a search while it runs: short lines when something is new, and on a terminal all of it."""

from __future__ import annotations

import math
import re
from io import StringIO
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evo.budget import Budget
from evo.report.live import (
    LINE_EVERY_S,
    LINE_LENGTH,
    QUIET_S,
    Finds,
    GpuLoad,
    GpuWatch,
    Progress,
    TaskLine,
    View,
    _view,
    load_of,
)
from evo.search.knowledge import Knowledge
from evo.search.task import TaskState
from fitness.words import ratio
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.choosing import examples, some_slow


class Running:
    """Stands for a search: tasks whose bests the test sets."""

    def __init__(self, tasks: list[Task], limits: dict[str, float]) -> None:
        nothing: Any = None
        self.budget = Budget(limits)
        self.phase, self.waits = "searching", ""
        self.pool: Any = None
        self.states = {
            task: TaskState(nothing, task, strategy(0.0), Kernel(task.operator, "cpu", "naive"), Knowledge(task))
            for task in tasks
        }

    def improves(self, task: Task, speedup: float) -> None:
        state = self.states[task]
        state.strategy = strategy(math.log(speedup))
        state.fastest, state.fastest_by = (math.log(speedup), f"better {speedup}"), "transform"
        state.statuses["correct"] += 1


def strategy(log_speedup: float) -> Any:
    return SimpleNamespace(best=SimpleNamespace(log_speedup=log_speedup))


SOFTMAX, GELU = Task("softmax", "fp32", "cpu"), Task("gelu", "fp32", "cpu")
SUITE = [Task(f"an_operator_with_a_long_name_{i}", dtype, "cpu") for i in range(51) for dtype in ("fp32", "bf16")]


def lines(capsys: Any) -> list[str]:
    found: list[str] = capsys.readouterr().err.splitlines()
    return found


def test_a_line_tells_what_uses_no_budget_up(capsys: Any) -> None:
    now = [0.0]
    search = Running([SOFTMAX, GELU], {"evaluations": 9})
    progress = Progress(lambda: now[0])
    progress(search)
    search.states[SOFTMAX].unavailable, search.states[GELU].unavailable = 2, 1
    now[0] += LINE_EVERY_S + QUIET_S
    progress(search)
    (line,) = lines(capsys)
    assert line.startswith("0 s, searching: 9 evals left; 3 unavailable; ")
    assert "3 unavailable" in _view(cast(Any, search), "", GpuWatch(), Finds(lambda: now[0])).counts


def test_a_line_tells_what_is_new_and_what_is_left(capsys: Any) -> None:
    now = [0.0]
    search = Running([SOFTMAX, GELU], {"wall_s": 60.0, "evaluations": 500, "cost_usd": 5})
    progress = Progress(lambda: now[0])
    progress(search)
    now[0] += LINE_EVERY_S
    progress(search)
    assert lines(capsys) == []  # nothing is new
    now[0] += QUIET_S
    progress(search)
    assert lines(capsys) == ["0 s, searching: 60 s, 500 evals, 5 USD left; 0 of 2 tasks improved; 0 candidates/min"]
    search.budget.set_wall(12.0)
    search.budget.charge("evaluations", 20)
    search.improves(SOFTMAX, 1.84)
    now[0] += LINE_EVERY_S / 2
    progress(search)  # at once
    assert lines(capsys) == [
        "12 s, searching: 48 s, 480 evals, 5 USD left; softmax 1.84x; first improvement after 12 s; "
        "1 of 2 tasks improved"
    ]
    search.improves(SOFTMAX, 1.9)
    progress(search)
    assert lines(capsys) == []  # so soon
    now[0] += LINE_EVERY_S
    progress(search)
    assert lines(capsys) == [
        "12 s, searching: 48 s, 480 evals, 5 USD left; softmax 1.90x; 1 of 2 tasks improved; 10 candidates/min"
    ]
    now[0] += QUIET_S
    progress(search)
    assert lines(capsys) == ["12 s, searching: 48 s, 480 evals, 5 USD left; 1 of 2 tasks improved; 10 candidates/min"]
    search.phase = "confirming softmax, 1 more to come"
    now[0] += LINE_EVERY_S
    progress(search)
    assert lines(capsys)[0].startswith("12 s, confirming softmax, 1 more to come: 48 s, ")


def test_an_improvement_of_an_earlier_session_is_no_first_one(capsys: Any) -> None:
    now = [0.0]
    search = Running([SOFTMAX], {})
    search.improves(SOFTMAX, 2.0)
    progress = Progress(lambda: now[0])
    progress(search)
    assert lines(capsys) == []
    now[0] += LINE_EVERY_S
    progress(search)
    assert lines(capsys) == ["0 s, searching: softmax 2.00x; 60 candidates/min"]


def test_a_single_task_is_not_counted(capsys: Any) -> None:
    now = [0.0]
    progress = Progress(lambda: now[0])
    now[0] += QUIET_S
    progress(Running([SOFTMAX], {}))
    assert lines(capsys) == ["0 s, searching: 0 candidates/min"]


@pytest.mark.parametrize("phase", ["searching", f"confirming {', '.join(task.operator for task in SUITE[:9])}"])
def test_lines_of_many_tasks_are_short(phase: str, capsys: Any) -> None:
    now = [0.0]
    search = Running(SUITE, {"wall_s": 8 * 3600.0, "tokens": 2e6})
    progress = Progress(lambda: now[0])
    search.phase = phase
    progress(search)
    for step in range(1, 6):
        for task in SUITE[: 20 * step]:
            search.improves(task, 1.0 + step)
        now[0] += QUIET_S
        progress(search)
    said = lines(capsys)
    assert len(said) == 5
    assert all(len(line) <= LINE_LENGTH for line in said)
    if phase == "searching":
        assert all(line.startswith("0 s, searching: 8.0 h, 2Mtok left; ") for line in said)
        assert "40 of 102 tasks improved" in said[1]


def test_a_terminal_shows_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(
        "evo.report.live.console",
        lambda stderr: Console(file=screen, force_terminal=True, highlight=False, width=200),
    )
    search = Running([SOFTMAX, GELU], {"wall_s": 60.0})
    with Progress() as progress:
        progress(search)
        search.improves(GELU, 2.5)
        search.budget.set_wall(33.0)
        search.phase = "confirming gelu"
        progress(search)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert " 55 %  33 s, 27 s left" in shown
    assert "confirming gelu, 2 candidates/min, 1 of 2 tasks improved, first improvement after 33 s" in shown
    assert "found     33 s  gelu 2.50x by transform, +150 %" in shown
    assert "softmax" in shown


@pytest.mark.parametrize(
    ("count", "size"),
    some_slow(product([1, 8, 102], [(60, 24), (80, 24), (160, 50)]), [(1, (60, 24)), (102, (80, 24))]),
)
@examples(8)
@given(extreme=st.floats(1e-9, 1e15), name=st.from_regex(r"[a-z_]{1,60}", fullmatch=True), events=st.integers(0, 9))
def test_the_view_fits_its_terminal(count: int, size: tuple[int, int], extreme: float, name: str, events: int) -> None:
    width, height = size
    tasks = [
        TaskLine(
            (f"{name}_{n}/bf16", ratio(extreme), ratio(extreme), "9", *(str(10**k) for k in (7, 6, 5, 4, 3))),
            True,
            float(n),
        )
        for n in range(count)
    ]
    view = View(
        phase="searching", share=0.45, spent="3.6 h", left="4.4 h, 480 evals, 5 USD left",
        counts=("1234 candidates/min", "24 more requests under way"), models="models: 12 attempts, 3Mtok, 1.2 USD",
        gpus=[GpuLoad(str(n), 99, 81000, 81559) for n in range(8)], jobs=[f"full of {name}/bf16/cuda for 3 s"] * 8,
        events=[f"3600 s  {name} {ratio(extreme)} by crossover"] * events, tasks=tasks,
    )  # fmt: skip
    screen = StringIO()
    Console(file=screen, force_terminal=True, color_system=None, highlight=False, width=width, height=height).print(
        view
    )
    text = screen.getvalue()
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert len(lines) <= height
    assert "…" not in text
    assert ratio(extreme) in text.split()
    assert ("tasks that changed earlier" in text) == (count == 102) or len(name) > 10
    assert "8 GPUs 99-99 % busy, 79.1-79.1 GiB used" in text


def test_the_best_is_what_is_certain_and_the_library_is_beside_the_same_kernel() -> None:
    search = Running([SOFTMAX], {})
    seen: Any = search
    state = search.states[SOFTMAX]
    state.strategy = strategy(math.log(3.5))  # lucky
    state.fastest = math.log(1.5), "leads"
    finds = Finds(lambda: 1.0)
    finds.look(seen)

    def line(kernel_id: str) -> tuple[str, ...]:
        known: Any = SimpleNamespace(best=SimpleNamespace(source=(kernel_id, "")), over_library=1.25)
        state.knowledge = known
        (shown,) = _view(seen, "", GpuWatch(), finds).tasks
        return shown.cells[1:3]

    assert line("leads") == ("1.50x", "-")  # it is not confirmed
    state.confirmed = {"leads", "another"}
    assert (line("leads"), line("another")) == (("1.50x", "1.25x"), ("1.50x", "-"))
    state.fastest, state.fastest_by = (math.log(3.0), "better"), "transform"
    finds.look(seen)
    assert finds.lines[0] == "0 s  softmax 3.00x by transform, +100 %"


def test_gpus_are_told_as_they_were_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, 87, 12595, 81559'\necho 'no GPU'\necho '1, [N/A], 4, 81559'\nread wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    watch = GpuWatch({})
    watch.start()
    assert watch.ended.wait(60)
    assert [str(load) for load in watch.loads] == ["GPU 0 87 % busy, 12.3 of 80 GiB", "GPU 1 busy ?, 0.0 of 80 GiB"]
    watch.close()
    watch = GpuWatch({"CUDA_VISIBLE_DEVICES": "1"})
    watch.start()
    assert watch.ended.wait(60)
    assert [load.index for load in watch.loads] == ["1"]
    watch.close()
    assert load_of("") is load_of("a, b") is None


def test_a_line_without_news_says_what_the_search_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Running([Task("softmax", "fp32", "cpu")], {})
    made.waits = "3 answers of models"
    clock = iter(range(0, 10_000, 100))
    progress = Progress(lambda: next(clock))
    progress(made)
    assert "searching: waits for 3 answers of models" in capsys.readouterr().err
