"""Figures of machine, limits and search, made into words for prompts.

It takes what `mutators.briefing` holds and makes of it what the templates show; what is not known is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitness.evaluation import Evaluation, interval95
from fitness.judging.base import CALL_LIMIT_S, COMPILE_LIMIT_S, DeviceInfo
from fitness.profiling.roofline import Peaks, allowed_us
from fitness.words import digits, estimate, fact, in_words, of_bound
from mutators.base import Parent
from mutators.briefing import Attempt, Briefing, Standing, Winner, mean
from operators.definition.spec import HIDDEN_NEEDED, LONGEST_CHAIN, Operator, Task, Tensor, Workload
from operators.dtypes import DTYPES
from operators.expression import ExpressionError

FOLDER = Path(__file__).parent / "examples"


@dataclass(frozen=True)
class Example:
    """A kernel file that prompts show: a worked example of what is hard."""

    operator: str
    """Whose kernel it is; prompts for an operator of this name do without."""
    about: str
    file: str
    """In the folder `examples`."""
    needs: str = ""
    """Architecture that the device must be compiled for."""

    @property
    def source(self) -> str:
        """The file as it stands."""
        return _read(self.file)

    def fits(self, operator: Operator, device: DeviceInfo | None) -> bool:
        """Whether it is of use for an operator on a device, as far as that is known."""
        known = device.details if device else ()
        return self.operator != operator.name and (not known or any(self.needs in line for line in known))


_SCORES = "A whole file for another operator, `y[r, c] = sum_d q[r, d] * keys[c, d]`"
CUTE = "cute"
"""The dialect of prompts that ask for CuTe."""
HOPPER = Example(
    "scores",
    f"{_SCORES} in bf16 on sm_90a: one warp fetches tiles by TMA into a ring of stages that mbarriers guard, "
    "two warp groups multiply them by wgmma.",
    "scores.cu",
    needs="sm_90a",
)
EXAMPLES: Mapping[str, tuple[Example, ...]] = {
    "cuda": (HOPPER,),
    "cpu": (
        Example(
            "scores",
            f"{_SCORES}: tiles of sums stay in vector registers, threads take bands of rows, and rows that are left "
            "over have tiles of their own.",
            "scores.cpp",
        ),
    ),
    CUTE: (
        Example("scores", f"{_SCORES} in bf16: tiles through shared memory, products of four warps.", "cute_scores.cu"),
        Example(
            "row_peaks",
            "A whole file for another operator, `y[r] = max_c |x[r, c]|`: several 128-bit loads of a thread are in "
            "flight, and rows of any length have a launch.",
            "cute_peaks.cu",
        ),
        HOPPER,
    ),
}
"""By target or dialect."""


@lru_cache
def _read(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


SLOW_BUILD_MS = 5_000.0
"""Build time in milliseconds from which it is worth telling."""
MOST_ROWS = 8
MOST_WINNERS = 6_000
"""Characters of all winners' sources."""
FAR = 0.5
"""Below this share of what the machine allows small changes lead nowhere."""
NOISE = frozenset(("code_bytes", "flagged", "uncommon", "barriers", "launches", "access_bytes", "undefined_symbols"))
"""Facts of builds that name no cause of anything."""
SPECIALS = {
    "zero": "+-0", "subnormal": "subnormals", "huge": "numbers near the type's largest", "inf": "infinities",
    "nan": "NaN",
}  # fmt: skip


def constants(device: DeviceInfo | None, operator: Operator, task: Task, dialect: str = "") -> dict[str, Any]:
    """Return what prompts of one task always say, for the system message; `dialect` is empty or CUTE."""
    return {
        "machine": machine(device, task.dtype),
        "drawn": drawn(operator),
        "bound": bound(operator),
        "longest_chain": LONGEST_CHAIN,
        "computes": computes(operator),
        "means": means(task),
        "hidden_needed": min(HIDDEN_NEEDED, len(operator.hidden)),
        "compile_limit_s": f"{COMPILE_LIMIT_S[task.target]:.0f}",
        "call_limit_s": f"{CALL_LIMIT_S:g}",
        "dialect": dialect,
        "examples": [each for each in EXAMPLES.get(dialect or task.target, ()) if each.fits(operator, device)],
    }


