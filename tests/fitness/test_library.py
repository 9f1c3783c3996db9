"""Which library call is the baseline: the fastest that is right, found once in a place."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evo.report.operators import one
from fitness import library
from fitness.cpu.target import CpuDevice, CpuFitness
from fitness.device import KernelFault
from fitness.evaluation import Status
from fitness.library import Choice, Place, Tried, choose, handed, keep, kept, known, taken
from operators.catalog import declared_libraries, functions, load
from operators.errors import OperatorError
from operators.fingerprint import fingerprint
from operators.libraries import LibraryCall, call, direct, own
from operators.spec import Operator, Task
from tests.fitness.test_measure import ScriptedSession, noisy, seat

PLACE = Place("axpb", "fp32", "cpu", "cpu", "a machine", 2, {"torch": "1"})
CALLS = """
from operators.libraries import call, direct, own

LIBRARIES = (
    own("torch.add"),
    call("numpy.multiply", lambda x, b, alpha: alpha * x + b, composed=True),
    direct("numpy.add", "x", "b"),
    direct("scipy.special.no_such", "x"),
    direct("cupy.add", "x", "b"),
)
"""


@pytest.fixture
def with_calls(axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """A user's operator with calls that are right, wrong and missing; nothing is kept of it yet."""
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    folder = shutil.copytree(axpb.folder, tmp_path / "axpb")
    (folder / "libraries.py").write_text(CALLS)
    return load(str(folder))


def test_a_task_takes_the_fastest_right_call_and_keeps_it(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        found = stage.stand.libraries()
        assert [t.name for t in found.tried] == ["torch.add", "numpy.multiply", "numpy.add", "scipy.special.no_such"]
        right, composed, wrong, missing = found.tried
        assert (right.lack, composed.lack, composed.kind) == ("", "", "composed")
        assert {*right.us} == {w.name for w in stage.workloads} and min(right.us.values()) > 0
        assert "out of bounds" in wrong.lack and "no_such" in missing.lack
        assert found.best in (right, composed)
        assert (wrong.again, missing.again, kept(with_calls, found.place)) == (False, True, None)
        keep(with_calls, replace(found, tried=(right, composed, wrong)))
        monkeypatch.delattr(CpuDevice, "open_library")
        assert stage.stand.libraries() == found, "nothing is timed again"
    finally:
        stage.close()
    shown = {row["property"]: row["value"] for row in one(with_calls)}
    assert "numpy.multiply (cpu, composed)" in shown["library calls"]
    (told,) = (value for name, value in shown.items() if name.startswith("library, fp32/cpu, set cpu"))
    assert "numpy.add left out: " in told


def test_what_is_chosen_is_the_fastest_one_and_what_is_hopeless_is_called_no_more() -> None:
    """Each call has three sets of inputs."""
    calls = [own("slow"), own("fast"), own("hopeless"), own("wrong")]
    us = {"slow": 200.0, "fast": 100.0, "hopeless": 1000.0, "wrong": 1.0}
    counted: dict[str, int] = dict.fromkeys(us, 0)

    @contextmanager
    def seated(one: LibraryCall) -> Iterator[Any]:
        draw = noisy(us[one.name])

        def drawn(rng: np.random.Generator) -> Any:
            counted[one.name] += 1
            return draw(rng)

        session = ScriptedSession(drawn, 0)
        session.name = one.name  # type: ignore[attr-defined]
        yield session, seat(session, workloads=1).nominal

    def accept(case: object, session: Any, slot: int) -> None:
        if session.name == "wrong":
            raise KernelFault(Status.WRONG, "it is\nout of bounds")

    found = choose(calls, PLACE, seated, accept, nullcontext)
    assert found.best and found.best.name == "fast"
    assert found.tried[3] == Tried("wrong", "library", lack="it is out of bounds")
    assert counted == {"slow": 12, "fast": 12, "hopeless": 3, "wrong": 1}


def test_of_calls_that_noise_tells_apart_the_first_declared_is_chosen() -> None:
    place = Place("x", "fp32", "cpu", "cpu", "a CPU", 1, {})

    def chosen(*means: float) -> str | None:
        tried = (Tried(f"call {number}", "library", {"w": us}) for number, us in enumerate(means))
        best = Choice(place, (Tried("wrong", "library", lack="wrong"), *tried)).best
        return best.name if best else None

    assert chosen(4067.27, 4065.28) == chosen(4065.28, 4067.27) == "call 0"
    assert chosen(110.0, 100.0, 101.0) == "call 1"
    assert chosen() is None


def test_a_choice_is_kept_by_all_that_decides_about_it(with_calls: Operator) -> None:
    choice = Choice(PLACE, (Tried("a", "library", {"n=1": 2.0}), Tried("b", "composed", lack="wrong")))
    keep(with_calls, choice)
    assert kept(with_calls, PLACE) == choice
    assert known(with_calls) == [choice]
    others = [{"dtype": "fp64"}, {"workload_set": "x"}, {"device": "y"}, {"threads": 1}, {"versions": {"torch": "2"}}]
    assert not any(kept(with_calls, replace(PLACE, **other)) for other in others)  # type: ignore[arg-type]
    reference = with_calls.folder / "reference.py"
    reference.write_text(reference.read_text() + "\n# other code\n")
    assert kept(with_calls, PLACE) is None
    assert known(with_calls) == []


def test_library_calls_decide_no_verdict(axpb: Operator, with_calls: Operator) -> None:
    """Runs that began without them go on."""
    assert fingerprint(axpb, target="cpu", workload_set="cpu") == fingerprint(
        with_calls, target="cpu", workload_set="cpu"
    )


def test_without_cupy_its_calls_say_so_and_torchs_are_handed_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    values = {"x": torch.ones(3), "n": 3}
    with pytest.raises(OperatorError, match="CuPy cannot be imported"):
        handed(values, "cupy")
    assert handed(values, "torch") == values


def test_arrays_are_of_the_same_memory() -> None:
    x = torch.arange(4.0)
    array = handed({"x": x, "n": 4}, "numpy")["x"]
    array[0] = 7.0
    assert x[0] == 7.0
    back = taken({"y": array, "m": array.max()}, ["y", "m"])
    assert back["y"].data_ptr() == x.data_ptr() and back["m"].item() == 7.0


def test_what_has_no_bf16_is_not_asked_for_it() -> None:
    cupys, scipys = direct("cupy.sort", "x"), call("scipy.fft.fft", lambda x: x, dtypes=("fp64",))
    assert cupys.serves("cuda", "fp16") and not cupys.serves("cuda", "bf16") and not cupys.serves("cpu", "fp32")
    assert scipys.serves("cpu", "fp64") and not scipys.serves("cpu", "fp32")
    assert own("torch.sort").serves("cuda", "bf16") and own("torch.sort").serves("cpu", "fp32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X = 1", "it must define LIBRARIES"),
        ("from operators.libraries import own\nLIBRARIES = [own('a'), own('a')]", "two calls are named a"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_libraries_py_is_told(with_calls: Operator, text: str, message: str) -> None:
    (with_calls.folder / "libraries.py").write_text(text)
    declared_libraries.cache_clear()
    with pytest.raises(OperatorError, match=message):
        functions(with_calls.folder).libraries("cpu", "fp32")
