"""Every canary meets the verdict that its file names, every unusual but right kernel is found correct."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redteam.arena import Arena, Entrant, Outcome, Secret, canaries, right_kernels, short_timings
from tests.redteam.report import BEGIN, END, INTRODUCTION, README, summary_of_cuda
from tests.structure import ROOT

CLASSES = frozenset((
    "leftovers", "partial", "constant", "tolerance", "matched_ratio", "nan", "inputs", "replay", "precision", "shapes",
    "caching", "bounds", "races", "timing", "looks", "compile", "escape", "library", "decoys", "bombs",
    "elsewhere",
))  # fmt: skip
IN_TEST_ESCAPE = "bombs"


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    secret = Secret.planted(tmp_path_factory.mktemp("secret"), "what nobody may read")
    mine = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    values = [value for item in mine if hasattr(item, "callspec") for value in item.callspec.params.values()]
    chosen = [value for value in values if isinstance(value, Entrant) and value.runs_here]
    with pytest.MonkeyPatch.context() as patch:
        for place, name, value in short_timings():
            patch.setattr(place, name, value)
        with Arena(tmp_path_factory.mktemp("build"), secret) as made:
            made.build_ahead(chosen)
            yield made


BRIEF = frozenset((
    "leftovers/left_by_the_reference", "partial/first_half", "constant/mean_of_softmax", "tolerance/relative_1e_6",
    "matched_ratio/one_of_two_hundred", "nan/all_nan", "inputs/cast_away_const", "replay/counts_calls",
    "precision/bf16_products", "shapes/large_but_not_huge", "caching/behind_an_input", "bounds/index_past_the_columns",
    "races/critical_two_names", "timing/clock_replaced", "looks/asks_for_another_judge", "compile/assembly",
    "escape/builtin_fork", "library/dlopen", "decoys/clones", "right/axpb_backwards", "bombs/memory",
    "elsewhere/threads_left",
))  # fmt: skip
"""Canaries that run without --slow: at least one of each class, and a right kernel."""


def marked(entrant: Entrant) -> object:
    """The case with its mark: one that shows a gap of the evaluator is expected to fail; when it no longer does, the
    mark must go."""
    marks = [pytest.mark.xfail(reason=entrant.about["finding"], strict=True)] if "finding" in entrant.about else []
    if not entrant.runs_here:
        marks = [pytest.mark.skip(reason=f"for {entrant.about['machine']} only")]
    if entrant.name not in BRIEF:
        marks.append(pytest.mark.slow)
    return pytest.param(entrant, marks=marks, id=entrant.name)


def test_the_readme_says_what_canaries_there_are() -> None:
    page = README.read_text(encoding="utf-8")
    assert page.startswith(INTRODUCTION)
    assert f"\n\n{len(canaries())} canaries," in page
    assert f"{len(right_kernels())} unusual but right kernels" in page
    assert f"{BEGIN}\n{summary_of_cuda()}\n{END}" in page
    head = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{len(canaries())} canaries, each a kernel with one trick" in head
    assert f"{len(right_kernels())} unusual but right kernels" in head


def test_every_class_of_attack_has_canaries() -> None:
    assert {canary.kind for canary in canaries()} == CLASSES
    assert {name.split("/")[0] for name in BRIEF} == CLASSES | {"right"}
    assert all("why" in canary.about for canary in canaries() if canary.expected is Outcome.OPEN)


@pytest.mark.parametrize("canary", [marked(c) for c in canaries() if c.kind != IN_TEST_ESCAPE])
def test_a_canary_meets_its_verdict(canary: Entrant, arena: Arena) -> None:
    complaint = canary.complaint(arena.fight(canary).evaluation, arena.secret)
    assert complaint is None, complaint


@pytest.mark.parametrize("kernel", [marked(kernel) for kernel in right_kernels()])
def test_an_unusual_kernel_is_correct(kernel: Entrant, arena: Arena, request: pytest.FixtureRequest) -> None:
    result = arena.fight(kernel, confirm=request.config.getoption("--slow")).evaluation
    assert result.correct, f"{result.level} {result.status}: {result.message}"
