"""A run as a data set: its parts, its card, and that no secret, path or name of a person is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from evo.api import Run
from evo.packaging.exports import Scrubber, write_dataset
from evo.store import StoreError
from tests.store.story import stored, story

PLANTED = {
    "sk-ant-api03-AbCdEf0123456789xyz": "a key of a provider",
    "ghp_abcdefghijklmnopqrstuvwx0123456789": "a token of a forge",
    "hf_abcdefghijklmnopqrstuvwx": "a token of a hub",
    "AKIAIOSFODNN7EXAMPLE": "a key of a cloud",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "a signed token",
    "correct-horse-battery": "the value of a variable of the environment",
    "hunter2hunter2": "a password that is set",
    "mallory:opensesame": "a name and a password in an address",
    "/home/mallory": "a home folder",
    "/Users/mallory": "another one",
    "ann.smith@example.org": "an address",
    "annsmith": "who gave an answer",
}
TEXT = (
    "key sk-ant-api03-AbCdEf0123456789xyz, ghp_abcdefghijklmnopqrstuvwx0123456789 and hf_abcdefghijklmnopqrstuvwx; "
    "AKIAIOSFODNN7EXAMPLE eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl correct-horse-battery "
    "password = hunter2hunter2 https://mallory:opensesame@host/x /home/mallory/src/a.cu:3 and /Users/mallory/b.cu "
    "by annsmith <ann.smith@example.org>"
)
KERNEL = (
    "/*! evo\n[tune]\nBLOCK = [4, 2]\n*/\nfloat x = sk_count - task_size; // token_count = 4096; a key-value pair\n"
)


def hidden(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Run:
    """A run with all of it in every text that a data set holds."""
    monkeypatch.setenv("EVO_TEST_API_KEY", "correct-horse-battery")
    history = story()
    told = f"{TEXT} in {folder}/build/kernel.cpp"
    for row in history.tables["llm_calls"]:
        row |= {"answer": told, "messages_json": json.dumps([{"role": "user", "content": told}]), "error": told}
    for row in history.tables["proposals"]:
        row |= {"description": told, "author": "annsmith" if row["mutator"] == "guest" else None}
    for row in history.tables["evaluations"]:
        row |= {"message": told, "facts_json": json.dumps({"flagged": [told]})}
    return Run(stored(folder, history, host_json=json.dumps({"processor": "EPYC", "system": told})))


def test_a_data_set_holds_the_run_and_none_of_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = hidden(monkeypatch, tmp_path / "runs" / "the-run")
    counts = write_dataset(run, tmp_path / "out")
    texts = [(tmp_path / "out" / "README.md").read_text(encoding="utf-8")]
    tables = {part: pq.read_table(tmp_path / "out" / f"{part}.parquet") for part in counts}
    texts += [json.dumps(table.to_pylist(), default=str) for table in tables.values()]
    for planted, what in {**PLANTED, str(tmp_path): "the run's folder"}.items():
        assert not [text for text in texts if planted in text], what
    assert "[secret]" in texts[2] and "/home/user/src/a.cu:3" in texts[2]

    (called, *_) = tables["prompts"].to_pylist()
    assert called["kernel_id"] == "B" and called["cost_usd"] == 0.5
    assert json.loads(called["messages_json"])[0]["role"] == "user", "JSON stays JSON"
    kernels = {row["kernel_id"]: row for row in tables["kernels"].to_pylist()}
    assert kernels["C2"]["level"] == "confirmed" and kernels["C2"]["speedup_low"] < kernels["C2"]["speedup"]
    assert kernels["C"]["parents"] == ["A", "B"] and "void softmax" in kernels["C"]["source"]
    assert {row["status"] for row in tables["evaluations"].to_pylist()} >= {"correct", "wrong"}
    assert tables["timings"].num_rows == counts["timings"] > 0


def test_the_card_has_the_head_that_hubs_read(tmp_path: Path) -> None:
    counts = write_dataset(Run(stored(tmp_path / "run")), tmp_path / "out")
    _, head, text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(head)
    assert {each["config_name"] for each in told["configs"]} == {part for part, count in counts.items() if count}
    assert all((tmp_path / "out" / each["data_files"]).is_file() for each in told["configs"])
    assert told["size_categories"] == ["n<1K"] and "softmax/fp32" in text
    with pytest.raises(StoreError, match="not empty"):
        write_dataset(Run(tmp_path / "run"), tmp_path / "out")


def test_code_is_left_as_it_is() -> None:
    assert Scrubber(variables={"SHELL_TOKEN": "short", "HOME": "/home/me"})(KERNEL) == KERNEL
