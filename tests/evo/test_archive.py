"""Archives: who gets in, who stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evo.strategies.population import MARGIN, AddStatus, Archive, Elite
from operators.kernel import Kernel


def elite(log_speedup: float, cell: str = "a", name: str = "") -> Elite:
    return Elite(Kernel("op", "cpu", name or str(log_speedup)), (cell,), log_speedup, 0.0)


def test_an_empty_cell_takes_any_correct_kernel() -> None:
    archive = Archive()
    assert archive.add(elite(-3.0), comparison_se=1.0) is AddStatus.NEW
    assert archive.add(elite(-5.0, "b"), comparison_se=1.0) is AddStatus.NEW
    assert len(archive) == 2


def test_an_elite_gives_way_only_to_a_clear_improvement() -> None:
    archive = Archive()
    archive.add(elite(0.5), comparison_se=0.0)
    assert not archive.add(elite(0.5 + MARGIN / 2), comparison_se=0.0)
    assert not archive.add(elite(0.6), comparison_se=0.2)
    assert archive.add(elite(0.6), comparison_se=0.02) is AddStatus.IMPROVED
    assert archive.best == elite(0.6)


@given(st.lists(st.tuples(st.floats(-3, 3), st.sampled_from("abc")), max_size=30))
def test_every_cell_holds_nearly_the_best_it_was_offered(offers: list[tuple[float, str]]) -> None:
    archive = Archive()
    for log_speedup, cell in offers:
        archive.add(elite(log_speedup, cell), comparison_se=0.0)
    for cell in {c for _, c in offers}:
        best = max(s for s, c in offers if c == cell)
        kept = archive.get((cell,))
        assert kept is not None
        assert best - kept.log_speedup <= MARGIN
    ranked = [e.log_speedup for e in archive.ranked()]
    assert ranked == sorted(ranked, reverse=True)
