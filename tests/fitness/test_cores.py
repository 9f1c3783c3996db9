"""Groups of cores: disjoint, of the size asked for, one spared where there are enough; and what is told of caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.workers.worker import worker_cores
from fitness.cpu import cores as cores_of
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


def test_caches_of_a_machine_that_tells_no_sizes_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many on Arm have no `size`."""
    for number, (level, kind) in enumerate((("1", "Data"), ("1", "Instruction"), ("2", "Unified"))):
        index = tmp_path / f"index{number}"
        index.mkdir()
        (index / "level").write_text(f"{level}\n")
        (index / "type").write_text(f"{kind}\n")
    monkeypatch.setattr(cores_of, "CACHES", tmp_path)
    told = cores_of.device_info(1)
    assert told.facts["l2_bytes"] == 1 << 20 and not any("caches" in line for line in told.details)
    (tmp_path / "index0" / "size").write_text("48K\n")
    (tmp_path / "index2" / "size").write_text("2048K\n")
    told = cores_of.device_info(1)
    assert told.facts["l2_bytes"] == 2 << 20 and told.details[-1] == "caches: L1 48 KiB, L2 2048 KiB"
