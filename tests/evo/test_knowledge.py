"""Knowledge of a task that a run gives prompts: a function of its asks and tells alone, and of nothing but what is
due."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from evo.individual import Individual
from evo.search.knowledge import FAILED_SHOWN, HELPED_SHOWN, TRIED_SHOWN, WINNERS_SHOWN, Knowledge, StoredBriefing
from fitness.evaluation import Evaluation, Level, LibraryTiming, Status, Timing
from mutators.base import Kind, Request
from operators.definition.spec import Task
from operators.kernel import Kernel

TASK = Task("axpb", "fp32", "cpu")
WORKLOADS = ("small", "large")


def kernel(name: str) -> Kernel:
    return Kernel("axpb", "cpu", f"// {name}\n")


def request(number: int, *parents: str, mutator: str = "rewrite", **changes: object) -> Request:
    named = {"model": "m", **changes}
    return Request(TASK, number, mutator, tuple(kernel(p).id for p in parents), 1, **named)  # type: ignore[arg-type]


def timed(name: str, anchor: str, logs: tuple[float, ...], *, via: float = 0.0, se: float = 0.01) -> Evaluation:
    """A correct kernel, so many times as fast as its anchor, whose own mean log speedup is `via`."""
    mean = sum(logs) / len(logs)
    timings = tuple(Timing(w, 10.0 * math.exp(-r), 10.0, r, se, 9) for w, r in zip(WORKLOADS, logs, strict=True))
    return Evaluation(
        kernel(name).id, str(TASK), Level.FULL, Status.CORRECT, log_speedup=via + mean, log_speedup_se=se,
        anchor_id=kernel(anchor).id, anchor_log_speedup=via, log_ratio=mean, log_ratio_se=se, timings=timings,
    )  # fmt: skip


def child(asked: Request, name: str, verdict: Evaluation, said: str) -> Individual:
    return Individual(asked, kernel(name), verdict, description=said)


def failing(asked: Request, name: str, said: str, message: str = "line 3: no such function") -> Individual:
    verdict = Evaluation(kernel(name).id, str(TASK), Level.SCREEN, Status.COMPILE_ERROR, message)
    return Individual(asked, kernel(name), verdict, description=said)


def begun(*, independent: bool = False) -> Knowledge:
    """The knowledge once the naive kernel was judged."""
    known = Knowledge(TASK, independent=independent)
    naive = Request(TASK, 0, "ancestor", (), 0, {"name": "naive"}, kind=Kind.ANCESTOR)
    known.told(Individual(naive, kernel("naive"), timed("naive", "naive", (0.0, 0.0))))
    return known


def asked(known: Knowledge, wanted: Request) -> StoredBriefing:
    brief = known.brief(wanted)
    assert brief
    return brief


def test_a_ratio_to_naive_goes_by_way_of_the_anchor_and_carries_both_errors() -> None:
    known = begun()
    first, second = request(1, "naive"), request(2, "a")
    known.told(child(first, "a", timed("a", "naive", (0.3, 0.5)), "vectors"))
    known.told(child(second, "b", timed("b", "a", (0.1, -0.1), via=0.4), "tiles"))
    brief = asked(known, request(3, "b"))
    standing = brief.parents[kernel("b").id]
    assert {w: round(r.log, 6) for w, r in standing.items()} == {"small": 0.4, "large": 0.4}
    assert standing["small"].se == pytest.approx(math.hypot(0.01, 0.01))
    assert brief.naive_us == {"small": 10.0, "large": 10.0}
    assert brief.best and brief.best.source[0] in (kernel("a").id, kernel("b").id)


def test_one_look_at_the_naive_kernel_in_bad_seconds_is_outweighed_by_later_ones() -> None:
    known = Knowledge(TASK)
    bad = tuple(Timing(w, 50.0, 50.0, 0.0, 0.01, 9) for w in WORKLOADS)
    naive = Request(TASK, 0, "ancestor", (), 0, {"name": "naive"}, kind=Kind.ANCESTOR)
    known.told(Individual(naive, kernel("naive"), replace(timed("naive", "naive", (0.0, 0.0)), timings=bad)))
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.3, 0.3)), "vectors"))
    known.told(child(request(2, "naive"), "b", timed("b", "naive", (0.2, 0.4)), "tiles"))
    known.told(child(request(3, "a"), "c", replace(timed("c", "a", (0.2, 0.4)), timings=bad), "loops"))
    assert asked(known, request(4, "a")).naive_us == {"small": 10.0, "large": 10.0}


def test_an_anchor_that_is_not_known_leaves_a_gap_and_no_guess() -> None:
    known = begun()
    known.told(child(request(1, "naive"), "b", timed("b", "stranger", (0.1, 0.1), via=0.4), "tiles"))
    assert asked(known, request(2, "b")).parents == {kernel("b").id: {}}


def test_the_library_is_placed_by_the_kernel_that_it_was_timed_beside() -> None:
    known = begun()
    beside = tuple(LibraryTiming(w, 10.0, 20.0, 0.7, 0.02, 9) for w in WORKLOADS)
    verdict = replace(timed("a", "naive", (1.0, 1.4)), library_timings=beside, level=Level.CONFIRMED)
    known.told(child(request(1, "naive"), "a", verdict, "vectors"))
    library = asked(known, request(2, "a")).library
    assert {w: round(r.log, 6) for w, r in library.items()} == {"small": 0.3, "large": 0.7}
    lost = replace(timed("b", "stranger", (1.0, 1.4), via=0.4), library_timings=beside, level=Level.CONFIRMED)
    known.told(child(request(3, "naive"), "b", lost, "tiles"))
    assert asked(known, request(4, "a")).library == library, "what has no standing places nothing, and takes nothing"


def test_a_gain_of_what_was_raced_out_has_its_anchors_error_too() -> None:
    known = begun()
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.3, 0.3), se=0.05), "vectors"))
    known.told(child(request(2, "naive"), "b", timed("b", "naive", (0.2, 0.2), se=0.02), "tiles"))
    slower = replace(
        timed("c", "a", (-0.2, -0.2), via=0.3), status=Status.SLOWER, log_speedup=None, log_speedup_se=None
    )
    known.told(child(request(3, "b"), "c", slower, "loops"))
    gain = asked(known, request(4, "b")).tried[-1].gain
    assert gain and gain.log == pytest.approx(-0.1)
    assert gain.se == pytest.approx(math.hypot(0.01, 0.05, 0.02))


def test_what_helped_is_not_told_as_a_failure_too() -> None:
    known = begun()
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.3, 0.3)), "vectors"))
    known.told(failing(request(2, "a"), "b", "vectors"))
    known.told(failing(request(3, "a"), "c", "tiles"))
    brief = asked(known, request(4, "d"))
    assert [a.description for a in brief.helped] == ["vectors"]
    assert [a.description for a in brief.failed] == ["tiles"]


def test_only_the_latest_questions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.search.knowledge.REMEMBERED", 3)
    known = begun()
    for number in range(1, 50):
        asked(known, request(number, "naive", thread=f"s/{number}"))
    assert len(known._asked) == 3
    assert [asked(known, request(n, "naive", thread="s/49")).asked_before for n in (50, 51)] == [1, 2]


def test_what_was_tried_on_the_task_is_told_with_its_outcome() -> None:
    known = begun()
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.5, 0.5)), "vectors"))
    known.told(child(request(2, "naive"), "b", timed("b", "naive", (0.0, 0.005)), "prefetch"))
    known.told(failing(request(3, "naive"), "c", "AVX-512"))
    known.told(Individual(request(4, "naive"), failure="m gave no kernel"))
    known.told(Individual(request(5, "naive"), failure="out of reach", unavailable=True))
    brief = asked(known, request(6, "a"))
    assert [attempt.description for attempt in brief.helped] == ["vectors"]
    assert [attempt.description for attempt in brief.fruitless] == ["prefetch"]
    assert not brief.fruitless[0].gain or not brief.fruitless[0].gain.resolved
    assert [(a.description, a.message) for a in brief.failed] == [
        ("AVX-512", "line 3: no such function"), ("rewrite", "m gave no kernel"),
    ]  # fmt: skip
    here = asked(known, request(7, "naive"))
    assert [attempt.description for attempt in here.tried] == ["vectors", "prefetch", "AVX-512", "rewrite"]
    assert not here.failed and not here.fruitless, "what was tried on the parent is told once"


def test_transforms_are_lessons_only_where_they_helped() -> None:
    known = begun()
    known.told(failing(request(1, "naive", mutator="transform", model=""), "a", "unroll"))
    faster = request(2, "naive", mutator="transform", model="")
    known.told(child(faster, "b", timed("b", "naive", (0.2, 0.2)), "tile"))
    known.told(Individual(request(4, "naive", mutator="transform", model=""), failure="it applies nowhere"))
    assert len(asked(known, request(5, "naive")).tried) == 2
    brief = asked(known, request(3, "b"))
    assert not brief.failed and [attempt.description for attempt in brief.helped] == ["tile"]


def test_a_program_that_was_known_is_told_as_one() -> None:
    known = begun()
    same = Evaluation(
        kernel("b").id, str(TASK), Level.SCREEN, Status.DUPLICATE, duplicate_of=kernel("a").id,
        inherited=Status.SLOWER,
    )  # fmt: skip
    known.told(child(request(1, "naive"), "b", same, "again"))
    (attempt,) = asked(known, request(2, "naive")).tried
    assert attempt.status == "duplicate" and "a program that was known" in attempt.message


def test_the_same_question_is_never_asked_in_the_same_words() -> None:
    known = begun()
    briefs = [asked(known, request(number, "naive")) for number in range(1, 5)]
    assert [brief.asked_before for brief in briefs] == [0, 1, 2, 3]
    assert [brief.open_here for brief in briefs] == [0, 1, 2, 3]
    known.told(Individual(request(2, "naive"), unavailable=True))  # nothing is learnt, and number 5 still differs
    assert asked(known, request(5, "naive")).asked_before == 4
    other = asked(known, request(6, "naive", mutator="refine"))
    assert other.asked_before == 0 and other.open_here == 4


def test_kernels_that_win_on_some_workload_are_shown_but_not_the_parents() -> None:
    known = begun()
    for number, (name, logs) in enumerate({"a": (0.9, 0.1), "b": (0.2, 0.8), "c": (0.3, 0.3)}.items(), 1):
        known.told(child(request(number, "naive"), name, timed(name, "naive", logs), name))
    won = {each.source[0]: wins for each, wins in asked(known, request(9, "c")).winners}
    assert won == {kernel("a").id: ("small",), kernel("b").id: ("large",)}
    assert [each.source[0] for each, _ in asked(known, request(10, "a")).winners] == [kernel("b").id]


def test_attempts_of_independent_strategies_hear_nothing_of_each_other() -> None:
    known = begun(independent=True)
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.5, 0.5)), "vectors"))
    known.told(failing(request(2, "naive"), "c", "AVX-512"))
    brief = asked(known, request(3, "naive"))
    assert not (brief.tried or brief.helped or brief.failed or brief.winners or brief.best or brief.open_here)
    assert brief.naive_us and asked(known, request(4, "naive")).asked_before == 1


def test_lessons_of_siblings_say_where_they_were_learnt() -> None:
    known, other = begun(), Knowledge(Task("relu", "fp32", "cpu"))
    known.told(child(request(1, "naive"), "a", timed("a", "naive", (0.5, 0.5)), "vectors"))
    other.siblings = [known]
    (attempt,) = asked(other, request(1, "naive")).helped
    assert attempt.description == "vectors" and attempt.task == str(TASK)


def test_nothing_is_made_for_mutators_without_models() -> None:
    known = begun()
    assert known.brief(request(2, "naive", mutator="transform", model="")) is None


def test_what_parents_and_anchors_need_is_kept_and_the_rest_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.search.knowledge.REMEMBERED", 10)
    known = begun()
    for name in ("parent", "anchor", "neither"):
        known.told(child(request(1, "naive"), name, timed(name, "naive", (0.5, 0.5)), name))
    for number in range(2, 30):
        asked(known, request(number, "parent"))
        verdict = timed(f"k{number}", "anchor", (0.1, 0.1), via=0.5)
        known.told(child(request(number, "parent"), f"k{number}", verdict, "more"))
    parents = asked(known, request(99, "parent", "k29", "neither")).parents
    assert set(parents) == {kernel("parent").id, kernel("k29").id}
    assert parents[kernel("k29").id]["small"].log == pytest.approx(0.6)


def test_a_briefing_stays_short_whatever_lies_behind_it() -> None:
    known = begun()
    for number in range(1, 2000):
        said = f"idea {number}"
        if number % 3:
            verdict = timed(f"k{number}", "naive", (0.01 * (number % 40), 0.02 * (number % 50)))
            known.told(child(request(number, "naive"), f"k{number}", verdict, said))
        else:
            known.told(failing(request(number, "naive"), f"k{number}", said))
    brief = asked(known, request(5000, "naive"))
    assert len(brief.tried) <= 2 * TRIED_SHOWN and len(brief.helped) == HELPED_SHOWN
    assert len(asked(known, request(5001, "k1")).failed) == FAILED_SHOWN and len(brief.winners) <= WINNERS_SHOWN
    gains = [attempt.gain.log for attempt in brief.helped if attempt.gain]
    assert gains == sorted(gains, reverse=True)
