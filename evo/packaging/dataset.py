"""A run as a data set for others: Parquet files and a card, without secrets, paths and people."""

from __future__ import annotations

import getpass
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evo.api import Run
from evo.report.output import Scrubber
from evo.store.export import export_reads
from operators.errors import UserError

PARTS = ("dataset.kernels", "dataset.prompts", "dataset.evaluations", "dataset.timings", "dataset.profiles")
ABOUT = {
    "kernels": "every kernel: file, tunables, parents, who made it, and the verdict that counts with its 95 % interval",
    "prompts": "calls of language models: messages, answer, tokens, dollars, and the kernel that came of them",
    "evaluations": "every verdict, failures with their messages among them",
    "timings": "paired times per workload, beside the anchor and the vendor's library, with 95 % intervals",
    "profiles": "what profilers said of kernels: bottleneck, notes, metrics",
}


def scrubber(run: Run) -> Scrubber:
    """The scrubber of a run's texts: of its folder, this home, and all who gave answers from outside."""
    people = {row["author"] for row in run.rows("packages.authors")}
    with_machine = {platform.node(), platform.node().partition(".")[0], _login()}
    ordinary = {"root", "user", "localhost", "admin", "ubuntu"}
    folders = (run.folder.absolute().parent, run.folder, Path.cwd(), Path(__file__).parents[2])
    home = Path.home()
    return Scrubber([*folders, *([home] if len(home.parts) > 2 else [])], (people | with_machine) - ordinary)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return ""


def write_dataset(run: Run, out: Path) -> dict[str, int]:
    """Write the data set into the folder `out`, which is new or empty; the rows of each part. It raises UserError."""
    scrub = scrubber(run)
    counts = export_reads(run.folder, out, PARTS, scrub)
    try:
        (out / "README.md").write_text(card(run, counts, scrub), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from None
    return counts


CARD = """---
pretty_name: kernel-evo run {name}
language: [en, code]
tags: [gpu-kernels, evolutionary-search, code]
size_categories: [{size}]
configs:
{configs}
---

# Run {name} of kernel-evo

Tasks: {tasks}. Engine {engine}, seed {seed}, begun {begun}.

| file | rows | holds |
|---|---|---|
{parts}

`kernels` and `prompts` join by `request_id`, `evaluations` and `timings` by `evaluation_id`, all else by `task` and
`kernel_id`. Speedups are over the naive kernel, `exp(log_speedup)`; only level `confirmed` was repeated in fresh
processes on new inputs, all other figures are the luckiest of many.

## Measured on

{machine}

## What was taken out

Keys and tokens, by their shapes and by the values of variables of the environment; home folders and the run's folder;
addresses; names of the user, the machine and the people who answered. There stands `[secret]`, `[folder]`,
`[address]`, `[name]` or `/home/user`. No program finds all: read before you publish. Choose a licence, too: kernels and
answers belong to those who made them, and providers of models have terms.
"""
SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
"""By what a number of rows is below, its name on hubs."""


def card(run: Run, counts: Mapping[str, int], scrub: Scrubber) -> str:
    """README.md, with the head that hubs of data sets read."""
    row, total = run.row, sum(counts.values())
    host: dict[str, Any] = json.loads(row["host_json"])
    # A viewer refuses a file without rows.
    configs = [f"  - config_name: {part}\n    data_files: {part}.parquet" for part, count in counts.items() if count]
    return CARD.format(
        name=scrub(run.id), size=next((name for most, name in SIZES.items() if total < most), "1M<n<10M"),
        configs="\n".join(configs), tasks=", ".join(run.tasks), engine=row["engine_version"], seed=row["seed"],
        begun=f"{row['created_at']:%Y-%m-%d}",
        parts="\n".join(f"| `{part}.parquet` | {count} | {ABOUT[part]} |" for part, count in counts.items()),
        machine="\n".join(f"- {name}: {scrub(str(value))}" for name, value in host.items()),
    )  # fmt: skip
