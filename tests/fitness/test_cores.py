"""Groups of cores: disjoint, of the size asked for, one core spared where there are enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evo.worker import worker_cores
from fitness.cpu.cores import groups


def test_two_cores_time_together_and_twelve_spare_one() -> None:
    assert groups(0, [0, 1]) == [(0, 1)]
    assert groups(0, range(12)) == [tuple(range(1, 12))]
    assert groups(4, range(12)) == [(1, 2, 3, 4), (5, 6, 7, 8)]
    assert groups(1, [0, 1]) == [(1,)]
    assert groups(8, [3, 5]) == [(3, 5)]


@given(threads=st.integers(0, 70), available=st.sets(st.integers(0, 300), min_size=1, max_size=64))
def test_groups_are_disjoint_equal_and_available(threads: int, available: set[int]) -> None:
    found = groups(threads, sorted(available))
    assert found
    cores = [core for group in found for core in group]
    assert len(cores) == len(set(cores))
    assert set(cores) <= available
    assert len({len(group) for group in found}) == 1
    assert threads == 0 or len(found[0]) == min(threads, max(len(available) - (threads < len(available)), 1))


def test_workers_share_groups_evenly() -> None:
    assert worker_cores(0, 0, {0, 1}) == [(0, 1), (0, 1)]
    assert worker_cores(0, 0, {0}) == [(0,)]
    assert worker_cores(0, 2, set(range(6))) == [(1, 2), (3, 4)] * 2
    assert worker_cores(3, 2, set(range(6))) == [(1, 2), (3, 4), (1, 2)]
