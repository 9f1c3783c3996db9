"""The bench of all operators on a GPU, as far as none is needed: what is left to do, and what its table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench.gpu_operators import NAMES, Unit, read_rows, still_left, table

UNIT = Unit("relu", "fp32", "realistic")


def result(key: tuple[str, ...], **found: Any) -> dict[str, Any]:
    return dict(zip(NAMES, key, strict=True)) | found


def measured(key: tuple[str, ...], verdict: str = "correct", naive_us: float = 40.0) -> dict[str, Any]:
    verdicts = {"naive": verdict, "library": "correct"}
    return result(key, device="GPU", roofline_us=8.0, verdicts=verdicts, us={"naive": naive_us, "library": 10.0})


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    hidden, first, *others = UNIT.keys()
    file = tmp_path / "results.jsonl"
    lines = [json.dumps(result(hidden, verdicts={})), json.dumps(result(first, lost="it hangs"))]
    file.write_text("\n".join([*lines, '{"operator": "relu", "dtype": "fp3']), encoding="utf-8")
    assert still_left([UNIT], read_rows(file)) == {UNIT: others}
    done = [*read_rows(file), *map(measured, others)]
    assert still_left([UNIT], done) == {}
    assert still_left([UNIT, Unit("relu", "bf16", "realistic")], done).keys() == {Unit("relu", "bf16", "realistic")}


def test_the_table_has_ratios_and_whatever_was_not_right() -> None:
    _, first, second, third = UNIT.keys()
    rows = [
        measured(first),
        measured(second, verdict="wrong: an element"),
        measured(third, naive_us=250_000.0),
        result(("elu", "fp32", "realistic", "n=1"), lost="it hangs"),
    ]
    lines = table(rows).splitlines()
    assert table(rows[:1]).splitlines()[4] == "| relu | fp32 | realistic | 1 | 40.0 us | - | 4.00x | 80% | - |"
    assert "3 library correct, 2 naive correct, 1 naive wrong." in lines
    assert "- relu fp32 naive, 1 times, the first: wrong: an element" in lines
    assert any(f"{third[3]}: the naive kernel takes 250 ms" in line for line in lines)
    assert "- elu fp32 realistic n=1: it hangs" in lines
