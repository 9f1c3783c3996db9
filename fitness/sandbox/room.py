"""Memory limits for candidates, so that none of them takes what the machine has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from operators.definition.spec import Operator, Workload
from operators.dtypes import resolve_dtype
from operators.errors import OperatorError
from operators.plan.reading import ResolvedPlan

SHARE = 8
"""The scratch of one kernel gets this part of a machine's or a GPU's memory: other kernels are judged beside it."""
MEMORY = Path("/proc/meminfo")
GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""A container's limit and what it uses, as versions 2 and 1 of control groups tell them."""


ANSWER_BYTES = 16
"""Bytes for each element of an output: what is expected and what is allowed, in fp64."""
WORKING_BYTES = 24
"""Bytes for each element of inputs and outputs, while a case is drawn and answered: fp64 copies of both."""


@dataclass(frozen=True)
class Footprint:
    """Memory that a task takes of the device that it is judged on, by its operator's sizes."""

    held_bytes: int
    """By the inputs of its timed calls and their answers, between verdicts too."""
    working_bytes: int
    """Memory beside them, while inputs are drawn and answered."""


def footprint(operator: Operator, workloads: Sequence[Workload], dtype: str, sets: Sequence[int]) -> Footprint:
    """The memory of a task that keeps so many sets of inputs of each workload, in the same order.

    Sizes that only the data tell count as 1: nothing is drawn yet.
    """
    return _together([_needs(operator, workload, dtype) for workload in workloads], sets)


def sets_within(
    limit_bytes: int, operator: Operator, workloads: Sequence[Workload], dtype: str, most: int, *, beside: int = 0
) -> tuple[int, ...]:
    """The number of sets of inputs of each workload, `most` where all fit the memory that a task may take.

    Otherwise the workload whose sets take most has one less, until they fit, or each has one. `beside` more of each
    come for a while, and have their room too, where there are sets to spare. Raises OperatorError where one set of each
    does not fit.
    """
    needs = [_needs(operator, workload, dtype) for workload in workloads]
    sets = [most] * len(needs)
    whole = _together(needs, [most + beside] * len(needs))
    limit_bytes, held = limit_bytes - whole.working_bytes, whole.held_bytes
    while held > limit_bytes and max(sets) > 1:
        largest = max((n for n, many in enumerate(sets) if many > 1), key=lambda n: sets[n] * needs[n].set_bytes)
        sets[largest] -= 1
        held -= needs[largest].set_bytes
    held -= beside * sum(need.set_bytes for need in needs)
    if held > limit_bytes:
        raise OperatorError(
            f"{operator.name}: one set of inputs of each of {len(needs)} workloads takes {_shown(held)} with answers, "
            f"and {_shown(max(limit_bytes, 0))} of the device's memory are left for them: choose a workload_set of less"
        )
    return tuple(sets)


@dataclass(frozen=True)
class _Needs:
    """Memory that a workload takes."""

    set_bytes: int
    """One set of its inputs, which are there twice, as they were drawn and in the memory that runners map; with the
    answer."""
    output_bytes: int
    """Outputs of its timed calls, the same for all sets."""
    working_bytes: int


def _needs(operator: Operator, workload: Workload, dtype: str) -> _Needs:
    dims = operator.environment(workload.dims) | dict.fromkeys(operator.data_dims, 1)
    count = {t.name: math.prod(t.sizes(dims)) for t in operator.tensors}
    size = {t.name: count[t.name] * resolve_dtype(t.dtype, dtype).size for t in operator.tensors}
    inputs, outputs = operator.inputs, operator.outputs
    each = sum(2 * size[t.name] for t in inputs) + sum(ANSWER_BYTES * count[t.name] for t in outputs)
    return _Needs(each, sum(size[t.name] for t in outputs), WORKING_BYTES * sum(count.values()))


def _together(needs: Sequence[_Needs], sets: Sequence[int]) -> Footprint:
    """The memory of workloads of which so many sets are kept."""
    held = sum(many * need.set_bytes + need.output_bytes for many, need in zip(sets, needs, strict=True))
    return Footprint(held, max((need.working_bytes for need in needs), default=0))


def machine_scratch_bytes() -> int:
    """The scratch memory that a kernel on the cpu target may have: a part of the machine's memory, and half at most of
    what is free."""
    figures = dict(line.split(":", 1) for line in MEMORY.read_text(encoding="ascii").splitlines())
    total, free = (1024 * int(figures[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    for limit_file, used_file in GROUPS:
        try:
            limit, used = limit_file.read_text(encoding="ascii").strip(), int(used_file.read_text(encoding="ascii"))
        except OSError:
            continue
        if limit.isdecimal() and int(limit) < total:
            total, free = int(limit), min(free, max(int(limit) - used, 0))
    return min(total // SHARE, free // 2)


def scratch_problem(
    resolved: Iterable[tuple[Workload, ResolvedPlan]], workloads: Iterable[Workload], limit_bytes: int
) -> str | None:
    """The fault in the size of a plan's buffers, before any of it is allocated; None where it fits.

    Timed calls hold the buffers of all `workloads` at a time, and beside them those of one more shape.
    """
    needs: Mapping[Workload, int] = {shape: sum(buffer.bytes for buffer in plan.buffers) for shape, plan in resolved}
    if not needs:
        return None
    largest = max(needs, key=needs.__getitem__)
    held = needs[largest] + sum(needs.get(workload, 0) for workload in workloads)
    if held <= limit_bytes:
        return None
    return (
        f"its buffers take {_shown(needs[largest])} on {largest.name}, and {_shown(held)} with those of all workloads; "
        f"at most {_shown(limit_bytes)} are allowed here, of the memory that there is"
    )


def _shown(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"
