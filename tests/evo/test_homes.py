"""Homes of tasks: which worker a job waits for, and when another one takes the task over."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from evo.workers.dispatch import FURTHER, MOVING_S, Homes, Key, Waiting, WaitingJobs
from evo.workers.jobs import Build, Screen
from evo.workers.worker import RunContext, WorkerSpec
from fitness.judging.base import Anchor
from operators.definition.spec import Task
from operators.kernel import Kernel

RUN = RunContext((("softmax", "softmax"),), "cpu", "build")
KERNEL = Kernel("softmax", "cuda", "")
JUDGE = WorkerSpec("build", compiles=False)


def key(name: str) -> Key:
    return RUN, Task(name, "fp32", "cuda")


def screening(key: Key) -> Screen:
    return Screen(key[1], KERNEL, Anchor(KERNEL, 0.0, 0.0), race=False)


A, B, C = (key(name) for name in "abc")


def at_home(*homes: tuple[Key, str], moving_s: float = 4.0, usual_s: float = 1.0) -> Homes[str]:
    made: Homes[str] = Homes()
    for task, worker in homes:
        made.settle(task, worker, alone=True)
        made.took(task, worker, moving_s)
        made.took(task, worker, usual_s)
    return made


def served(homes: Homes[str], jobs: list[Key], workers: list[str]) -> list[list[Key]]:
    """The tasks of the jobs that each worker took, each in turn until there is none for it."""

    async def session() -> list[list[Key]]:
        waiting = WaitingJobs(homes)
        all_jobs = [waiting.add(screening(job), RUN, "") for job in jobs]
        taken: list[list[Key]] = []
        for worker in workers:
            before = {id(job) for job in all_jobs if job.turn.done()}
            waiting.serve(JUDGE, worker)
            taken.append([job.key for job in all_jobs if job.turn.done() and id(job) not in before])
        return taken

    return asyncio.run(session())


def test_a_task_waits_for_its_worker_although_another_one_is_free() -> None:
    homes = at_home((A, "one"), (B, "two"))
    assert served(homes, [A, A], ["two", "one", "one"]) == [[], [A], [A]]
    assert homes.of(A) == ["one"]


def test_a_new_task_moves_in_with_whoever_is_free() -> None:
    homes = at_home((A, "one"))
    assert served(homes, [A, C], ["two"]) == [[C]]
    assert homes.of(C) == ["two"]
    assert [homes.count(worker) for worker in ("one", "two")] == [1, 1]


def test_a_task_is_taken_over_when_its_worker_is_further_behind_than_moving_in_takes() -> None:
    homes = at_home((A, "one"), (B, "one"), moving_s=2.5, usual_s=1.0)
    assert served(homes, [A, B], ["two"]) == [[]]
    assert served(homes, [A, B, B], ["two"]) == [[B]]  # the worker is three seconds behind with both tasks
    assert homes.of(B) == ["one", "two"], "there is work for both"
    homes = at_home((A, "one"), (B, "one"), moving_s=2.5, usual_s=3.0)
    assert served(homes, [A, B], ["two"]) in ([[A]], [[B]])
    assert homes.count("one") == homes.count("two") == 1


def test_a_worker_stays_with_a_task_while_jobs_of_it_wait() -> None:
    homes = at_home((A, "one"), (B, "one"))
    assert served(homes, [A, B, A, B], ["one"] * 4) == [[A], [A], [B], [B]]


def test_before_anything_is_known_of_a_task_a_few_jobs_may_wait() -> None:
    homes: Homes[str] = Homes()
    homes.settle(A, "one", alone=True)
    few = int(1 / FURTHER)
    assert MOVING_S > 0
    assert served(homes, [A] * few, ["two"]) == [[]]
    assert served(homes, [A] * (few + 1), ["two"]) == [[A]]


def test_builds_go_anywhere_and_a_worker_that_is_gone_is_nobodys_home() -> None:
    async def session() -> None:
        homes = at_home((A, "one"))
        waiting = WaitingJobs(homes)
        waiting.add(Build(A[1], KERNEL), RUN, "")
        assert waiting.serve(WorkerSpec("build"), "two")
        waiting.add(screening(A), RUN, "")
        assert not waiting.serve(JUDGE, "two")
        homes.leave("one")
        assert waiting.serve(JUDGE, "two")
        assert homes.of(A) == ["two"]
        homes.end(RUN)
        assert not homes.of(A)

    asyncio.run(session())


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.floats(0, 10)), max_size=20),
    st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=20),
    st.lists(st.sampled_from(["one", "two"]), max_size=6),
)
@settings(deadline=None)
def test_no_job_waits_for_ever(history: list[tuple[Key, float]], jobs: list[Key], gone: list[str]) -> None:
    async def session() -> None:
        homes: Homes[str] = Homes()
        waiting = WaitingJobs(homes)
        for number, (task, seconds) in enumerate(history):
            worker = ("one", "two", "three")[number % 3]
            homes.settle(task, worker, alone=number % 2 == 0)
            homes.took(task, worker, seconds)
        for worker in gone:
            homes.leave(worker)
        all_jobs: list[Waiting[str]] = [waiting.add(screening(job), RUN, "") for job in jobs]
        for _ in jobs:
            for worker in ("one", "two", "three"):
                waiting.serve(JUDGE, worker)
        assert all(job.turn.done() for job in all_jobs)

    asyncio.run(session())


def test_a_task_leaves_a_worker_that_hangs_and_none_that_is_as_quick_as_usual() -> None:
    homes = at_home((A, "one"), (B, "one"), (C, "two"), moving_s=4.0, usual_s=1.0)
    homes.begins(A, "one", 100.0)
    assert homes.most_behind([B], 100.5) is None
    assert homes.most_behind([B], 102.0) is None
    assert homes.most_behind([B], 104.0) == B
    homes.ends("one")
    assert homes.most_behind([B], 104.0) is None


def test_what_a_worker_was_at_is_forgotten_with_it() -> None:
    homes = at_home((A, "one"), (B, "one"))
    homes.begins(A, "one", 0.0)
    homes.leave("one")
    homes.settle(B, "one", alone=True)
    assert homes.most_behind([B], 1000.0) is None
