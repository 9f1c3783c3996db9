"""The bench of the champions, as far as no GPU is needed: slices, how far a kernel gets, what its table says."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fitness.evaluation import Level, Status, Timing
from fitness.scripted import ScriptedFitness
from operators.catalog import load
from operators.kernel import Kernel
from operators.spec import Task
from tests.bench import champions as bench

TASK = Task("softmax", "fp32", "cuda")


def test_slices_hold_every_champion_once() -> None:
    every = list(bench.entries(["elu", "matrix_mul", "softmax", "swiglu"], ["fp32", "bf16"]))
    assert len(every) == 6, "swiglu has none"
    parts = [bench.share(iter(every), bench.part(f"{number}/4")) for number in (1, 2, 3, 4)]
    assert sorted(entry.key for one in parts for entry in one) == sorted(entry.key for entry in every)
    assert [len(one) for one in parts] == [2, 2, 1, 1]
    assert [e.key[1] for e in bench.entries(["matrix_mul"], ["bf16"])] == ["bf16"]
    for text in ("0/4", "5/4", "x", "1"):
        with pytest.raises(ValueError):
            bench.part(text)


@pytest.mark.parametrize("highest", list(Level))
def test_a_right_kernel_goes_through_every_level_that_is_asked_for(highest: Level) -> None:
    operator = load("softmax")
    (entry,) = bench.entries(["softmax"], ["fp32"])
    kernel = bench.source(operator, entry.record)
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", operator.naive("cuda")), lambda _: 2.0)
    row = bench.told(bench.climb(stage, kernel, highest))
    assert (row["status"], row["level"]) == ("correct", highest)
    assert row["over_naive"][0] > 1


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.WRONG])
def test_a_refused_kernel_stays_where_it_was_refused(status: Status) -> None:
    operator = load("softmax")
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", operator.naive("cuda")), lambda _: status)
    row = bench.told(bench.climb(stage, Kernel("softmax", "cuda", "another"), Level.CONFIRMED))
    assert (row["status"], row["level"]) == (status, Level.SCREEN)
    assert row["message"] and "over_naive" not in row


def test_the_library_is_told_where_it_was_timed() -> None:
    stage = ScriptedFitness(TASK, Kernel("softmax", "cuda", "naive"), lambda _: 2.0)
    found = stage.confirm(Kernel("softmax", "cuda", "other"))
    timing = Timing("n=1", 10.0, 20.0, math.log(2), 0.0, 20)
    assert bench.told(replace(found, library_timings=(timing,)))["over_library"] == [2.0, 2.0, 2.0]
    assert bench.told(replace(found, library_lack="no memory"))["library_lack"] == "no memory"


def row(operator: str, status: str = "correct", **changes: Any) -> dict[str, Any]:
    made = {"operator": operator, "dtype": "fp32", "file": "h200.cu", "device": "GPU", "status": status, "seconds": 2.0}
    return made | {"level": "confirmed", "message": "", "over_naive": [27.0, 26.0, 28.0]} | changes


def test_the_table_puts_verdicts_beside_those_of_the_record(tmp_path: Path) -> None:
    rows = [row("softmax", over_library=[2.0, 1.9, 2.1]), row("elu", "wrong", message="an element", over_naive=None)]
    lines = bench.table(rows).splitlines()
    assert lines[0].startswith("GPU: 1 of 2 correct, 4 s.")
    assert "| elu | fp32 | wrong | confirmed | - | 1.55x | - | 0.922x | 2 |" in lines
    assert "| softmax | fp32 | correct | confirmed | 27x (26-28) | 26.8x | 2x (1.9-2.1) | 1.8x | 2 |" in lines
    assert lines[-1] == "- elu fp32: wrong: an element"
    file = tmp_path / "results.jsonl"
    file.write_text("\n".join([json.dumps(rows[0]), '{"operator": "re']), encoding="utf-8")
    assert bench.read_rows(file) == rows[:1] and bench.read_rows(None) == []
