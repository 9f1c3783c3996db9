"""Tricks that have to run to be found out, against the real evaluator; those that are refused need no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fitness.base import Anchor
from fitness.evaluation import Evaluation, Status
from fitness.levels import judge
from fitness.targets import fitness
from operators.catalog import load
from operators.kernel import Kernel
from operators.spec import Task
from tests.gpu.canaries import CANARIES, gelu

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    made = fitness(load("gelu"), Task("gelu", "fp32", "cuda"), workload_set="cpu", folder=tmp_path_factory.mktemp("b"))
    yield made
    made.close()


def judged(stage, source: str) -> Evaluation:  # type: ignore[no-untyped-def]
    """The last level reached; a kernel that passes everything is confirmed."""
    kernel = Kernel("gelu", "cuda", source)
    built = stage.build(kernel)
    if isinstance(built, Evaluation):
        return built
    return judge(stage, kernel, Anchor(stage.baseline, 0.0, 0.0), race=False, best=None)[-1]


@pytest.mark.parametrize("name", sorted(name for name, canary in CANARIES.items() if not canary.structural))
def test_it_is_found_out(stage, name: str) -> None:  # type: ignore[no-untyped-def]
    found = judged(stage, CANARIES[name].source)
    assert found.verdict not in (Status.CORRECT, Status.INVALID, Status.COMPILE_ERROR), (found.status, found.message)
    assert re.search(CANARIES[name].says, found.message), found.message


def test_what_they_are_made_of_is_right(stage) -> None:  # type: ignore[no-untyped-def]
    found = judged(stage, gelu("y[i] = store(right);"))
    assert found.status is Status.CORRECT, found.message
