"""Cost of prompts: the tokens of every block, and the time to build one when a search lies behind it.

    python -m tests.bench.prompts --individuals 10000
    python -m tests.bench.prompts --individuals        # tokens alone

Tokens are counted as OpenAI's models count them, for the prompts that are kept as golden files; other providers'
differ by a tenth or so. Blocks are what stands below a heading; sources of kernels are counted apart from all others.
`roles` has the same for every role of the published loops, about one kernel of `softmax` on cuda.
Then a task is told of so many individuals, two thirds of them correct kernels of models, and prompts are built for
questions about the latest of them: `brief_us` is what the driver's loop spends on one as it asks, `prompt_us` what it
takes to fill the templates, both in CPU time. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median

from evo.individual import Individual
from evo.search.knowledge import Knowledge, StoredBriefing
from fitness.evaluation import Evaluation, Level, Status, Timing
from mutators.base import Kind, Parent, Request
from mutators.briefing import Briefing, Winner
from mutators.llm.library import litellm_module
from mutators.prompts import FOLDER, conversation
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.mutators import informed_cases as cases

HEADING = re.compile(r"^# (.*)$", re.MULTILINE)
SOURCE = re.compile(r"```+cpp untrusted\n.*?\n```+", re.DOTALL)
QUESTIONS = 200


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The text below each heading, and all sources of candidates as one."""
    yield "(sources of kernels)", "\n".join(SOURCE.findall(text))
    parts = HEADING.split(SOURCE.sub("", text))
    yield "(role)", parts[0]
    yield from zip(parts[1::2], parts[2::2], strict=True)


