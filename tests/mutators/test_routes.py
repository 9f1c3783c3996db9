"""Kernels made of two, each launched where it is the faster one: which sizes go where, and whether it still works."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutators.base import Parent, Proposal, Request
from mutators.registry import mutator
from mutators.routes import Condition, routed, separated
from operators.catalog import folders, load
from operators.definition.spec import Task
from operators.expression import parse
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import examples, some_slow
from tests.mutators.running import build_all
from tests.mutators.test_recombine import A, B, transformed

SOFTMAX = load("softmax")
NARROW = Condition("cols <= 64", "cols > 64")


def kernel(source: str, **values: int) -> Kernel:
    return Kernel("softmax", "cpu", source, values)


def route(first: Kernel, second: Kernel, faster: Sequence[str], workload_set: str = "cpu") -> Proposal:
    names = [workload.name for workload in load(first.operator).workload_set(workload_set)]
    params = {"gains": {name: 0.5 if name in faster else -0.5 for name in names}, "workload_set": workload_set}
    request = Request(Task(first.operator, "fp32", first.target), 3, "route", (first.id, second.id), 0, params)
    made = mutator("route").propose(request, (Parent(first), Parent(second)), load(first.operator))  # type: ignore[call-arg]
    assert isinstance(made, Proposal)
    return made


# --- where -------------------------------------------------------------------------------------------------------


SIZES = st.fixed_dictionaries({"m": st.integers(0, 99), "n": st.integers(0, 99)})


def holding(found: Condition | None, dims: Mapping[str, Mapping[str, int]]) -> set[str]:
    """The workloads where a condition holds; it fails on all others."""
    if found is None:
        return set()
    names = set(next(iter(dims.values())))
    holds, fails = ({w for w in dims if parse(text, names).evaluate(dims[w])} for text in (found.holds, found.fails))
    assert holds and holds.isdisjoint(fails) and holds | fails == set(dims)
    return holds


@examples(200)
@given(st.dictionaries(st.text(min_size=1), SIZES, min_size=1, max_size=7), st.data())
def test_a_condition_holds_nowhere_where_the_second_is_slower(
    dims: dict[str, dict[str, int]], data: st.DataObject
) -> None:
    gains = {w: data.draw(st.sampled_from([-0.3, 0.1, 0.7])) for w in data.draw(st.sets(st.sampled_from(sorted(dims))))}
    holds = holding(separated(dims, gains), dims)
    assert all(gains.get(w, 0.0) >= 0 for w in holds) and (not holds or any(gains.get(w, 0.0) > 0 for w in holds))
    faster, slower = ({w for w in gains if sign * gains[w] > 0} for sign in (1, -1))
    sizes = {w: math.prod(dims[w].values()) for w in dims}
    if faster and slower and max(sizes[w] for w in faster) < min(sizes[w] for w in slower):
        assert holds >= faster, "where one number tells them apart, all of the gain is had"


def test_the_threshold_lies_midway_between_the_nearest_sizes() -> None:
    dims = {name: {"rows": 4096, "cols": cols} for name, cols in (("a", 64), ("b", 256), ("c", 4096), ("d", 65536))}

    def told(**gains: float) -> Condition | None:
        return separated(dims, gains)

    assert told(a=1, b=1, c=-1, d=-1) == Condition("cols <= 1023", "cols > 1023")
    assert told(a=-1, b=-1, c=-1, d=1) == Condition("cols > 16383", "cols <= 16383")
    assert told(a=-1, b=0.1, c=-1, d=-1) == Condition("cols > 127 and cols <= 1023", "cols <= 127 or cols > 1023")
    assert told(a=0.1, b=-1, c=-1, d=0.2) == told(b=-1, c=-1, d=0.2), "the end that gains more"
    assert told(a=1, c=-1) == Condition("cols <= 511", "cols > 511"), "a size that is in doubt parts nothing"
    assert told(a=1, b=1) is None and told(a=-1) is None and told() is None


def test_a_number_of_all_dims_or_two_of_them_tell_sizes_apart() -> None:
    cubes = {f"{x},{y},{z}": {"x": x, "y": y, "z": z} for x in (64, 256) for y in (64, 256) for z in (64, 256)}
    small = {w: 0.5 if math.prod(dims.values()) <= 64 * 64 * 256 else -0.5 for w, dims in cubes.items()}
    assert separated(cubes, small) == Condition("x * y * z <= 2097151", "x * y * z > 2097151")
    corner = {w: 0.5 if dims["x"] == 64 and dims["z"] == 256 else -0.5 for w, dims in cubes.items()}
    assert holding(separated(cubes, corner), cubes) == {w for w, gain in corner.items() if gain > 0}


# --- one file of two ---------------------------------------------------------------------------------------------


def test_each_parent_runs_where_it_is_to() -> None:
    made = routed(kernel(A, ROWS=8), kernel(B, TILE=128), NARROW, SOFTMAX, "fp32")
    assert made and dict(made.values) == {"ROWS": 8, "TILE": 128}
    plan = parse_plan(made.source, SOFTMAX, "cpu")
    assert plan.tune == {"ROWS": (4, 8), "TILE": (64, 32, 128)} and not plan.deterministic
    assert [buffer.name for buffer in plan.buffers] == ["largest", "largest_2", "sums"]
    assert [launch.kernel for launch in plan.launches] == ["find_max", "scale", "find_max_2", "scale_2"]
    assert [a.text for a in plan.launches[3].args] == ["x", "y", "largest_2", "sums", "rows", "cols", "i"]
    for cols, names in ((6, ["find_max_2", "scale_2", "scale_2", "scale_2"]), (66, ["find_max", "scale"])):
        known = {"rows": 5, "cols": cols}
        steps = plan.resolve(SOFTMAX, dtype="fp32", dims=known, values=made.values, facts={"cpu_count": 2}).steps
        assert [step.kernel for step in steps] == names
        cleared = [z.name for z in plan.zero if z.when and z.when.evaluate(known)]
        assert cleared == (["sums"] if cols == 6 else [])
    demands = {(cols, plan.requires.evaluate({"rows": 1, "cols": cols})) for cols in (2, 3, 65, 66)}
    assert demands == {(2, 0), (3, 1), (65, 0), (66, 1)}, "each one's own demand, where it runs"
    assert "find_max_2(const T* x, ACC* largest_2" in made.source.replace("  ", " ")


def test_each_parent_restricts_its_own_settings() -> None:
    first = A.replace("ROWS = [4, 8]", 'where = [\n    "ROWS > 4",\n]  # no less\nROWS = [8, 4]')
    second = A.replace("ROWS = [4, 8]", 'ROWS = [4, 8]\nwhere = ["ROWS < 8"]')
    for one, conditions in ((first, ["ROWS > 4", "ROWS_2 < 8"]), (A, ["ROWS_2 < 8"])):
        made = routed(kernel(one), kernel(second), NARROW, SOFTMAX, "fp32")
        assert made and [c.expression.text for c in parse_plan(made.source, SOFTMAX, "cpu").where] == conditions


def test_names_are_changed_in_code_and_formulas_alone() -> None:
    text = B.replace(
        "struct Pair", '#define FIND "find_max of largest"\nstruct scale_of { int find_max; };\nstruct Pair'
    )
    text = text.replace("find(x, largest, r, cols)", "find(x, largest, r, cols + scale_of{1}.find_max)")
    made = routed(kernel(A), kernel(text), NARROW, SOFTMAX, "fp32")
    assert made and '"find_max of largest"' in made.source and "scale_of{1}.find_max)" in made.source


@pytest.mark.parametrize("operator", some_slow(["softmax", "matrix_mul", "spmv_csr"], 1))
def test_both_routes_compile_together_and_are_right(operator: str, tmp_path: Path) -> None:
    first, second, third = transformed(operator, "cpu", 3)
    loaded = load(operator)
    dim = next(iter(loaded.dims))
    limits = [Condition(f"{dim} <= {limit}", f"{dim} > {limit}") for limit in (20, 60)]
    once = routed(first, second, limits[0], loaded, "fp32")
    twice = once and routed(third, once, limits[1], loaded, "fp32")
    assert once and twice
    for number, made in enumerate((once, twice)):
        (tmp_path / str(number)).mkdir()
        (built,) = build_all([(made.source, made.values)], loaded, tmp_path / str(number))
        assert built.worst_error() < 1e-4


@pytest.mark.parametrize("name", some_slow(folders(), 6))
def test_every_champion_takes_the_naive_kernel_in(name: str) -> None:
    loaded = load(name)
    naive = Kernel(name, "cuda", loaded.naive("cuda"))
    dim = next(iter(loaded.dims))
    condition = Condition(f"{dim} <= 100", f"{dim} > 100")
    for path in sorted((loaded.folder / "champions").glob("*.cu")):
        dtype = "bf16" if "bf16" in path.name else "fp32"
        champion = Kernel(name, "cuda", path.read_text(encoding="utf-8"))
        made = routed(champion, naive, condition, loaded, dtype)
        assert made, path.name
        plan = parse_plan(made.source, loaded, "cuda")
        assert len(plan.launches) == sum(len(parse_plan(k.source, loaded, "cuda").launches) for k in (champion, naive))


# --- as a mutator ------------------------------------------------------------------------------------------------


def test_a_child_says_which_parent_runs_where() -> None:
    first, second = transformed("softmax", "cpu", 2)
    sizes = {w.name: w.dims["cols"] for w in SOFTMAX.workload_set("cpu")}
    smallest = min(sizes, key=lambda name: sizes[name])
    proposal = route(first, second, [smallest])
    assert proposal.kernel and proposal.description.startswith(f"{second.id[:8]} where ")
    assert route(first, second, [smallest]).kernel == proposal.kernel


@pytest.mark.parametrize(
    ("first", "second", "faster", "phrase"),
    [
        (A, A, [], "a route needs two parents that differ"),
        (A, B, [], "no size tells where the second parent is the faster one"),
        (A, "int x;", ["first"], "the two cannot be one file: line 1: there is no header"),
        ('/*! evo\nlaunch = [{kernel = "f", args = []}]\n*/\nvoid f() {}', B, ["first"], "a parent's header cannot be"),
    ],
)
def test_what_cannot_be_one_file_fails_with_a_reason(first: str, second: str, faster: list[str], phrase: str) -> None:
    sizes = {w.name: w.dims["cols"] for w in SOFTMAX.workload_set("cpu")}
    named = [min(sizes, key=lambda name: sizes[name])] if faster else []
    proposal = route(kernel(first), kernel(second), named)
    assert proposal.kernel is None and proposal.failure.startswith(phrase)
