"""Prompts about kernels that a profiler looked at, and of a dialogue with tools: whole, as golden files."""

from __future__ import annotations

import pytest

from fitness.cuda.profiling.ncu import ADVICE
from fitness.profiling.counters import WAITS
from fitness.profiling.profiles import Bottleneck
from tests.mutators import profiled_cases as cases


@pytest.mark.parametrize("name", cases.NAMES)
def test_golden_prompts(name: str) -> None:
    for path, said in zip(reversed(cases.files(name)), reversed(cases.asked(name)), strict=False):
        golden = path.read_text(encoding="utf-8")
        assert f"{said['content']}\n" == golden, "python -m tests.mutators.profiled_cases writes them anew"


@pytest.mark.parametrize("name", cases.CLASSES)
def test_a_prompt_says_what_limits_its_kernel_and_where(name: str) -> None:
    *_, said = cases.asked(name)
    text = said["content"]
    assert f"bottleneck: {name}; {ADVICE[Bottleneck(name)]}" in text
    assert all(f"bottleneck: {other}" not in text for other in cases.CLASSES if other != name)
    line = next(line for line in text.splitlines() if "warps wait at line" in line)
    assert f"for {WAITS[cases.WAITS[name]]})" in line


def test_a_dialogue_is_told_its_limits_and_its_tools() -> None:
    system, user = cases.asked("agent")
    assert "How you work" in system["content"] and "warps wait at line" in user["content"]
