"""Calls a function of a repository with and without its kernel: `python -m FOLDER.compare MODULE NAME RESULT`.

It stands in the kernel's folder, runs in the user's own Python, and writes what it found to the file RESULT as JSON.
Before, it builds the package's binding to torch, where that is possible: short calls are faster by it.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils import _pytree as pytree

from operators.importing.arguments import argument

ROUNDS, WON = 15, 12
"""Rounds of timing, and those that the kernel must win to be called faster."""
BATCH_S = 0.01
"""Seconds of the calls that are timed together."""
SHORT, LONG = 5e-2, 2e-3
"""Differences that are allowed, as shares of the largest result: in types of 16 bits, and in longer ones."""


def compared(function: Callable[..., Any], call: Mapping[str, Any], only: list[str], device: str) -> dict[str, Any]:
    """Return whether both give the same result for a recorded call, and microseconds of each."""
    told = call["arguments"]
    given = {name: argument(each, lambda _, tensor: tensor["shape"], name) for name, each in told.items()}
    given = pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, given)
    positional = [value for name, value in given.items() if name not in only]
    named = {name: given[name] for name in only}
    before = counts(function)
    with torch.no_grad():
        old, new = function.__wrapped__, function  # type: ignore[attr-defined]
        found, wanted = new(*positional, **named), old(*positional, **named)
        served = counts(function) > before
        rounds = timed([lambda: old(*positional, **named), lambda: new(*positional, **named)], device)
    times = {"old_us": median(old for old, _ in rounds), "new_us": median(new for _, new in rounds)}
    won = sum(new < old for old, new in rounds)
    return {"served": served, "difference": difference(found, wanted), "is_faster": won >= WON, **times}


def counts(function: Callable[..., Any]) -> int:
    """The number of calls that the kernel has served."""
    return int(function.__globals__["COUNTS"]["kernel"])


def difference(found: Any, wanted: Any) -> str:
    """Return in words how two results differ; nothing where they are the same but for rounding."""
    mine, other = pytree.tree_flatten(found), pytree.tree_flatten(wanted)
    if mine[1] != other[1]:
        return "the structure of its result is another"
    for one, two in zip(mine[0], other[0], strict=True):
        if not isinstance(two, torch.Tensor):
            if one != two:
                return f"it returns {one!r}, not {two!r}"
            continue
        if (one.shape, one.dtype, one.device) != (two.shape, two.dtype, two.device):
            return f"it returns {one.dtype}{list(one.shape)}, not {two.dtype}{list(two.shape)}"
        if not two.numel():
            continue
        a, b = one.double(), two.double()
        finite = b.isfinite()
        if not torch.equal(a.isfinite(), finite):
            return "numbers that are not finite lie elsewhere"
        short = two.is_floating_point() and two.element_size() < 4
        largest = float((a - b)[finite].abs().max()) if bool(finite.any()) else 0.0
        size = float(b[finite].abs().max()) if bool(finite.any()) else 0.0
        if largest > (SHORT if short else LONG) * size + 1e-5:
            return f"results differ by {largest:.3g}, the largest is {size:.3g}"
    return ""


def timed(calls: list[Callable[[], Any]], device: str) -> list[list[float]]:
    """Return microseconds of a call of each, by round: they take turns."""

    def once(call: Callable[[], Any], times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / times

    for call in calls:
        once(call, 3)
    times = max(1, int(BATCH_S / max(once(calls[0], 1), 1e-7)))
    return [[1e6 * once(call, times) for call in calls] for _ in range(ROUNDS)]


def not_built() -> str:
    """Build the package's binding, and return why there is none in one line, or nothing."""
    try:
        importlib.import_module(f"{__package__}.kernel").build()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return ""


def main() -> None:
    """Compare at every recorded call."""
    module, name, result = sys.argv[1:]
    problem = not_built()
    told = json.loads((Path(__file__).parent / "put.json").read_text(encoding="utf-8"))
    function = getattr(importlib.import_module(module), name)
    found = [compared(function, call, told["keyword_only"], told["device"]) for call in told["calls"]]
    Path(result).write_text(json.dumps({"not_built": problem, "calls": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
