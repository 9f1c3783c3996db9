"""The comparisons of native/checks.cpp for tensors on a GPU: same questions, same answers."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from pathlib import Path

import torch

from fitness.cuda.compile.nvrtc import Job, compile_here
from fitness.cuda.running.driver import call, device_facts, driver
from fitness.cuda.running.launcher import Arguments
from fitness.cuda.running.launching import pointer
from fitness.oracle.compare import Bound, Comparisons, Judgement, compare_by

CHUNK = 1 << 24
"""Elements that are looked at in one go, so that temporaries stay small beside the tensors."""
JUDGE = Path(__file__).with_name("judge.cu")
THREADS, MOST_BLOCKS, SUMS = 256, 1024, 5
"""As judge.cu has them; enough blocks to fill any GPU."""
TYPES = {torch.float32: "judge<float>", torch.float64: "judge<double>", torch.bfloat16: "judge<unsigned short>"}
"""What judge.cu reads as it is."""


def judge(y: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> Judgement:
    """What `fitness.oracle.compare.judge` says of flat tensors on one GPU."""
    if not y.numel() == expected.numel() == allowed.numel():
        raise ValueError(f"{y.numel()} values against {expected.numel()} answers and {allowed.numel()} bounds")
    if not y.numel():
        return Judgement(0.0, 0.0, 0, None, 0)
    return _on_gpu(y.device.index).judge(y, expected, allowed)


class _Kernels:
    """judge.cu on one GPU, in the context and the stream of torch."""

    def __init__(self, ordinal: int) -> None:
        facts = device_facts(ordinal)
        call("CtxSetCurrent", call("DevicePrimaryCtxRetain", call("DeviceGet", ordinal)))
        made = compile_here(judge_job(facts.arch))
        if not made.cubin:
            raise RuntimeError(f"{JUDGE.name} does not compile: {made.log[:2000]}")
        module = call("ModuleLoadData", made.cubin)
        self._functions = {
            dtype: call("ModuleGetFunction", module, made.lowered[name].encode()) for dtype, name in TYPES.items()
        }
        self._parts = torch.empty(MOST_BLOCKS, SUMS, dtype=torch.float64, device=f"cuda:{ordinal}")
        self._ticket = torch.zeros(1, dtype=torch.int32, device=f"cuda:{ordinal}")
        self._result = torch.empty(SUMS, dtype=torch.float64, device=f"cuda:{ordinal}")
        self._outputs = [pointer(t.data_ptr()) for t in (self._parts, self._ticket, self._result)]
        self._arguments = Arguments([bytes(8)] * 7)

    def judge(self, y: torch.Tensor, expected: torch.Tensor, allowed: torch.Tensor) -> Judgement:
        """Of at least one element."""
        tensors = [t.contiguous() for t in (y if y.dtype in TYPES else y.double(), expected, allowed)]
        count = y.numel()
        sizes = min(-(-count // THREADS), MOST_BLOCKS), 1, 1, THREADS, 1, 1, 0
        values = [*(pointer(t.data_ptr()) for t in tensors), struct.pack("<q", count), *self._outputs]
        stream = driver().CUstream(torch.cuda.current_stream(y.device).cuda_stream)
        call("LaunchKernel", self._functions[tensors[0].dtype], *sizes, stream, self._arguments.placed(values), 0)
        largest, squares, bad, first, changes = self._result.tolist()
        return Judgement(
            largest,
            math.sqrt(squares / count),
            int(bad),
            int(first) if bad else None,
            int(min(2 * changes + 1, count)),
        )


_on_gpu = lru_cache(_Kernels)


def judge_job(arch: str) -> Job:
    """What the compiler is to make of judge.cu."""
    return Job(JUDGE.read_text(encoding="utf-8"), tuple(TYPES.values()), arch, ())


def bound(
    y: torch.Tensor,
    s: torch.Tensor,
    rounding: float,
    growth: float,
    eta: float,
    y_limit: float,
    s_limit: float,
    usual_rounding: float,
    usual_growth: float,
) -> Bound:
    """What `fitness.oracle.compare.bound` says of flat tensors in fp64."""
    if y.numel() != s.numel():
        raise ValueError(f"{y.numel()} values and {s.numel()} magnitudes")
    allowed = torch.empty_like(y)
    sums = torch.zeros(2, dtype=torch.float64, device=y.device)
    for begin in range(0, y.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        value, size, total = y[part], y[part].abs(), s[part].abs()
        most = rounding * size + growth * total + eta
        overflows = ~((size <= y_limit) & (total <= s_limit))
        allowed[part] = torch.where(overflows, torch.where(value.isfinite(), math.inf, 0.0), most)
        least = torch.where(overflows, 0.0, usual_rounding * size / most)
        usual = torch.where(overflows, 0.0, (usual_rounding * size + usual_growth * total) / most)
        sums += torch.stack((least.square().sum(), usual.square().sum()))
    least_rms, usual_rms = (sums / max(y.numel(), 1)).sqrt().tolist()
    return Bound(allowed, least_rms, usual_rms)


compare_by(torch.Tensor, Comparisons(judge, bound))