def told(
    briefing: Briefing, operator: Operator, task: Task, parents: tuple[Parent, ...], workloads: Sequence[Workload]
) -> dict[str, Any]:
    """Return what is known of the search, for the user message."""
    allowed = limits(operator, task, workloads, briefing.device)
    first = parents[0].kernel.id if parents else ""
    known = place(briefing.parents.get(first, {}), briefing.naive_us, allowed)
    best = place(briefing.best, briefing.naive_us, allowed) if briefing.best_id != first else None
    better = best and (known is None or best.share > known.share)  # the best one is known for certain, others by luck
    return {
        "table": table(briefing, parents, workloads, allowed),
        "place": known,
        "best_place": best if better else None,
        "tried": [attempt(each, task) for each in briefing.tried],
        "helped": [attempt(each, task) for each in briefing.helped],
        "fruitless": [attempt(each, task) for each in briefing.fruitless],
        "failed": [attempt(each, task) for each in briefing.failed],
        "winners": winners(briefing.winners),
        "others": list(others(briefing)),
    }


def unplaced(profile: Sequence[str], known: Headroom | None) -> list[str]:
    """Return a profile's lines but for those of the roofline, where the table of kernels has them."""
    return [line for line in profile if known is None or not line.startswith("roofline:")]


def machine(device: DeviceInfo | None, dtype: str) -> list[str]:
    """Return what is known of the machine, in lines; what was measured of it is marked as such."""
    if device is None:
        return []
    return [device.name, *device.details, *(_measured(device.peaks, dtype) if device.peaks else ())]


def _measured(peaks: Peaks, dtype: str) -> Iterator[str]:
    yield f"measured from memory, caches cold: {peaks.read_gb_s:.3g} GB/s read, {peaks.copy_gb_s:.3g} GB/s copied"
    if dtype in peaks.gflop_s:
        plain, ways = peaks.gflop_s[dtype], peaks.ways_gflop_s.get(dtype, 0.0)
        parts = f", {_flops(ways)} with products in narrower parts that add up to its precision"
        yield f"arithmetic at most: {_flops(plain)} in {dtype}{parts if ways > 1.05 * plain else ''}"
    if peaks.empty_us:
        yield f"an empty launch costs {peaks.empty_us:.2g} us"


def _flops(gflop_s: float) -> str:
    return f"{gflop_s / 1e3:.3g} TFLOP/s" if gflop_s >= 1e3 else f"{gflop_s:.3g} GFLOP/s"


# --- what verification asks -------------------------------------------------------------------------------------------


def drawn(operator: Operator) -> list[str]:
    """Return what the inputs of checks are like, in lines, tensors that are drawn alike in one."""
    alike: dict[str, list[str]] = {}
    for tensor in operator.inputs:
        if tensor.distribution is not None:
            alike.setdefault(_law(tensor), []).append(f"`{tensor.name}`")
    return [f"{', '.join(names)}: {law}" for law, names in alike.items()]


def _law(tensor: Tensor) -> str:
    law = tensor.distribution
    assert law is not None
    text = str(law)
    bounds = ", never beyond that range" if tensor.bounded else ""
    rare = [words for kind, words in SPECIALS.items() if kind in tensor.specials]
    return f"{text}{bounds}; in some checks a few {', '.join(rare)}" if rare else f"{text}{bounds}"


def computes(operator: Operator) -> bool:
    """Whether results are rounded, so that their precision is in question."""
    return operator.tolerance.bound in ("rounding", "measured")


def means(task: Task) -> str:
    """Return what precision allows besides plain sums in the accumulator's type."""
    if task.target == "cpu":
        return "sums in any order, fused multiply-adds, vector forms of functions."
    if DTYPES[task.dtype].size == 2:
        return f"{task.dtype} factors on tensor cores with fp32 sums, in any order."
    if task.dtype == "fp32":
        return "sums in any order, or an fp32 product as three TF32 ones on tensor cores. Plain TF32 fails."
    return "sums in any order, products on tensor cores of the same type."


