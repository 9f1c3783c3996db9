"""A run whose every answer is known: a lineage with a crossover, a repair, tuning, duplicates, failures and a guest."""

from __future__ import annotations

import json
import math
from pathlib import Path

from evo.store import Store
from tests.store.rows import START_S, TASK, History, Row, event, joined, run

HEADER = "/*! evo\n[tune]\nBLOCK = [4, 2]\n*/\n"
LOG_SPEEDUPS = {"K0": 0.0, "A": 0.2, "B": 0.4, "C": 0.8, "R": 0.6, "C2": 1.0, "C3": 0.7, "G": 1.1}


def story(task: str = TASK) -> History:
    """G <- C2 <- C <- A and B <- K0; every step is told as soon as it is judged."""
    history = History(task)

    def made(number: int, mutator: str, parents: str, child: str, **columns: object) -> None:
        history.propose(number, mutator, parents, child, **columns)
        history.evaluate(number, child, "screen", "correct", log_speedup=LOG_SPEEDUPS[child], cell="c")

    made(0, "ancestor", "", "K0")
    made(1, "transform", "K0", "A", description="unroll: loop c by 4; simd: loop c")
    history.call(2, "big", cost_usd=0.5)
    made(2, "rewrite", "K0", "B", model="big")
    history.call(3, "big", cost_usd=0.25)
    made(3, "crossover", "A B", "C", model="big")
    history.propose(4, "rewrite", "B", "W", model="small").evaluate(4, "W", "screen", "wrong", message="error 3 at 17")
    made(5, "repair", "W", "R", model="small")
    made(6, "tune", "C", "C2", kind="trial")
    history.evaluate(6, "C2", "confirmed", "correct", log_speedup=1.0, cell="c")
    made(7, "tune", "C", "C3", kind="trial")
    for number in (8, 9):
        history.propose(number, "transform", "C", None, failure="`fuse` applies nowhere in this kernel")
    made(10, "guest", "C2", "G", author="ann", kind="guest")
    known = {"inherited": "correct", "duplicate_of": "A", "log_speedup": 0.2}
    history.propose(11, "transform", "K0", "A2", description="unroll: loop c by 8")
    history.evaluate(11, "A2", "screen", "duplicate", **known)
    history.propose(12, "transform", "K0", "A", description="simd: loop c")
    history.evaluate(12, "A", "screen", "duplicate", **known)
    history.propose(13, "rewrite", "G", "V", model="big").evaluate(13, "V", "screen", "wrong", message="error 5 at 2")
    return history


def tables(history: History, **config: object) -> dict[str, list[Row]]:
    """All rows of the run, with what an engine tells besides; `config` are columns of its row in runs."""
    judged = {row["request_id"]: row for row in history.tables["evaluations"]}
    tells, trials = [], []
    for seq, row in enumerate(history.tables["proposals"]):
        verdict = judged.get(row["request_id"], {"evaluation_id": None, "status": "no_child"})
        told = {name: row[name] for name in ("task", "number", "request_id", "kernel_id", "created_at")}
        tells.append(
            {**told, "seq": seq, "evaluation_id": verdict["evaluation_id"], "status": verdict["status"], "digest": "d"}
        )
        if row["mutator"] == "tune":
            del told["number"]
            setting = json.dumps({"BLOCK": int(row["kernel_id"][1:])}, separators=(",", ":"))
            trials.append({**told, "source_id": "file", "values_json": setting, "status": verdict["status"]})
    figures = {"A": 10.0, "C": 25.0, "G": 50.0}
    metrics = [
        {"task": history.task, "kernel_id": name, "metric": "dram_busy", "value": value, "unit": "%"}
        for name, value in figures.items()
    ]
    sources = [
        {
            "kernel_id": name, "source_id": "file" if name in ("C", "C2", "C3") else name, "operator": "softmax",
            "target": "cpu", "source": f"{HEADER}// {name}\nvoid softmax();\n", "values_json": '{"BLOCK":2}',
        }
        for name in dict.fromkeys(row["kernel_id"] for row in history.tables["proposals"] if row["kernel_id"])
    ]  # fmt: skip
    timings = [
        {
            "evaluation_id": row["evaluation_id"], "workload": "rows=8", "latency_us": 10.0, "anchor_latency_us": 20.0,
            "log_ratio": math.log(2), "log_ratio_se": 0.01, "pairs": 20,
        }
        for row in history.tables["evaluations"] if row["status"] == "correct"
    ]  # fmt: skip
    move = {
        "task": history.task, "number": 3, "kernel_id": "B", "source_island": 0, "island": 1, "kind": "migration",
        "outcome": "new", "created_at": START_S + 5,
    }  # fmt: skip
    rest = {
        "tells": tells, "trials": trials, "metrics": metrics, "kernels": sources, "timings": timings,
        "migrations": [move], "events": [event("session", '{"budget":{"cost_usd":2}}')],
    }  # fmt: skip
    return joined({"runs": [run() | config]}, history.tables, rest)


def stored(folder: Path, history: History | None = None, **config: object) -> Path:
    """The folder of a finished run that holds it."""
    with Store(folder, create=True) as store:
        store.commit(tables(history or story(), **config)).result()
    return folder
