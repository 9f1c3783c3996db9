"""Races of cpu kernels are seen whether they strike or not, and what orders threads is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitness.cpu.races import Found, audited
from fitness.cpu.target import CpuFitness
from fitness.evaluation import Rejection, Status
from fitness.judging.device import KernelFault
from fitness.judging.shapes import varied
from operators.definition.spec import Workload
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.redteam.arena import Arena, Secret

REDTEAM = Path(__file__).parents[1] / "redteam"
RACES = {
    "critical_two_names": "sum += mine", "atomic_on_one_side": "sum += mine", "sum_without_reduction": "sum += mine",
    "neighbour_without_wait": "y[i]", "neighbour_is_first": "y[", "shared_accumulator": "sum = sum +",
}  # fmt: skip
"""Canaries that pass by luck, with what stands in the lines that race."""
ORDERED = (
    "axpb_copyprivate", "axpb_dynamic", "axpb_handed_over", "axpb_sections", "axpb_tasks", "axpb_two_phases",
    "dot_product_atomic", "dot_product_critical", "dot_product_reduction", "dot_product_tasks", "prefix_sum_two_levels",
    "softmax_pairwise", "spmm_csr_nested", "spmv_csr_by_entries",
)  # fmt: skip
"""Honest kernels with threads: atomics on both sides, reductions, locks, barriers, flags, tasks."""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("build"), Secret.planted(tmp_path_factory.mktemp("secret"), "none")) as made:
        yield made


def watched(arena: Arena, source: str, operator: str) -> dict[str, str]:
    stage: CpuFitness = arena.stage(operator)
    prepared = stage.device.prepare(Kernel(operator, "cpu", source))
    assert not isinstance(prepared, Rejection), prepared
    return dict(stage.device.audit(prepared)())


def named(source: str) -> str:
    return source.partition('operator = "')[2].partition('"')[0]


@pytest.mark.parametrize("name", some_slow(RACES, 1))
def test_a_race_is_seen_and_its_lines_are_told(arena: Arena, name: str) -> None:
    source = (REDTEAM / "canaries" / "races" / f"{name}.cpp").read_text()
    with pytest.raises(KernelFault, match="its threads race") as fault:
        watched(arena, source, named(source))
    assert fault.value.rejection.status is Status.WRONG
    lines = re.findall(r"line (\d+) (?:reads|writes)", fault.value.rejection.message)
    assert len(lines) == 2
    assert all(RACES[name] in source.splitlines()[int(line) - 1] for line in lines)


@pytest.mark.parametrize("name", some_slow(ORDERED, 1))
def test_what_orders_threads_is_known(arena: Arena, name: str) -> None:
    source = (REDTEAM / "right" / f"{name}.cpp").read_text()
    assert watched(arena, source, named(source))["races"].startswith("none found on ")


LAUNCH = '/*! evo\n[[launch]]\nkernel = "axpb"\nargs = ["x", "b", "y", "alpha", "n"]\n*/\n'
AXPB = LAUNCH + 'extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {{\n{}\n'
EACH = "    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];\n}"


def test_a_kernel_without_threads_needs_no_watch(arena: Arena) -> None:
    assert watched(arena, AXPB.format(EACH), "axpb") == {"races": "none possible: it has one thread"}


def test_what_is_not_known_to_order_threads_is_said(arena: Arena) -> None:
    loop = "#pragma omp parallel\n#pragma omp single\n#pragma omp taskloop\n"
    assert watched(arena, AXPB.format(loop + EACH), "axpb") == {"races": "not looked for: it uses GOMP_taskloop"}


def test_a_lack_is_no_verdict_and_a_race_is() -> None:
    assert audited(Found(), "7 shapes") == {"races": "none found on 7 shapes"}
    assert audited(Found(lack="no reason"), "7 shapes") == {"races": "not looked for: no reason"}
    with pytest.raises(KernelFault, match=r"they race \(seen on 7 shapes\)"):
        audited(Found(race="they race"), "7 shapes")


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_of_each_dim_the_shape_where_it_is_largest_is_watched(most: int) -> None:
    """A kernel that takes threads for wide rows alone is not seen on shapes that are large by their rows."""
    sizes = [(1, 1), (3, 17), (2039, 1), (257, 17), (1, 8191), (24, 1000), (4099, 7), (32, 1056), (400, 100)]
    ordered = [Workload("hidden", {"rows": rows, "cols": cols}) for rows, cols in sizes]
    found = varied(ordered, most)
    assert len(found) == most and found == [workload for workload in ordered if workload in found]
    assert {workload.name for workload in found} >= set(("rows=4099,cols=7", "rows=1,cols=8191")[:most])
    assert varied(ordered[:1], most) == ordered[:1]
