"""A look at a draft: small shapes, the routes of large ones, other settings, and what counts as a fault."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.emulator import look
from fitness.emulator.look import OWN, Likeness, Routes, looked_at, missing, shrunk
from fitness.emulator.target import FACTS
from fitness.evaluation import Status
from fitness.judging.base import Checked
from operators.catalog import load
from operators.definition.spec import Operator, Workload
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import examples, some_slow

GPU = {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 227 << 10, "l2_bytes": 50 << 20}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left out on a busy machine."""
    for name in ("LOOK_S", "WALK_S", "QUICK_S", "CONTROL_S"):
        monkeypatch.setattr(look, name, 600.0)
    monkeypatch.setattr(look, "SEARCH_S", 600.0)


def edited(source: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in source
        source = source.replace(old, new, 1)
    return source


def test_a_look_at_a_kernel_tells_its_own_faults_from_what_only_a_gpu_can_show(
    axpb: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = axpb.ancestor("naive", "cuda").read_text(encoding="utf-8")

    def at(text: str) -> Checked:
        return looked_at(Kernel("axpb", "cuda", text), axpb, "fp32")

    sound = at(source)
    assert (sound.rejection, sound.lack) == (None, "") and sound.errors
    off = at(edited(source, ("i < n", "i < n - 1")))
    assert off.rejection and off.rejection.status is Status.WRONG
    for unknown in ("#include <mma.h>\n", "__device__ auto f() { return __nothing_of_ours(); }\n"):
        unseen = at(edited(source, ('extern "C"', f'{unknown}extern "C"')))
        assert unseen.rejection is None and unseen.lack
    monkeypatch.setattr(look, "LOOK_S", 1.0)
    endless = at(edited(source, ("if (i < n)", "while (n > 1) ((volatile T*)y)[0] = alpha; if (i < n)")))
    assert endless.rejection is None and "long" in endless.lack


TWO_ROUTES = """/*! evo
[tune]
BLOCK = [128, 64, 256]
EACH = [2, 1, 4]

[[launch]]
kernel = "plain"
when = "n < 64 * 1024"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "b", "y", "alpha", "n"]

[[launch]]
kernel = "wide"
when = "n >= 64 * 1024"
grid = ["min(ceil_div(n, BLOCK * EACH), sm_count * 4)"]
block = ["BLOCK"]
args = ["x", "b", "y", "alpha", "n"]
*/
static_assert(BLOCK * EACH <= 512);
extern "C" __global__ void plain(const T* x, const T* b, T* y, T alpha, int n) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = alpha * x[i] + b[i];
}
extern "C" __global__ void wide(const T* x, const T* b, T* y, T alpha, int n) {
    for (int first = blockIdx.x * BLOCK * EACH; first < n; first += gridDim.x * BLOCK * EACH)
        for (int e = 0; e < EACH; e++) {
            const int i = first + e * BLOCK + threadIdx.x;
            if (i < n) y[i] = alpha * x[i] + b[i];
        }
}
"""
LARGE = (Workload("large", {"n": 1 << 26}), Workload("large", {"n": (1 << 26) + 3}))


def at(source: str, operator: Operator, values: Mapping[str, int] | None = None) -> Checked:
    kernel = Kernel(operator.name, "cuda", source, values or {})
    return looked_at(kernel, operator, "fp32", judged=(*operator.hidden, *LARGE), facts=GPU)


@pytest.mark.slow
def test_a_look_goes_over_routes_and_tunables(axpb: Operator) -> None:
    sound = at(TWO_ROUTES, axpb)
    assert (sound.rejection, sound.lack) == (None, "")
    assert "on 5 shapes (1 for the launches of larger ones) and on some with" in sound.scope
    assert "would run" not in sound.scope


@pytest.mark.parametrize(
    ("edit", "told"),
    some_slow(
        [
            (("            if (i < n) y", "            if (i < n - 1) y"), "wrong result on n="),
            (("e * BLOCK + threadIdx.x", "e * 128 + threadIdx.x"), "with BLOCK = "),
            (("blockIdx.x * BLOCK + threadIdx.x;\n    if", "blockIdx.x * 128 + threadIdx.x;\n    if"), "with BLOCK = "),
            (("e < EACH", "e < 2"), "with EACH = "),
        ],
        2,
    ),
)
def test_a_look_finds_what_only_a_large_shape_or_another_setting_meets(
    axpb: Operator, edit: tuple[str, str], told: str
) -> None:
    found = at(edited(TWO_ROUTES, edit), axpb).rejection
    assert found and found.status in (Status.WRONG, Status.RUNTIME_ERROR)
    assert told in found.message


@pytest.mark.slow
def test_what_no_small_shape_reaches_is_said_and_never_forced(axpb: Operator) -> None:
    """The condition is what makes the launch right."""
    source = edited(
        TWO_ROUTES, ("n >= 64 * 1024", "n >= 64 * 1024 * 1024"), ("n < 64 * 1024", "n < 64 * 1024 * 1024"),
        ("if (i < n) y[i] = alpha * x[i] + b[i];\n        }", "if (n >= 64 << 20) y[i] = 0;\n        }"),
    )  # fmt: skip
    found = at(source, axpb)
    assert found.rejection is None and "but not where launch 2 `wide` would run" in found.scope


@pytest.mark.slow
def test_a_fault_on_a_shape_that_makes_no_sense_is_none(axpb: Operator, tmp_path: Path) -> None:
    """The shape is not named, and the naive kernel is wrong on it too."""
    shutil.copytree(axpb.folder, tmp_path / "axpb")
    naive = tmp_path / "axpb" / "naive.cu"
    naive.write_text(edited(naive.read_text(), ("if (i < n)", "if (i < n && n <= 2048)")))
    found = at(
        edited(TWO_ROUTES, ("            if (i < n) y", "            if (i < n - 1) y")), load(str(tmp_path / "axpb"))
    )
    assert found.rejection is None and "but not where launch 2 `wide` would run" in found.scope


# --- shapes for routes ------------------------------------------------------------------------------------------------


def routes(source: str, operator: Operator, facts: Mapping[str, int]) -> Routes:
    kernel = Kernel(operator.name, "cuda", source)
    return Routes(parse_plan(source, operator, "cuda"), kernel, operator, "fp32", facts)


@examples(60)
@given(least=st.integers(1, 1 << 22), modulus=st.sampled_from([1, 2, 4, 16]), n=st.integers(1 << 22, 1 << 26))
def test_a_small_shape_goes_the_way_of_the_large_one(least: int, modulus: int, n: int) -> None:
    operator = load(str(Path(__file__).parents[1] / "data" / "axpb"))
    condition = f"n >= {least} and n % {modulus} == 0"
    source = edited(TWO_ROUTES, ("n >= 64 * 1024", condition), ("n < 64 * 1024", f"not ({condition})"))
    here = routes(source, operator, FACTS)
    workload = Workload("large", {"n": n})
    wanted = here.of(workload.dims)
    assert wanted == (n % modulus != 0, n % modulus == 0)
    found = shrunk(workload, wanted, here)
    assert found and found.set == OWN and here.of(found.dims) == wanted
    smallest = least if n % modulus == 0 else 1
    assert smallest <= found.dims["n"] <= 1.2 * smallest + 128 and (n - found.dims["n"]) % 64 == 0


def test_conditions_on_the_device_are_met_by_the_smaller_one_that_is_emulated(axpb: Operator) -> None:
    source = edited(TWO_ROUTES, ("n >= 64 * 1024", "n > sm_count * 4096"), ("n < 64 * 1024", "n <= sm_count * 4096"))
    there, here = (routes(source, axpb, facts) for facts in (GPU, FACTS))
    assert there.of({"n": 100_000}) != here.of({"n": 100_000})
    found, beyond = missing(LARGE, (), there, here)
    assert [w.dims["n"] > 5 * 4096 for w in found] == [True] and found[0].dims["n"] < 30_000
    assert beyond == []


def test_shapes_are_like_those_that_an_operator_names() -> None:
    fft, top_k = Likeness(load("fft")), Likeness(load("top_k"))
    assert fft.has({"n": 512}) and not fft.has({"n": 513})
    assert list(fft.sizes("n", 9, 1 << 20)) == [1, 2, 4, 8]
    assert top_k.has({"n": 100, "k": 100}) and not top_k.has({"n": 100, "k": 101})


@given(seed=st.integers(0, 1000))
def test_settings_are_the_ends_of_every_tunable(seed: int) -> None:
    tune = {"A": (4, 2, 8, 1), "B": (3,), "C": (0, 1)}
    own = {"A": 4, "B": 3, "C": 0}
    found = [dict(values) for values in look.settings(tune, own, np.random.default_rng(seed))]
    assert own not in found and len({tuple(v.items()) for v in found}) == len(found) <= look.WALK_SETTINGS
    for values in ({"A": 1}, {"A": 8}, {"C": 1}):
        assert own | values in found
    assert {"A": 8, "B": 3, "C": 1} in found
