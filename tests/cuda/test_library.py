"""The vendor's library on a GPU, as far as no GPU is needed."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from fitness.cuda.running.driver import CudaError
from fitness.cuda.running.runner import NO_MEMORY
from fitness.cuda.session import KEPT_BYTES, KEPT_SESSIONS, RivalCode, enough_memory
from fitness.judging.device import KernelFault
from operators.errors import OperatorError
from operators.libraries import call, compiled, own

SHORT = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    OperatorError("libraries.py:9: torch.softmax() raised OutOfMemoryError: CUDA out of memory. Tried to allocate"),
    OperatorError("libraries.py:9: torch.mm() raised RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
)
OTHERS = (
    CudaError("cuMemMap", "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OperatorError("libraries.py:9: attention() raised RuntimeError: No available kernel. Aborting execution."),
)


@pytest.mark.parametrize("error", SHORT, ids=str)
def test_memory_that_a_call_lacks_may_be_the_machines_fault(error: Exception) -> None:
    with pytest.raises(KernelFault, match=NO_MEMORY), enough_memory():
        raise error


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, enough_memory():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("sessions", "held_bytes", "times"), [(3, 0, 0), (3, KEPT_BYTES + 1, 3), (KEPT_SESSIONS + 1, 0, 1)]
)
def test_compiled_code_stays_between_sessions_until_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch, sessions: int, held_bytes: int, times: int
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr("fitness.cuda.session.forget_compiled", lambda: forgotten.append(True))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held_bytes)
    code = RivalCode()
    for _ in range(sessions):
        code.opened(compiled("torch.mm"))
        code.opened(own("torch.mm"))
        code.closed()  # the other one still has memory of its own
        code.closed()
    assert len(forgotten) == times


def test_plans_of_transforms_stay_as_long_as_a_captured_call_may_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    cache = SimpleNamespace(set_size=lambda size: done.append(f"keeps {size}"), clear=lambda: done.append("clears"))
    for name in ("cupy", "cupy.fft", "cupy.fft.config"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["cupy.fft.config"], "get_plan_cache", lambda: cache, raising=False)
    code, transform = RivalCode(), call("cupy.fft.fft", lambda x: x)
    for each in (transform, own("torch.fft.fft"), transform):
        code.opened(each)
    code.closed()
    code.closed()
    assert done == ["keeps -1", "keeps -1"], "-1: without a limit"
    code.closed()
    assert done[2:] == ["clears"]
    code.opened(own("torch.fft.fft"))
    code.closed()
    assert len(done) == 3
