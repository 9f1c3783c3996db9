"""Exports for other programs: an operator as a task of Harbor, a run as a data set.

In a task of Harbor an agent writes a kernel in a container, and our verdict is its reward. The agent's container holds
the engine, so that it can check drafts. The verifier works with a copy of its own, which comes with `tests/` when the
agent is done: what the agent did to the first one decides nothing. Packages that the engine needs and the compiler are
the container's, though; who does not trust the agent gives the verifier a fresh one.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evo.api import Run
from evo.config import DEFAULT_SETS
from evo.evaluate import task_of
from evo.packaging.package import ROOT, write_folder
from evo.report.amounts import count, versions_in_words
from evo.report.document import number, text
from evo.report.output import Scrubber, login
from evo.report.render import markdown_table
from evo.store.export import export_reads
from evo.version import engine_version
from mutators.base import Parent, Request
from mutators.prompts import conversation
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.files import read_text, writing
from operators.kernel import Kernel

SOURCES = ("operators", "fitness", "mutators", "evo", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")
"""Everything of the source tree that it takes to install the engine."""
ENGINE = "kernel-evo.tar.gz"
IMAGES = {"cpu": "python:3.12-slim", "cuda": "nvidia/cuda:13.0.1-devel-ubuntu24.04"}
ENDINGS = {"cpu": "cpp", "cuda": "cu"}
DOCKERFILE = """FROM {image}
RUN apt-get update && apt-get install -y --no-install-recommends g++ make python3 python3-venv \\
    && rm -rf /var/lib/apt/lists/*
COPY {engine} /opt/
RUN mkdir /opt/kernel-evo && tar -xzf /opt/{engine} -C /opt/kernel-evo && python3 -m venv /opt/venv \\
    && cd /opt/kernel-evo && /opt/venv/bin/python -m pip install --no-cache-dir -c constraints.txt -e '.{extra}'
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /app
COPY kernel.{ending} naive.{ending} /app/
COPY operator /app/operator
"""
TEST = """#!/usr/bin/env bash
# The reward: 0 for a kernel that is not right, else the lower end of the 95 % interval of its speedup.
set -u
mkdir -p /logs/verifier /tmp/verifier
echo 0 > /logs/verifier/reward.txt
tar -xzf /tests/{engine} -C /tmp/verifier
# The engine and the operator of this folder, not those that the agent could reach.
cd /tests && PYTHONPATH=/tmp/verifier /opt/venv/bin/python /tests/reward.py
"""
SOLUTION = """#!/usr/bin/env bash
# A right kernel, whose reward is just below 1.
cp /app/naive.{ending} /app/kernel.{ending}
"""
REWARD = '''"""Judges the agent's kernel as severely as a new best, and writes the reward."""

import json
import math
import subprocess
import sys
from pathlib import Path

LOGS = Path(sys.argv[1] if len(sys.argv) > 1 else "/logs/verifier")
KERNEL = Path(sys.argv[2] if len(sys.argv) > 2 else "/app/kernel.{ending}")
OPERATOR = Path(__file__).parent / "operator" / "{folder}"
COMMAND = [sys.executable, "-P", "-m", "evo.cli", "evaluate", str(OPERATOR), str(KERNEL), "--target", "{target}"]


def reward(levels):
    """The certain speedup that the last level tells, 0 where the kernel is not right."""
    last = levels[-1]
    if last["status"] != "correct" or last["level"] != "confirmed" or last["log_speedup"] is None:
        return 0.0
    return math.exp(last["log_speedup"] - 1.96 * (last["log_speedup_se"] or 0.0))


done = subprocess.run([*COMMAND, "--dtype", "{dtype}", "--json"], capture_output=True, text=True)
try:
    levels = json.loads(done.stdout)
    found = reward(levels)
except (ValueError, KeyError, IndexError):
    levels, found = [{{"message": done.stderr[-4000:]}}], 0.0
(LOGS / "verdict.json").write_text(json.dumps(levels, indent=1))
(LOGS / "reward.txt").write_text(f"{{found:.6g}}\\n")
print(f"reward {{found:.6g}}")
'''
INSTRUCTION = """# Write a faster kernel for `{name}` ({dtype}, {target})

Write the fastest right kernel that you can into `/app/kernel.{ending}`. It holds the naive kernel now, which also
stands in `/app/naive.{ending}`. Check a draft as often as you like:

    evo evaluate /app/operator/{folder} /app/kernel.{ending} --target {target} --dtype {dtype}

Your reward is the speedup over the naive kernel that is certain, the lower end of its 95 % interval, after the kernel
was confirmed in fresh processes on new inputs; a kernel that is not right earns 0. The final check uses its own copies
of the engine and of the operator. Here is what a kernel file is, and what it is held to:

{manual}
"""


def write_task(name: str, folder: Path, *, target: str, dtype: str) -> Task:
    """Write the task of an operator, by name or folder, into a new folder. It raises UserError."""
    operator = load(name)
    task = task_of(operator, target, dtype)
    if not all((ROOT / part).exists() for part in SOURCES):
        raise UserError(f"--harbor takes the engine along, from its source tree, and {ROOT} is none")
    write_folder(folder, lambda _: _files(operator, task))
    return task


def _files(operator: Operator, task: Task) -> dict[str, str | bytes]:
    """The files of the task, by path."""
    target, ending = task.target, ENDINGS[task.target]
    naive = read_text(operator.ancestor("naive", target))
    words = {
        "name": operator.name, "dtype": task.dtype, "target": target, "ending": ending, "engine": ENGINE,
        "image": IMAGES[target], "folder": operator.folder.name, "extra": "[cuda13]" if target == "cuda" else "",
    }  # fmt: skip
    archive = _engine()
    found: dict[str, str | bytes] = {
        "task.toml": _settings(operator, task),
        "instruction.md": INSTRUCTION.format(**words, manual=_manual(operator, task, naive)),
        "environment/Dockerfile": DOCKERFILE.format(**words),
        f"environment/kernel.{ending}": naive,
        f"environment/naive.{ending}": naive,
        f"environment/{ENGINE}": archive,
        "tests/test.sh": TEST.format(**words),
        "tests/reward.py": REWARD.format(**words),
        f"tests/{ENGINE}": archive,
        "solution/solve.sh": SOLUTION.format(**words),
    }
    for path in sorted(operator.folder.rglob("*")):
        # Champions would be an answer.
        if path.is_file() and "champions" not in path.parts and "__pycache__" not in path.parts:
            for part in ("environment", "tests"):
                found[f"{part}/operator/{path.relative_to(operator.folder.parent)}"] = path.read_bytes()
    return found


def _settings(operator: Operator, task: Task) -> str:
    """task.toml."""
    title = json.dumps(f"kernel-evo/{operator.name}-{task.dtype}-{task.target}")
    return "\n".join([
        'schema_version = "1.1"', "", "[task]", f"name = {title}",
        f"description = {json.dumps(f'Write a fast {task.target} kernel for {operator.name} in {task.dtype}')}",
        f'keywords = ["kernels", "performance", {json.dumps(task.target)}]', "",
        "[metadata]", 'category = "programming"', f"engine = {json.dumps(engine_version())}",
        f"family = {json.dumps(operator.family)}", "", "[verifier]", "timeout_sec = 1800.0", "", "[agent]",
        "timeout_sec = 7200.0", "", "[environment]", "build_timeout_sec = 3600.0", "cpus = 4", "memory_mb = 16384",
        "storage_mb = 40960", *(["gpus = 1"] if task.target == "cuda" else []), "",
    ])  # fmt: skip


def _manual(operator: Operator, task: Task, naive: str) -> str:
    """The words in which a language model is told of an operator and its kernel files."""
    kernel = Kernel(operator.name, task.target, naive)
    params = {"workload_set": DEFAULT_SETS[task.target]}
    request = Request(task, 0, "rewrite", (kernel.id,), 0, params)
    system, _ = conversation("rewrite", request, (Parent(kernel),), operator)
    return str(system["content"])


def _engine() -> bytes:
    """The source tree as an archive, the same for the same files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for part in SOURCES:
            archive.add(ROOT / part, part, filter=_plain)
    return gzip.compress(made.getvalue(), mtime=0)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """An entry without what differs from machine to machine; None for what is made anew."""
    if "__pycache__" in entry.name or entry.name.endswith((".pyc", ".so")) or "champions" in entry.name.split("/"):
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


# --- a run as a data set: Parquet files and a card, without secrets, paths and people ---------------------------------


TABLES = ("dataset.kernels", "dataset.prompts", "dataset.evaluations", "dataset.timings", "dataset.profiles")
ABOUT = {
    "kernels": "every kernel: file, tunables, parents, who made it, and the verdict that counts with its 95 % interval",
    "prompts": "calls of language models: messages, answer, tokens, dollars, and the kernel that came of them",
    "evaluations": "every verdict, failures with their messages among them",
    "timings": "paired times per workload, beside the anchor and the vendor's library, with 95 % intervals",
    "profiles": "what profilers said of kernels: bottleneck, notes, metrics",
}


def _scrubber(run: Run) -> Scrubber:
    """The scrubber of a run's texts: of its folder, this home, and all who gave answers from outside."""
    people = {row["author"] for row in run.rows("packages.authors")}
    with_machine = {platform.node(), platform.node().partition(".")[0], login()}
    ordinary = {"root", "user", "localhost", "admin", "ubuntu"}
    folders = (run.folder.absolute().parent, run.folder, Path.cwd(), ROOT)
    home = Path.home()
    return Scrubber([*folders, *([home] if len(home.parts) > 2 else [])], (people | with_machine) - ordinary)


def write_dataset(run: Run, out: Path) -> dict[str, int]:
    """Write the data set into the folder `out`, which is new or empty; the rows of each part. It raises UserError."""
    scrub = _scrubber(run)
    counts = export_reads(run.folder, out, TABLES, scrub)
    with writing(out):
        (out / "README.md").write_text(_card(run, counts, scrub), encoding="utf-8")
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


def _card(run: Run, counts: Mapping[str, int], scrub: Scrubber) -> str:
    """README.md, with the head that hubs of data sets read."""
    row, total = run.row, sum(counts.values())
    host: dict[str, Any] = json.loads(row["host_json"])
    told = host | {"versions": versions_in_words(host)}
    # A viewer refuses a file without rows.
    configs = [f"  - config_name: {part}\n    data_files: {part}.parquet" for part, count in counts.items() if count]
    return CARD.format(
        name=scrub(run.id), size=next((name for most, name in SIZES.items() if total < most), "1M<n<10M"),
        configs="\n".join(configs), tasks=", ".join(run.tasks), engine=row["engine_version"], seed=row["seed"],
        begun=f"{row['created_at']:%Y-%m-%d}",
        parts=markdown_table(
            [text("file", "file", code=True), number("rows", "rows", count), text("holds", "holds")],
            [{"file": f"{part}.parquet", "rows": rows, "holds": ABOUT[part]} for part, rows in counts.items()],
        ),
        machine="\n".join(f"- {name}: {scrub(str(value))}" for name, value in told.items()),
    )  # fmt: skip
