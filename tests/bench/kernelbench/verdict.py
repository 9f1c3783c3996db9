"""KernelBench's own verdict on a `ModelNew`, by its `eval.py` and `timing.py`.

    python verdict.py CHECKOUT PROBLEM.py MODEL_NEW.py RESULT.json

The result is written anew after each step, so that what was measured stands where a limit ends the rest. Clients of
models, which KernelBench imports and does not use here, are replaced by empty modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

CLIENTS = ("openai", "litellm", "together", "anthropic", "google")
TRIALS = 100
WAYS = {
    "eager": None,
    "compile_default": "default",
    "compile_max_autotune": "max-autotune",
}


def main() -> None:
    """Entry point."""
    checkout, problem, model, out = (Path(argument) for argument in sys.argv[1:])
    sys.path.insert(0, str(checkout / "src"))
    for name in CLIENTS:
        sys.modules[name] = _empty(name)
    for name in ("dotenv", "tqdm", "requests"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = _empty(name)
    result: dict[str, Any] = {}

    def note(**more: Any) -> None:
        result.update(more)
        out.write_text(json.dumps(result, default=str))

    import torch

    evaluation, timing = (importlib.import_module(f"kernelbench.{name}") for name in ("eval", "timing"))
    text = problem.read_text()
    verdict = evaluation.eval_kernel_against_ref(
        text, model.read_text(), num_correct_trials=5, num_perf_trials=TRIALS, measure_performance=True,
        timing_method="cuda_event", verbose=False, device=torch.device("cuda:0"), backend="cuda",
        precision=torch.float32,
    )  # fmt: skip
    note(compiled=verdict.compiled, correct=verdict.correctness, ours_ms=verdict.runtime, metadata=verdict.metadata)
    torch.cuda.empty_cache()
    for way, options in WAYS.items():
        compiled = {"torch_compile_options": options} if options else {}
        stats = timing.measure_ref_program_time(
            problem.stem, text, num_trials=TRIALS, timing_method="cuda_event", device=torch.device("cuda:0"),
            precision="fp32", use_torch_compile=options is not None, **compiled,
        )  # fmt: skip
        note(**{f"{way}_ms": stats and stats["mean"]})


def _empty(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__getattr__ = _absent  # type: ignore[method-assign]
    return module


def _absent(name: str) -> type:
    if name.startswith("__"):  # `inspect` asks every module for its file
        raise AttributeError(name)
    return _Absent


class _Absent:
    """It stands for anything that an absent package would have had."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


if __name__ == "__main__":
    main()