def tokens() -> dict[str, dict[str, dict[str, int]]]:
    """By case and message, the tokens of every block."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for case in cases.CASES:
        said = found["/".join(case)] = {}
        for message in cases.asked(*case):
            said[message["role"]] = counted(message["content"])
    return found


WORDS = ("planner", "diagnoser", "judge")
"""Beginnings of the templates of roles that write words."""


def roles() -> dict[str, dict[str, dict[str, int]]]:
    """By role of a published loop and message, the tokens of every block."""
    operator, task = load("softmax"), Task("softmax", "fp32", "cuda")
    kernel = cases.kernels(operator, "cuda")[0]
    known = cases.briefing(operator, task)
    profile = [f"metric {number}: {number}.5 %" for number in range(24)]
    evaluation = cases.verdict(kernel, task, 0.7, known.parents[kernel.id])
    parent = Parent(kernel, evaluation, profile=profile, briefing=known)
    found: dict[str, dict[str, dict[str, int]]] = {}
    for path in sorted(FOLDER.glob("*/*.md.j2")):
        template = f"{path.parent.name}/{path.name.partition('.')[0]}"
        kind = Kind.SAY if path.name.startswith(WORDS) else Kind.CHILD
        params = {"workload_set": cases.SETS["cuda"]}
        params |= {"dialect": "cute", "form": "lines"} if template.startswith("cutegen") else {}
        request = Request(task, 7, "rewrite", (kernel.id,), 1, params, kind=kind, template=template)
        said = found[template] = {}
        for message in conversation("rewrite", request, (parent,), operator):
            said[message["role"]] = counted(str(message["content"]))
    return found


def counted(text: str) -> dict[str, int]:
    """The tokens of a message and of every block; blocks of the same heading are one."""
    table = Counter[str]()
    for name, block in blocks(text):
        table[name] += count(block)
    return {"all": table.total()} | table


def count(text: str) -> int:
    """The tokens of a text."""
    return int(litellm_module().token_counter(model="gpt-4", text=text)) if text else 0


def judged(kernel: Kernel, task: Task, workloads: list[str], number: int) -> Evaluation:
    """A correct kernel of a speedup that its number decides."""
    logs = [math.sin(number + place) for place, _ in enumerate(workloads)]
    log = sum(logs) / len(logs)
    timings = tuple(Timing(w, 10.0, 10.0, each, 0.01, 9) for w, each in zip(workloads, logs, strict=True))
    return Evaluation(
        kernel.id, str(task), Level.FULL, Status.CORRECT, log_speedup=log, log_speedup_se=0.01,
        anchor_id="naive", anchor_log_speedup=0.0, log_ratio=log, log_ratio_se=0.01, timings=timings,
    )  # fmt: skip


def history(known: Knowledge, operator: Operator, task: Task, individuals: int) -> tuple[list[Parent], float]:
    """Tell of so many individuals; the correct ones, and the microseconds that it took to tell of one."""
    workloads = [w.name for w in operator.workloads if w.set == cases.SETS[task.target]]
    source, right, told_s = operator.naive(task.target), [], 0.0
    naive = Kernel(operator.name, task.target, source)
    first = Request(task, 0, "ancestor", (), 0, {"name": "naive"}, kind=Kind.ANCESTOR)
    known.told(Individual(first, naive, judged(naive, task, workloads, 0)))
    for number in range(1, individuals + 1):
        kernel = Kernel(operator.name, task.target, f"{source}// {number}\n")
        request = Request(task, number, "rewrite", (right[-1].kernel.id if right else naive.id,), 1, model="m")
        if number % 3:
            verdict = judged(kernel, task, workloads, number)
            right.append(Parent(kernel, verdict))
        else:
            verdict = Evaluation(kernel.id, str(task), Level.SCREEN, Status.WRONG, f"element {number} is wrong")
        individual = Individual(request, kernel, verdict, description=f"idea {number % 997}")
        began = time.process_time()
        known.told(individual)
        told_s += time.process_time() - began
    return right, told_s / individuals * 1e6


def whole(brief: StoredBriefing, known: Knowledge, kernel: Kernel) -> Briefing:
    """A briefing whose winners' kernels need not be fetched."""
    return Briefing(
        known.device, brief.naive_us, brief.library, best=brief.best.standing if brief.best else {},
        parents=brief.parents, tried=brief.tried, helped=brief.helped, fruitless=brief.fruitless, failed=brief.failed,
        winners=tuple(Winner(kernel, each.standing, wins) for each, wins in brief.winners),
        open_here=brief.open_here, open_elsewhere=brief.open_elsewhere, asked_before=brief.asked_before,
    )  # fmt: skip


def build_times(individuals: int) -> dict[str, float]:
    """Microseconds to build a prompt with so many individuals behind it, and of the telling of one."""
    operator, task = load("softmax"), Task("softmax", "fp32", "cuda")
    known = Knowledge(task, device=cases.DEVICES["cuda"])
    right, told_us = history(known, operator, task, individuals)
    brief_us, prompt_us, characters = [], [], 0
    for number in range(QUESTIONS):
        parent = right[-1 - number % len(right)]
        params = {"workload_set": cases.SETS["cuda"]}
        request = Request(task, individuals + number, "rewrite", (parent.kernel.id,), 1, params, model="m")
        began = time.process_time()
        brief = known.brief(request)
        brief_us.append((time.process_time() - began) * 1e6)
        assert brief
        briefed = Parent(parent.kernel, parent.evaluation, briefing=whole(brief, known, parent.kernel))
        began = time.process_time()
        said = conversation("rewrite", request, (briefed,), operator)
        prompt_us.append((time.process_time() - began) * 1e6)
        characters = sum(len(message["content"]) for message in said)
    return {
        "individuals": individuals, "told_us": told_us, "brief_us": median(brief_us), "prompt_us": median(prompt_us),
        "prompt_worst_us": max(prompt_us), "characters": characters,
    }  # fmt: skip


def main() -> None:
    """Print it all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--individuals", type=int, nargs="*", default=[100, 10_000])
    options = parser.parse_args()
    print(
        json.dumps(
            {"tokens": tokens(), "roles": roles(), "build": [build_times(count) for count in options.individuals]},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
