"""Requests whose prompts are kept as golden files; run as a module, it writes those anew."""

from __future__ import annotations

from pathlib import Path

from fitness.evaluation import Evaluation, Level, Status, Timing
from mutators.base import Earlier, Parent, Request
from mutators.prompts import complaint, conversation, follow_up
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel

FOLDER = Path(__file__).parent / "golden" / "prompts"
AXPB = Path(__file__).parents[1] / "data" / "axpb"
CASES = tuple((name, target) for name in ("rewrite", "crossover", "repair", "refine") for target in ("cpu", "cuda"))
TUNED = "[tune]\nBLOCK = [256, 128]\n[[launch]]"


def parents(operator: Operator, target: str) -> tuple[Parent, Parent]:
    """A kernel that is correct and its tuned sibling."""
    source = operator.ancestor("naive", target).read_text(encoding="utf-8")
    kernel = Kernel(operator.name, target, source)
    sibling = Kernel(operator.name, target, source.replace("[[launch]]", TUNED), {"BLOCK": 128})
    task = f"{operator.name}/fp32/{target}"
    first = Evaluation(kernel.id, task, Level.SCREEN, Status.CORRECT, log_speedup=0.0, log_speedup_se=0.01)
    second = Evaluation(
        sibling.id, task, Level.FULL, Status.CORRECT, log_speedup=0.405, log_speedup_se=0.004,
        timings=(Timing("n=40000", 12.3456, 18.5, 0.405, 0.004, 20), Timing("n=100001", 31.0, 46.5, 0.405, 0.004, 20)),
        facts={"vector_bits": 256, "packed_share": 0.75, "threads": False, "undefined_symbols": ["expf"]},
    )  # fmt: skip
    return Parent(sibling, second), Parent(kernel, first)


def failed(parent: Parent, operator: Operator, target: str) -> Parent:
    """A child of it that is wrong."""
    source = parent.kernel.source.replace("y[i] = ", "y[i + 1] = ")
    kernel = Kernel(operator.name, target, source, parent.kernel.values)
    message = "y on n=40000 (nominal): 1 of 40000 elements is wrong, the first at [0]:\nnothing was written there"
    return Parent(kernel, Evaluation(kernel.id, f"axpb/fp32/{target}", Level.SCREEN, Status.WRONG, message))


def case(name: str, target: str) -> tuple[Request, tuple[Parent, ...], Operator]:
    operator = load(str(AXPB))
    first, second = parents(operator, target)
    wrong = failed(first, operator, target)
    chosen = {"rewrite": (first,), "crossover": (first, second), "repair": (wrong, first), "refine": (wrong,)}[name]
    params: dict[str, object] = {"workload_set": "cpu"}
    if name == "rewrite":
        params |= {
            "profile": ["bandwidth: memory is busy 85 % of the time", "the loop in line 10 was not vectorised"],
            "tried": [
                {"description": "unroll by 4", "status": "slower", "speedup": 0.912},
                {"description": "use AVX-512", "status": "compile_error", "message": "line 3: no such\nfunction"},
            ],
        }
    if name == "crossover":
        params |= {"advice": "Take the tunable from A.", "device": "a machine of 8 cores"}
    ids = tuple(parent.kernel.id for parent in chosen)
    thread = "axpb/fp32/cpu#6" if name == "refine" else ""
    request = Request(Task("axpb", "fp32", target), 7, name, ids, 1, params, thread=thread)
    return request, chosen, operator


def earlier(failure: str = "") -> Earlier:
    """The request that `refine` goes on with."""
    return Earlier(Request(Task("axpb", "fp32", "cpu"), 6, "refine", (), 1), failure=failure)


def rendered(name: str, target: str) -> str:
    request, chosen, operator = case(name, target)
    if name == "refine":
        lost = earlier("edit 1: no line reads `x`")
        asked = [follow_up(name, request, chosen, operator, (said,)) for said in (earlier(), lost)]
        messages = (*asked, complaint(lost.failure))
    else:
        messages = conversation(name, request, chosen, operator)
    return "".join(f"===== {message['role']} =====\n{message['content']}\n" for message in messages)


def golden(name: str, target: str) -> Path:
    """Where the prompt of a case is kept."""
    return FOLDER / f"{name}.{target}.md"


if __name__ == "__main__":
    for each in CASES:
        golden(*each).write_text(rendered(*each), encoding="utf-8")
