"""Prompts about kernels that a profiler looked at, and of a dialogue with tools, kept as golden files.

As a module, it writes them anew. What is counted is made up, in the figures that an H100 gave for kernels of the class;
what prompts say of it is what the engine makes of such figures.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fitness.cuda.compile.line_table import Lines, Row
from fitness.cuda.compile.nvrtc import FILE
from fitness.cuda.profiling import ncu
from fitness.cuda.profiling.ncu import assembled, placed
from fitness.cuda.profiling.stalls import Sampled, StalledLine, quoted, stalled_lines
from fitness.evaluation import Timing
from fitness.profiling import counters
from fitness.profiling.profiles import Profile
from mutators.asking.agent import opening
from mutators.base import Message, Parent, Request
from mutators.prompts import conversation
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.mutators import informed_cases as informed

FOLDER = informed.FOLDER.parent / "profiled"
COUNTED = Path(__file__).parents[1] / "data" / "cuda" / "ncu_two_launches.csv"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
CLASSES = ("bandwidth", "compute", "latency")
OPERATORS = {"bandwidth": "softmax", "compute": "matrix_mul", "latency": "spmv_csr"}
FIGURES: dict[str, dict[str, float]] = {
    "bandwidth": {
        counters.COMPUTE: 24.0, counters.MEMORY: 91.0, counters.DRAM: 89.0, counters.ISSUE: 18.0,
        counters.OCCUPANCY: 88.0, counters.WAVES: 6.2, STALL.format("long_scoreboard"): 21.0,
    },
    "compute": {
        counters.COMPUTE: 86.0, counters.MEMORY: 52.0, counters.DRAM: 11.0, counters.ISSUE: 71.0,
        counters.OCCUPANCY: 49.0, counters.WAVES: 3.9, counters.TENSOR: 0.0, STALL.format("math_pipe_throttle"): 2.4,
    },
    "latency": {
        counters.COMPUTE: 17.0, counters.MEMORY: 31.0, counters.DRAM: 22.0, counters.ISSUE: 12.0,
        counters.OCCUPANCY: 38.0, counters.WAVES: 1.4, counters.COALESCED: 21.0,
        STALL.format("long_scoreboard"): 34.0,
    },
}  # fmt: skip
WAITS = {"bandwidth": "long_scoreboard", "compute": "math_pipe_throttle", "latency": "long_scoreboard"}
NAMES = (*CLASSES, "agent")


def profile(name: str, kernel: Kernel, task: Task) -> Profile:
    """The profile made of the figures of a class."""
    operator = load(task.operator)
    workload = next(w for w in operator.workloads if w.set == "published")
    timing = Timing(workload.name, 4000.0, 5000.0, -0.2, 0.01, 20)
    peaks = informed.DEVICES["cuda"].peaks
    assert peaks
    place = placed(operator, task.dtype, {workload: workload.dims}, [timing], peaks)
    report = ncu.parse(COUNTED.read_text(encoding="utf-8"))
    assert place and report
    counted = ncu.figures(replace(report, launches=report.launches[:1]), [[0]])
    part = replace(counted.parts[0], kernel=operator.name)
    figures = replace(counted, values={**counted.values, **FIGURES[name]}, parts=(part,))
    facts = {"registers": 40, "spill_bytes": 0, "static_shared_bytes": 0, "access_bytes": 4, "code_bytes": 4352}
    where = quoted(stalls(name, kernel), kernel.source)
    return assembled(place, {**facts, "cooperation": "none"}, figures, sm_count=132, stalled=where)


def stalls(name: str, kernel: Kernel) -> list[StalledLine]:
    """Samples on the lines of the kernel's loop."""
    texts = kernel.source.split("\n")
    loop = next(number for number, text in enumerate(texts, 1) if "for (" in text)
    lines = Lines(tuple(Row(16 * place, FILE, loop + place) for place in range(3)))
    sampled = Sampled({0: {WAITS[name]: 700.0, "wait": 90.0}, 16: {"not_selected": 170.0}, 32: {"wait": 40.0}})
    return stalled_lines([(sampled, lines, 1.0)])


def asked(name: str) -> tuple[Message, ...]:
    """The messages of one case."""
    operator = load(OPERATORS.get(name, "softmax"))
    task = Task(operator.name, "fp32", "cuda")
    known = informed.briefing(operator, task)
    kernel = informed.kernels(operator, "cuda")[0]
    notes = profile(name if name in CLASSES else "bandwidth", kernel, task).notes
    verdict = informed.verdict(kernel, task, 0.7, known.parents[kernel.id])
    parent = Parent(kernel, verdict, briefing=known, profile=notes)
    stage = "rewrite" if name in CLASSES else "agent"
    request = Request(task, 7, stage, (kernel.id,), 1, {"workload_set": "published"}, model="m")
    if stage == "agent":
        return tuple(opening(request, (parent,), operator, ()))
    return conversation(stage, request, (parent,), operator)


def files(name: str) -> tuple[Path, ...]:
    """Where the messages of a case are kept: of a dialogue both, of others the one that differs."""
    return (FOLDER / f"{name}.system.md", FOLDER / f"{name}.md") if name == "agent" else (FOLDER / f"{name}.md",)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for case in NAMES:
        for path, said in zip(reversed(files(case)), reversed(asked(case)), strict=False):
            path.write_text(f"{said['content']}\n", encoding="utf-8")
