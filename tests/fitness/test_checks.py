"""Order of checks: what a kernel is checked on next is made beside the check of the one before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from fitness.evaluation import Status
from fitness.judging.checks import Checks
from fitness.judging.device import KernelFault


def checks_on(device: str) -> Checks:
    oracle: Any = SimpleNamespace(device=torch.device(device))
    machine: Any = SimpleNamespace(machine=lambda exclusive: nullcontext())
    return Checks(oracle, machine, np.random.default_rng(0), lambda question: [])


def test_the_next_is_made_while_one_is_checked() -> None:
    begun = [threading.Event() for _ in range(4)]
    used: list[int] = []

    def made() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    def use(number: int) -> None:
        used.append(number)
        assert number == 3 or begun[number + 1].wait(60)

    checks_on("cpu").in_turn(made(), use)
    assert used == [0, 1, 2, 3]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_nothing_is_made_any_more_when_a_check_has_failed(device: str) -> None:
    made = (number for number in range(9))
    used: list[int] = []

    def use(number: int) -> None:
        used.append(number)
        if number == 2:
            raise KernelFault(Status.WRONG, "it is wrong")

    with pytest.raises(KernelFault, match="it is wrong"):
        checks_on(device).in_turn(made, use)
    assert used == [0, 1, 2]
    assert not cast(Any, made).gi_running
    assert next(made) == (4 if device == "cpu" else 3)


def test_what_cannot_be_made_is_told_in_its_turn() -> None:
    def made() -> Iterator[int]:
        yield 1
        raise KernelFault(Status.TIMEOUT, "too late")

    used: list[int] = []
    with pytest.raises(KernelFault, match="too late"):
        checks_on("cpu").in_turn(made(), used.append)
    assert used == [1]
