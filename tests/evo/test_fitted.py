"""Tables fit their terminal, and never cut a number or an id."""

from __future__ import annotations

import math
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from evo.report.status import TaskSummary
from evo.report.terminal import best_table, lineage_table, rows_table, standing_cells, summary_table, unfolded
from tests.choosing import examples, some_slow

WIDTHS = (60, 80, 160)
EXTREME = st.floats(1e-12, 1e15) | st.sampled_from([1e-300, 1.0, math.inf])
TASKS = st.builds(
    TaskSummary,
    task=st.from_regex(r"[a-z_0-9]{1,70}/(fp32|bf16)/(cpu|cuda)", fullmatch=True),
    kernel_id=st.just("0123456789abcdef"),
    level=st.sampled_from(["screen", "full", "confirmed"]),
    baseline_us=EXTREME, best_us=EXTREME, best_speedup=EXTREME, speedup=EXTREME,
    speedup_low=EXTREME, speedup_high=EXTREME,
    against_library=st.none() | EXTREME, against_library_low=EXTREME, against_library_high=EXTREME,
    candidates=st.integers(0, 10**9), duplicates=st.integers(0, 10**9), no_child=st.integers(0, 10**9),
    outcomes=st.dictionaries(st.sampled_from(["correct", "slower", "compile_error", "wrong"]), st.integers(1, 10**9)),
)  # fmt: skip


def shown(what: RenderableType, width: int) -> str:
    """The text on a terminal of that width; no line may be longer."""
    screen = StringIO()
    Console(file=screen, force_terminal=True, color_system=None, width=width, highlight=False).print(what)
    text = screen.getvalue()
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())  # a character may take two
    assert "…" not in text
    return text


@pytest.mark.parametrize("width", some_slow(WIDTHS, 1))
@examples(30)
@given(tasks=st.lists(TASKS, min_size=1, max_size=3))
def test_no_figure_of_a_standing_is_cut(width: int, tasks: list[TaskSummary]) -> None:
    for table in (summary_table(tasks), best_table((t.task, t, {"BLOCK": 1024, "n" * 30: 7}) for t in tasks)):
        cells = " ".join(shown(table, width).replace(";", " ").split())
        for task in tasks:
            _, best, certain, estimate, interval, *_ = standing_cells(task)
            assert all(f" {each} " in f"{cells} " for each in (best, certain, estimate, interval) if each != "-")


@pytest.mark.parametrize("width", some_slow(WIDTHS, 1))
@examples(30)
@given(rows=st.lists(st.tuples(st.integers(-(2**63), 2**63), EXTREME, st.text(max_size=90)), min_size=1, max_size=4))
@example(rows=[(0, 1.0, "000000000\x1f\x1f\x1f\x1f\x1f\x1f\x08\U000e0000"), (-10_000_000_000, 1.0, "")])
def test_no_number_of_an_answer_is_cut(width: int, rows: list[tuple[int, float, str]]) -> None:
    names = ["a_count", "a_ratio", "said"]
    text = shown(rows_table(names, [dict(zip(names, row, strict=True)) for row in rows]), width)
    for count, ratio, _ in rows:
        assert {str(count), f"{ratio:.6g}"} <= set(text.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_ids_of_a_lineage_stay_whole(width: int) -> None:
    ids = [f"{n:012x}" for n in range(123456789012, 123456789016)]
    row = {
        "task": "an_operator_with_a_long_name/fp32/cuda", "generation": 12, "kernel_id": ids[0], "parents": ids[1:],
        "mutator": "crossover", "description": "merges the vector loads of one with the tiling of the other",
        "status": "correct", "level": "confirmed", "speedup": 1.2345, "speedup_low": 1.1,
        "speedup_high": 1.4, "model": "openai/some", "author": None, "flagged": None,
    }  # fmt: skip
    text = shown(lineage_table([row, row]), width)
    assert {*ids} <= set(text.replace(",", "").split())
    assert "1.23x" in text and "1.10 to 1.40" in text and "openai/some" in " ".join(text.split())
    assert " ".join(text.split()).count("merges") == 2  # what was done is what a lineage is read for


def test_what_has_no_room_stands_below_a_row_of_a_short_table() -> None:
    task = TaskSummary(
        task="softmax/fp32/cpu", candidates=12, outcomes={"correct": 9, "compile_error": 3}, duplicates=2, no_child=0,
        kernel_id="k", level="confirmed", baseline_us=2340.8, best_us=1357.0, speedup=1.72, speedup_low=1.35,
        speedup_high=2.2, against_library=0.79, against_library_low=0.59, against_library_high=1.04,
    )  # fmt: skip
    words = " ".join(shown(summary_table([task]), 80).split())
    assert "0.790x" in words
    assert "baseline: 2340.8 us" in words
    assert "of these: 9 correct, 3 compile error; not tried: 2 duplicate" in words


def test_pipes_are_never_folded() -> None:
    long = "word " * 100
    (_, line) = unfolded(rows_table(["n", "said"], [{"n": 1, "said": long}])).splitlines()
    assert line.split(maxsplit=1)[1] == long.strip()
