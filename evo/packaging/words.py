"""What a package says of its kernel in words: verdict, lineage, how to use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from evo.packaging.cpp import identifier
from evo.packaging.cpp_files import NVCC_OPTIONS
from evo.packaging.subject import Subject
from fitness.flags import standing

UNCONFIRMED = (
    "**Not confirmed.** These figures are of level `{level}`: nobody repeated them, and the luckiest of "
    "many kernels looks faster than it is. `evo resume RUN --confirm` confirms what leads."
)
FLAGGED = (
    "**Flagged.** Its machine code {reasons}. That is allowed, and with it a kernel may tell a timed call from a "
    "checked one: read it before you trust the figures."
)
NEVER = "Never judged where this package was made. `evo evaluate {operator} FILE` judges it as severely as a new best."


def verdict_text(subject: Subject) -> str:
    """VERDICT.md."""
    lines = [f"# Verdict on {subject.kernel.id[:12]} ({subject.task})", ""]
    verdict = subject.verdict
    if verdict is None:
        return "\n".join([*lines, NEVER.format(operator=subject.operator.name), ""])
    if verdict.get("level") != "confirmed":
        lines += [UNCONFIRMED.format(level=verdict.get("level")), ""]
    lines += [f"From {subject.origin}; status {verdict.get('status')}, level {verdict.get('level')}.", ""]
    if verdict.get("flagged"):
        lines += [FLAGGED.format(reasons=verdict["flagged"]), ""]
    if verdict.get("speedup"):
        interval = _interval(verdict["speedup"], verdict["speedup_low"], verdict["speedup_high"])
        lines += [f"{interval}: the naive kernel's time over this one's, a geometric mean over the workloads.", ""]
    lines += _table("Against the kernel it was timed in pairs with", "other", verdict.get("timings", ()))
    lines += _table("Against the vendor's library", "library", verdict.get("library_timings", ()))
    known = {k: v for k, v in verdict.items() if k.startswith(("over_", "of_")) and v is not None}
    lines += [f"- {name.replace('_', ' ')}: {value}" for name, value in known.items()]
    lines += ["", verdict["note"]] if verdict.get("note") else []
    lines += [*_checks(verdict.get("errors", ())), "", "## Measured on", ""]
    return "\n".join([*lines, *(f"- {name}: {_shown(value)}" for name, value in subject.conditions.items()), ""])


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f}x (95 %: {low:.2f}-{high:.2f})"


def _table(title: str, other: str, timings: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = []
    for t in timings:
        value, low, high = (math.exp(t["log_ratio"] + sign * 1.96 * t["log_ratio_se"]) for sign in (0, -1, 1))
        times = f"{t['latency_us']:.2f} | {t['anchor_latency_us']:.2f}"
        rows.append(f"| {t['workload']} | {times} | {_interval(value, low, high)} | {t['pairs']} |")
    if not rows:
        return []
    return [f"## {title}", "", f"| workload | us | {other}, us | ratio | pairs |", "|---|---|---|---|---|", *rows, ""]


def _checks(errors: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        f"| {e['workload']} | {e['tensor']} | {e['family']} | {e['max_ratio']:.3g} | {e['rms_ratio']:.3g} |"
        for e in errors
    ]
    if not rows:
        return []
    head = "| shape | output | inputs | worst error | rms |"
    said = "Hidden shapes and workloads that it passed; errors as parts of what is allowed, against fp64."
    return ["", "## Checks", "", said, "", head, "|---|---|---|---|---|", *rows]


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def lineage_text(subject: Subject) -> str:
    """LINEAGE.md."""
    lines = [f"# How {subject.kernel.id[:12]} came to be", "", f"From {subject.origin}. Parents before children.", ""]
    for each in subject.lineage:
        by = each.get("author") or each.get("model")
        parents = ", ".join(parent[:12] for parent in each["parents"]) or "none"
        said = f"- `{each['kernel_id'][:12]}` by {each['mutator']}{f' ({by})' if by else ''}, parents: {parents}"
        if each.get("speedup"):
            said += f", {each['speedup']:.2f}x ({standing(each.get('level'), each.get('flagged'))})"
        words = " ".join((each.get("description") or "").split())
        lines.append(said + (f": {words}" if words else ""))
    return "\n".join([*lines, ""])


def readme_text(subject: Subject, *, name: str, arch: str) -> str:
    """README.md; `arch` is what the cubin is for, empty on cpu."""
    operator, cuda = subject.operator, subject.task.target == "cuda"
    inputs = ", ".join(tensor.name for tensor in operator.inputs)
    arrays = "CUDA tensors of torch or CuPy's arrays" if cuda else "torch's tensors in main memory or numpy's arrays"
    shapes = "\n".join(
        f"- {t.name} ({t.role}, {t.dtype}): [{', '.join(axis.text for axis in t.shape)}]" for t in operator.tensors
    )
    return f"""# {operator.name}, {subject.task.dtype}, {subject.task.target}

    {operator.formula}

{shapes}

`T` is {subject.task.dtype}. Kernel `{subject.kernel.id}` from {subject.origin}; VERDICT.md says how fast and how
right it was found to be, LINEAGE.md how it came to be.

    import {name}
    kernel = {name}.load()
    {", ".join(t.name for t in operator.outputs)} = kernel({inputs})      # {arrays}; out=... for memory of your own

`kernel.py` says what it needs; `python -m pytest test_kernel.py` compares it with the fp64 reference. It was built
for the tunables in plan.json, which are constants in {"kernel.cu" if cuda else "kernel.cpp"}.
{_without_python(subject, identifier(name), arch)}"""


def _without_python(subject: Subject, name: str, arch: str) -> str:
    dims = ", ".join((*subject.operator.dims, *subject.operator.data_dims))
    if subject.task.target == "cpu":
        use = f"""    {name}::run({{{dims}}}, {{...}});      // sizes, and where the arrays begin

It is compiled with `kernel.cpp`, which wants the flags that `cpp/CMakeLists.txt` has."""
    else:
        use = f"""    {name}::Kernel kernel("cpp/kernel.{arch}.cubin");      // after cudaSetDevice or the like
    kernel.launch({{{dims}}}, {{...}}, stream);      // sizes, and where the arrays begin; a cudaStream_t or CUstream

It needs CUDA's headers of 12.4 or newer and the driver (`g++ -std=c++17 {name}.cpp ... -lcuda`), no runtime library.
The cubin is for {arch}; `nvcc -cubin -arch=... {NVCC_OPTIONS} kernel.cu` makes one for another GPU."""
    return f"""
## Without Python

`cpp/{name}.hpp` and `.cpp` are a launcher in C++17 that does what the plan says, for any dims:

    #include "{name}.hpp"
{use}

`cmake -S cpp -B build && cmake --build build && ctest --test-dir build` builds it, with a test on the same cases.
"""