def bound(operator: Operator) -> str:
    """Return the error bound in words."""
    terms = operator.tolerance.terms.text
    exact = " Sums of small integers must be exact." if operator.tolerance.exact_integers else ""
    match operator.tolerance.bound:
        case "bits":
            return (
                "Every bit must be one of the input's: nothing is computed, values are moved, those of -0, infinities, "
                "subnormals and NaN with payloads among them."
            )
        case "exact":
            return "Results must be equal to the reference, not near it."
        case "rounding":
            return (
                "An element may err by one rounding to its type plus what plain sums in "
                f"`ACC` lose: about 2 sqrt(K) u S, with K = {terms} terms and S the sum of their magnitudes "
                "(2 K u S where inputs are no noise); the root mean square of the errors is held against that of "
                f"trusted kernels.{exact}"
            )
    return (
        "An element may err by one rounding to its type plus four times what trusted kernels with sums in "
        f"`ACC` (K = {terms} terms) were seen to lose; the root mean square is held against theirs."
    )


# --- where kernels stand ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headroom:
    """Nearness of a kernel to what the machine allows."""

    share: float
    """Geometric mean over workloads."""
    worst: str
    """The workload with the most to gain."""
    worst_share: float

    @property
    def far(self) -> bool:
        """Whether only another design leads further."""
        return self.share < FAR


def percent(share: float) -> str:
    """Return a share of a whole in words."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def limits(
    operator: Operator, task: Task, workloads: Iterable[Workload], device: DeviceInfo | None
) -> dict[str, float]:
    """Return by workload the least microseconds that the machine allows, where that is known."""
    found: dict[str, float] = {}
    for workload in workloads if device and device.peaks else ():
        assert device and device.peaks
        try:
            found[workload.name] = allowed_us(operator, workload.dims, task.dtype, device.peaks)
        except ExpressionError:  # only data tell
            continue
    return {name: allowed for name, allowed in found.items() if allowed > 0}


def place(standing: Standing, naive_us: Mapping[str, float], allowed: Mapping[str, float]) -> Headroom | None:
    """Return how near a kernel comes; None where that is not known."""
    logs = {
        name: math.log(allowed[name] / naive_us[name]) + ratio.log
        for name, ratio in standing.items()
        if name in allowed and naive_us.get(name, 0.0) > 0
    }
    if not logs:
        return None
    worst = min(logs, key=lambda name: logs[name])
    return Headroom(math.exp(mean(list(logs.values()))), worst, math.exp(logs[worst]))


def table(
    briefing: Briefing, parents: tuple[Parent, ...], workloads: Iterable[Workload], allowed: Mapping[str, float]
) -> list[list[str]]:
    """Return a table of speedups over the naive kernel by workload, its head first; empty where nothing is known.

    The limit, the library, the best kernel known and the parents have a column where anything is known of them. Of very
    many workloads some are left out.
    """
    ids = [parent.kernel.id for parent in parents]
    names = ("A", "B") if all(map(_correct, parents)) and len(ids) > 1 else ("this kernel", "before the change")
    columns: list[tuple[str, Mapping[str, str]]] = [
        ("naive, us", {name: digits(us) for name, us in briefing.naive_us.items()}),
        ("least, us", {name: digits(us) for name, us in allowed.items()}),
        ("library", _shown(briefing.library)),
    ]
    if briefing.best_id not in ids:
        columns.append(("best known", _shown(briefing.best)))
    for name, kernel_id in zip(names, ids, strict=False):
        columns.append((name, _shown(briefing.parents.get(kernel_id, {}))))
    columns = [(name, cells) for name, cells in columns if cells]
    if not columns:
        return []
    head = ["workload", *(name for name, _ in columns)]
    rows = list(dict.fromkeys([*(w.name for w in workloads), *(row for _, cells in columns for row in cells)]))
    if len(rows) > MOST_ROWS:  # from one end to the other: workloads stand in the order of their sizes
        rows = [rows[place * (len(rows) - 1) // (MOST_ROWS - 1)] for place in range(MOST_ROWS)]
    return [head, *([row, *(cells.get(row, "") for _, cells in columns)] for row in rows)]


def _correct(parent: Parent) -> bool:
    return bool(parent.evaluation and parent.evaluation.correct)


def _shown(standing: Standing) -> dict[str, str]:
    return {name: str(ratio) for name, ratio in standing.items()}


# --- what is known of a kernel ----------------------------------------------------------------------------------------


def verdict(evaluation: Evaluation, *, target: str) -> dict[str, Any]:
    """Return what is worth telling of an evaluation."""
    return {
        "status": in_words(evaluation.verdict),
        "correct": evaluation.correct,
        "message": evaluation.message,
        "errors": evaluation.errors,
        "speedup": _speedup(evaluation),
        "naive": evaluation.log_speedup == evaluation.log_speedup_se == 0.0,  # by definition: no pairs are so alike
        "nearest": _nearest(evaluation),
        "build": _build(evaluation, COMPILE_LIMIT_S[target]),
        "facts": facts(evaluation.facts),
    }


def facts(known: Mapping[str, Any]) -> dict[str, str]:
    """Return the build facts that say something, in words."""
    return {name: said for name, value in sorted(known.items()) if name not in NOISE and (said := fact(value))}


def _speedup(evaluation: Evaluation) -> str:
    if evaluation.log_speedup is None:
        return ""
    return estimate(*interval95(evaluation.log_speedup, evaluation.log_speedup_se or 0.0))


def _nearest(evaluation: Evaluation) -> str:
    """Words on how near its errors come to what is allowed: at least a hundredth of it, which is worth knowing."""
    worst = max(evaluation.errors, key=lambda error: error.worst_ratio, default=None)
    if worst is None or not 0.01 <= worst.worst_ratio < math.inf:
        return ""
    what = "largest error" if worst.max_ratio >= worst.rms_ratio else "errors' root mean square"
    return f"`{worst.tensor}`: its {what} is at {of_bound(worst.worst_ratio)}, on {worst.family} inputs"


def _build(evaluation: Evaluation, limit_s: float) -> str:
    took_ms = evaluation.stage_ms.get("build", 0.0)
    return f"{took_ms / 1e3:.0f} s of {limit_s:.0f} s" if took_ms >= SLOW_BUILD_MS else ""


# --- what was tried ---------------------------------------------------------------------------------------------------


def attempt(each: Attempt, task: Task) -> str:
    """Return one line for an attempt: idea, in_words, evidence; where it was tried, if not on `task`."""
    where = f" (on {each.task})" if each.task not in ("", str(task)) else ""
    gain = f", {each.gain} times as fast" if each.gain else ""
    message = f": {' '.join(each.message.split())}" if each.message else ""
    return f"{each.description}{where}: {in_words(each.status)}{gain}{message}"


def others(briefing: Briefing) -> Iterator[str]:
    """Sentences on answers under way, and on the same question: no two prompts under way are the same."""
    places = (briefing.open_here, "on this kernel"), (briefing.open_elsewhere, "on other kernels of the task")
    if open_ := " and ".join(f"{count} {where}" for count, where in places if count):
        yield f"Other answers are under way at this moment ({open_}): take a direction that is unlikely to be theirs."
    if briefing.asked_before:
        times = "once" if briefing.asked_before == 1 else f"{briefing.asked_before} times"
        yield f"This question was asked {times} before; an answer that repeats an earlier one is worth nothing."


def winners(found: tuple[Winner, ...]) -> list[dict[str, Any]]:
    """Return the kernels that win on some workload, as much of their sources as there is room for."""
    room = MOST_WINNERS // max(len(found), 1)
    return [
        {
            "source": each.kernel.source,
            "values": dict(each.kernel.values),
            "room": room,
            "wins": [f"{name}: {each.standing[name]}" for name in each.wins],
        }
        for each in found
    ]
