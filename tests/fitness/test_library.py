"""Choice of the library call that is the baseline: the fastest that is right, found once in a place."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeGuard

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evo.report.reference import one
from fitness import install
from fitness.cpu.target import CpuDevice, CpuFitness
from fitness.evaluation import Status
from fitness.judging import library
from fitness.judging.device import KernelFault, ProcessEnded, Sample
from fitness.judging.library import (
    CLOSE,
    BaselineChoice,
    BaselineKey,
    CallTrial,
    choose,
    handed,
    keep,
    kept,
    known,
    taken,
)
from fitness.judging.timed_inputs import STANDING_SETS
from fitness.targets import fitness
from operators.catalog import declared_libraries, functions, load
from operators.definition.fingerprint import fingerprint
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError
from operators.libraries import LibraryCall, call, called, compiled, direct, kind_of, kinds_in_words, own
from tests.bench import libraries
from tests.fitness.kernels import RIGHT, axpb_kernel

PLACE = BaselineKey("axpb", "fp32", "cpu", "cpu", "a machine", 2, {"torch": "1"})
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


@pytest.mark.slow
def test_a_task_takes_the_fastest_right_call_and_keeps_it(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        found = stage.bench.library.choice()
        assert [t.name for t in found.tried] == ["torch.add", "numpy.multiply", "numpy.add", "scipy.special.no_such"]
        right, composed, wrong, missing = found.tried
        assert (right.lack, composed.lack, composed.kind) == ("", "", "composed")
        assert {*right.us} == {w.name for w in stage.workloads} and min(right.us.values()) > 0
        assert "out of bounds" in wrong.lack and "no_such" in missing.left_out
        assert list(found.best) == [w.name for w in stage.workloads]
        assert {t.name for t in found.best.values()} <= {right.name, composed.name}
        assert set(missing.lacks) == set(right.us) and not missing.lack
        assert (wrong.again, missing.again, kept(with_calls, found.place, [t.name for t in found.tried])) == (
            False,
            True,
            None,
        )
        keep(with_calls, replace(found, tried=(right, composed, wrong)))
        monkeypatch.delattr(CpuDevice, "open_library")
        assert stage.bench.library.choice() == found, "nothing is timed again"
    finally:
        stage.close()
    shown = {row["property"]: row["value"] for row in one(with_calls)}
    assert "numpy.multiply (cpu, composed)" in shown["library calls"]
    (told,) = (value for name, value in shown.items() if name.startswith("library, fp32/cpu, set cpu"))
    assert told.startswith("fastest: ") and "geometric mean of these" in told
    assert "numpy.add left out: " in told


@pytest.mark.slow
def test_calls_are_timed_where_a_folder_of_pythons_has_a_name_beyond_ascii(
    with_calls: Operator, tmp_path: Path, accented_python: str
) -> None:
    (with_calls.folder / "libraries.py").unlink()
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        (trial,) = stage.bench.library.choice().tried
        assert {*trial.us} == {workload.name for workload in stage.workloads}, trial.left_out
    finally:
        stage.close()


class Machine:
    """Calls whose times and faults are made up: what stands for a workload is microseconds, or the fault there."""

    def __init__(self, made: Mapping[str, Mapping[str, float | Exception]], *, binds: bool = False) -> None:
        """`binds`: faults but those of answers come when inputs are bound, with all workloads of the session."""
        self.made = made
        self.binds = binds
        self.called: dict[tuple[str, str], int] = {}
        self.seats: list[tuple[str, tuple[str, ...]]] = []

    def tried(self, *, place: BaselineKey = PLACE) -> BaselineChoice:
        workloads = list(next(iter(self.made.values())))
        return choose([own(name) for name in self.made], place, workloads, self.seated, self.accept, nullcontext)

    @contextmanager
    def seated(self, one: LibraryCall, workloads: Sequence[str]) -> Iterator[Any]:
        self.seats.append((one.name, tuple(workloads)))
        faults = [self.made[one.name][w] for w in workloads]
        slots = dict(enumerate((w for w in workloads for _ in range(3)), 1))
        for fault in faults:
            if self.binds and is_lack(fault):
                raise fault
        session = SimpleNamespace(name=one.name, slots=slots, run=lambda slot, **_: self.sample(one.name, slots[slot]))
        yield session, [[(slot, None) for slot, w in slots.items() if w == workload] for workload in workloads]

    def sample(self, name: str, workload: str) -> Sample:
        key = name, workload
        self.called[key] = self.called.get(key, 0) + 1
        us = self.made[name][workload]
        if isinstance(us, Exception):
            if is_lack(us):
                raise us
            us = 1.0
        return Sample(round(1e3 * us), 0)

    def accept(self, case: object, session: Any, slot: int) -> None:
        us = self.made[session.name][session.slots[slot]]
        if isinstance(us, Exception):
            raise us


def is_lack(us: float | Exception) -> TypeGuard[Exception]:
    return isinstance(us, Exception) and us is not WRONG


WRONG = KernelFault(Status.WRONG, "it is\nout of bounds")
RAISES = OperatorError("no available kernel")
NO_MEMORY = KernelFault(Status.RUNTIME_ERROR, "no memory")


def test_what_is_chosen_is_the_fastest_of_each_workload_and_what_is_hopeless_is_called_no_more() -> None:
    """Each workload has three sets of inputs."""
    machine = Machine({
        "slow": {"a": 200.0, "b": 100.0}, "fast": {"a": 100.0, "b": 110.0}, "hopeless": {"a": 1000.0, "b": 50.0},
        "wrong": {"a": 1.0, "b": WRONG},
    })  # fmt: skip
    found = machine.tried()
    assert {w: t.name for w, t in found.best.items()} == {"a": "fast", "b": "hopeless"}
    assert found.mean_us == pytest.approx(math.sqrt(100.0 * 50.0)) and found.lack == ""
    assert found.tried[3] == CallTrial("wrong", "call", lack="it is out of bounds")
    of_a = {name: count for (name, workload), count in machine.called.items() if workload == "a"}
    assert of_a["slow"] == of_a["fast"] == 12 and of_a["hopeless"] == 3
    assert machine.called["hopeless", "b"] == 12 and machine.called["wrong", "b"] == 1


@pytest.mark.parametrize("binds", [False, True])
@pytest.mark.parametrize("fault", [RAISES, NO_MEMORY])
def test_a_call_that_cannot_run_on_a_workload_serves_the_others(fault: Exception, binds: bool) -> None:
    machine = Machine({
        "partial": {"a": 10.0, "b": fault, "c": 30.0}, "whole": {"a": 20.0, "b": 20.0, "c": 20.0},
    }, binds=binds)  # fmt: skip
    found = machine.tried()
    assert {w: t.name for w, t in found.best.items()} == {"a": "partial", "b": "whole", "c": "whole"}
    partial = found.tried[0]
    assert (partial.us, partial.lacks) == ({"a": 10.0, "c": 30.0}, {"b": str(fault)})
    assert partial.left_out == f"on b: {fault}" and partial.mean_us == math.inf
    assert found.mean_us == pytest.approx((10.0 * 20.0 * 20.0) ** (1 / 3))
    assert found.settled is (fault is RAISES), "what may be the machine's fault is tried again"


def test_a_call_that_only_lacks_room_beside_other_workloads_is_tried_alone() -> None:
    machine = Machine({"large": {"a": 10.0, "b": 20.0}})
    whole = machine.seated

    @contextmanager
    def roomy(one: LibraryCall, workloads: Sequence[str]) -> Iterator[Any]:
        if len(workloads) > 1:
            raise NO_MEMORY
        with whole(one, workloads) as seat:
            yield seat

    machine.seated = roomy  # type: ignore[method-assign]
    found = machine.tried()
    assert found.tried == (CallTrial("large", "call", {"a": 10.0, "b": 20.0}),) and found.settled


def test_a_call_that_does_not_get_compiled_is_waited_for_once() -> None:
    hangs = KernelFault(Status.TIMEOUT, "it was not compiled within 120 s")
    machine = Machine({"own": {"a": 10.0, "b": 20.0, "c": 30.0}, "made": {"a": 5.0, "b": hangs, "c": hangs}})
    calls = [own("own"), replace(own("made"), kind="compiled")]
    seated = machine.seated

    @contextmanager
    def one_by_one(one: LibraryCall, workloads: Sequence[str]) -> Iterator[Any]:
        if one.kind == "compiled" and len(workloads) > 1:
            raise NO_MEMORY
        with seated(one, workloads) as seat:
            yield seat

    found = choose(calls, PLACE, ["a", "b", "c"], one_by_one, machine.accept, nullcontext)
    made = found.tried[1]
    assert made.us == {"a": 5.0} and set(made.lacks) == {"b", "c"} and made.again
    assert machine.seats == [("own", ("a", "b", "c")), ("made", ("a",)), ("made", ("b",))]


@pytest.mark.parametrize("binds", [True, False])
def test_a_call_that_ends_its_process_is_made_once_more(binds: bool) -> None:
    crash = ProcessEnded("its process ended with code -6")
    machine = Machine({"own": {"a": 10.0, "b": crash, "c": 30.0}}, binds=binds)
    found = machine.tried()
    assert found.tried[0].us == {"a": 10.0, "c": 30.0} and found.tried[0].lacks == {"b": str(crash)}
    assert found.settled, "it does so again"

    class Once(Machine):
        def sample(self, name: str, workload: str) -> Sample:
            if workload == "b" and not self.called.get((name, "b")):
                self.called[name, "b"] = 1
                raise crash
            return super().sample(name, workload)

    found = Once({"own": {"a": 10.0, "b": 20.0, "c": 30.0}}).tried()
    assert found.tried[0].us == {"a": 10.0, "b": 20.0, "c": 30.0} and not found.tried[0].lacks


@given(
    st.lists(
        st.lists(st.one_of(st.floats(1.0, 1e5), st.sampled_from([RAISES, NO_MEMORY, WRONG])), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_a_workload_has_its_fastest_right_call_whatever_the_others_do(
    rows: list[list[float | Exception]], binds: bool
) -> None:
    machine = Machine({f"call {i}": dict(zip("abc", row, strict=True)) for i, row in enumerate(rows)}, binds=binds)
    found = machine.tried()
    right = {name: of for name, of in machine.made.items() if WRONG not in of.values()}
    for workload in "abc":
        times = {name: of[workload] for name, of in right.items() if not isinstance(of[workload], Exception)}
        assert (workload in found.best) == bool(times)
        if times:
            least = min(times.values())  # type: ignore[type-var]
            assert times[found.best[workload].name] <= CLOSE * least + 0.01  # type: ignore[operator]
    assert (found.lack == "") == (len(found.best) == 3) == math.isfinite(found.mean_us)
    for tried in found.tried:
        assert bool(tried.lack) == (tried.name not in right)
        assert tried.lack or {*tried.us} | {*tried.lacks} == {*"abc"}
    assert found.settled == all(NO_MEMORY not in of.values() for of in right.values())


def test_of_calls_that_noise_tells_apart_the_first_declared_is_chosen() -> None:
    place = BaselineKey("x", "fp32", "cpu", "cpu", "a CPU", 1, {})

    def chosen(*means: float) -> str | None:
        tried = (CallTrial(f"call {number}", "call", {"w": us}) for number, us in enumerate(means))
        best = BaselineChoice(place, ("w",), (CallTrial("wrong", "call", lack="wrong"), *tried)).best
        return best["w"].name if best else None

    assert chosen(4067.27, 4065.28) == chosen(4065.28, 4067.27) == "call 0"
    assert chosen(110.0, 100.0, 101.0) == "call 1"
    assert chosen() is None


def test_what_is_left_out_is_told_in_few_words() -> None:
    place = BaselineKey("x", "fp32", "cpu", "cpu", "a CPU", 1, {})
    absent = CallTrial("absent", "call", lacks={"v": "no package", "w": "no package"})
    partial = CallTrial("partial", "call", {"v": 1.0}, lacks={"w": "no kernel"})
    assert absent.left_out == "no package" and partial.left_out == "on w: no kernel"
    assert BaselineChoice(place, ("v", "w"), (absent,)).lack == "absent: no package"
    lack = BaselineChoice(place, ("v", "w"), (absent, partial)).lack
    assert lack == "no call serves w: absent: no package; partial: on w: no kernel"


def test_the_bench_tells_the_choice_of_each_workload_and_what_one_call_would_take() -> None:
    whole = CallTrial("whole", "call", {"v": 8.0, "w": 8.0})
    partial = CallTrial("partial", "composed", {"v": 2.0}, lacks={"w": "no kernel"})
    line = libraries.told(BaselineChoice(PLACE, ("v", "w"), (whole, partial)))
    assert line["library"] == {"v": "partial", "w": "whole"} and line["kind"]["v"] == "composed"
    assert (line["mean_us"], line["one_call_over_best"]) == (4.0, 2.0)
    assert line["next_over_best"] == {"v": 4.0, "w": None}
    assert (line["tried"][1]["us"], line["tried"][1]["left_out"]) == ({"v": 2.0}, "on w: no kernel")
    nothing = libraries.told(BaselineChoice(PLACE, ("v", "w"), (partial,)))
    assert (nothing["mean_us"], nothing["lack"]) == (None, "no call serves w: partial: on w: no kernel")


def test_a_choice_is_kept_by_all_that_decides_about_it(with_calls: Operator) -> None:
    partial = CallTrial("c", "call", {"n=1": 1.0}, lacks={"n=2": "no kernel"})
    tried = (CallTrial("a", "call", {"n=1": 2.0, "n=2": 3.0}), CallTrial("b", "composed", lack="wrong"), partial)
    choice = BaselineChoice(PLACE, ("n=1", "n=2"), tried)
    keep(with_calls, choice)
    names = [t.name for t in tried]
    assert kept(with_calls, PLACE, names) == choice and kept(with_calls, PLACE, names[:2]) is None
    assert known(with_calls) == [choice]
    others = [{"dtype": "fp64"}, {"workload_set": "x"}, {"device": "y"}, {"threads": 1}, {"versions": {"torch": "2"}}]
    assert not any(kept(with_calls, replace(PLACE, **other), names) for other in others)  # type: ignore[arg-type]
    reference = with_calls.folder / "reference.py"
    reference.write_text(reference.read_text() + "\n# other code\n")
    assert kept(with_calls, PLACE, names) is None
    assert known(with_calls) == []


def test_a_choice_of_an_older_version_is_made_again(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named the one call with the least mean, and left a call out everywhere that could not run on one workload."""
    us, asked = {"n=40000": 2.0, "n=100001": 3.0}, []

    def made(calls: Sequence[LibraryCall], place: BaselineKey, workloads: Sequence[str], *_: object) -> BaselineChoice:
        asked.append(place)
        return BaselineChoice(place, tuple(workloads), tuple(CallTrial(call.name, "call", us) for call in calls))

    monkeypatch.setattr(library, "choose", made)

    def choice() -> BaselineChoice:
        stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
        try:
            return stage.bench.library.choice()
        finally:
            stage.close()

    assert choice() == choice() and len(asked) == 1
    (file,) = tmp_path.glob("axpb-*.json")
    older = json.loads(file.read_text())
    del older["workloads"], older["tried"][0]["lacks"]
    file.write_text(json.dumps(older))
    assert known(with_calls) == []
    assert choice() == choice() and len(asked) == 2


@pytest.mark.slow
def test_a_single_call_is_not_tried(axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(library, "choose")
    stage = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        with stage.bench.library.baseline() as seated:
            baseline = seated()
            assert [len(seat.nominal) for seat in baseline.seats] == [STANDING_SETS] * 2 and baseline.lack == ""
            assert len({id(seat.session) for seat in baseline.seats}) == 1
    finally:
        stage.close()


@pytest.mark.slow
def test_what_the_compiler_makes_of_the_expression_is_a_rival(
    axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "0")
    stage = CpuFitness(axpb, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        stage.choose_rivals()
        found = stage.bench.library.choice()
    finally:
        stage.close()
    own, compiled = found.tried
    assert compiled.name == f"torch.compile({own.name})" and (own.kind, compiled.kind) == ("call", "compiled")
    assert compiled.left_out == "" and set(compiled.us) == {w.name for w in stage.workloads}


@pytest.mark.slow
def test_who_has_little_time_compiles_nothing(axpb: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "0")
    tried = []
    for _ in range(2):
        task = Task("axpb", "fp32", "cpu")
        stage = fitness(axpb, task, workload_set="cpu", folder=tmp_path)
        assert isinstance(stage, CpuFitness)
        try:
            tried.append(stage.bench.library.choice())
            with stage.bench.library.baseline() as seated:
                untried = {seat.untried for seat in seated().seats}
        finally:
            stage.close()
    assert [t.kind for t in tried[0].tried] == ["call"] and tried[1] == tried[0], "kept for itself"
    assert untried == {f"torch.compile({tried[0].tried[0].name})"}, "it is told"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "tried", "untried"),
    [
        ("", ["torch.add"], "nvmath.add; torch.compile(torch.add)"),
        ("1.0", ["torch.add", "nvmath.add"], "torch.compile(torch.add)"),
    ],
    ids=["missing", "there"],
)
def test_calls_of_a_package_that_is_not_there_are_told_and_not_tried(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, tried: list[str], untried: str
) -> None:
    other = 'own("torch.add"), call("nvmath.add", lambda x, b, alpha: b.add(x, alpha=alpha), targets=("cpu",))'
    (with_calls.folder / "libraries.py").write_text(
        f"from operators.libraries import call, own\nLIBRARIES = ({other})\n"
    )
    for place in (library, install):
        monkeypatch.setattr(place, "versions", lambda _: {"torch": "1", "nvmath": version, "liger_kernel": ""})
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        assert [trial.name for trial in stage.bench.library.choice().tried] == tried
        with stage.bench.library.baseline() as seated:
            assert {seat.untried for seat in seated().seats} == {untried}
    finally:
        stage.close()


def test_kinds_of_rivals_are_told_with_their_names_and_in_words() -> None:
    calls = (own("a.b"), own("a.b", composed=True), own("a.b", converted=True), compiled("a.b"))
    kinds = [each.kind for each in calls]
    assert kinds == ["call", "composed", "converted", "compiled"]
    assert [kind_of(called(each.name, each.kind)) for each in calls] == kinds
    assert [own("a.b", composed_in=("bf16",)).of(dtype).kind for dtype in ("fp32", "bf16")] == ["call", "composed"]
    assert [kinds_in_words(each) for each in (["call"], ["composed"] * 2, ["call", "compiled"], [])] == [
        "", "composed", "partly compiled", "",
    ]  # fmt: skip
    assert kinds_in_words(["call"], untried=True) == "rivals untried"
    assert kinds_in_words(["call", "composed"], untried=True) == "partly composed, rivals untried"


def test_calls_that_have_no_room_leave_together_and_give_back_what_they_have(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do so before the measurement, which goes on without them."""
    opened: list[str] = []

    def begun(_: CpuDevice, call: LibraryCall, cases: Sequence[Sequence[Any]]) -> Any:
        def bind(slot: int, case: Any, **__: object) -> None:
            if call.name == "numpy.multiply":
                raise NO_MEMORY

        opened.append(call.name)
        return SimpleNamespace(bind=bind, close=lambda **_: opened.remove(call.name))

    monkeypatch.setattr(CpuDevice, "open_library", begun)
    tried = (
        CallTrial("torch.add", "call", {"n=40000": 1.0, "n=100001": 2.0}),
        CallTrial("numpy.multiply", "composed", {"n=40000": 2.0, "n=100001": 1.0}),
    )
    monkeypatch.setattr(library, "choose", lambda *of: BaselineChoice(of[1], tuple(of[2]), tried))
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        with stage.bench.library.baseline() as seated:
            assert opened == ["torch.add", "numpy.multiply"]
            baseline = seated()
            assert (baseline.seats, baseline.lack, opened) == ((), "no memory", [])
    finally:
        stage.close()


@pytest.mark.parametrize("again", [True, False], ids=["no memory", "no kernel"])
def test_a_call_that_the_machine_could_not_serve_is_told_as_untried(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    tried = (
        CallTrial("torch.add", "call", {"n=40000": 1.0, "n=100001": 2.0}),
        CallTrial("numpy.multiply", "composed", {"n=40000": 2.0}, lacks={"n=100001": "it does not fit"}, again=again),
    )
    monkeypatch.setattr(library, "choose", lambda *of: BaselineChoice(of[1], tuple(of[2]), tried))
    monkeypatch.setattr(library, "_folder", lambda: tmp_path)
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        with stage.bench.library.baseline() as seated:
            seats = seated().seats
    finally:
        stage.close()
    assert [seat.name for seat in seats] == ["torch.add", "torch.add"]
    assert all(("numpy.multiply (not served at some sizes)" in seat.untried.split("; ")) == again for seat in seats)


EACH_ITS_OWN = """
import time
from operators.libraries import call

def quick_on(wanted):
    def added(x, b, alpha):
        if not wanted(len(x)):
            time.sleep(0.005)
        return b.add(x, alpha=alpha)
    return added

def small_alone(x, b, alpha):
    if len(x) > 50_000:
        raise ValueError("no kernel for it")
    return b.add(x, alpha=alpha)

LIBRARIES = (
    call("torch.wrong", lambda x, b: b + x),
    call("torch.slow", quick_on(lambda n: False)),
    call("torch.small", small_alone),
    call("torch.large", quick_on(lambda n: n > 50_000), composed=True),
)
"""


@pytest.mark.slow
def test_a_confirmation_times_the_fastest_call_of_each_workload(
    with_calls: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (with_calls.folder / "libraries.py").write_text(EACH_ITS_OWN)
    opened: list[tuple[str, list[int]]] = []
    real = CpuDevice.open_library

    def noted(device: CpuDevice, call: LibraryCall, cases: Sequence[Sequence[Any]]) -> Any:
        opened.append((call.name, [sets[0].dims["n"] for sets in cases]))
        return real(device, call, cases)

    monkeypatch.setattr(CpuDevice, "open_library", noted)
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        choice = stage.bench.library.choice()
        opened.clear()
        found = stage.confirm(axpb_kernel(RIGHT))
    finally:
        stage.close()
    assert "out of bounds" in choice.tried[0].lack and "no kernel for it" in choice.tried[2].lacks["n=100001"]
    assert opened == [("torch.small", [40000]), ("torch.large", [100001])], "each is seated with its workloads alone"
    assert (found.status, found.library_lack) == (Status.CORRECT, "")
    told = [(t.workload, t.library, t.kind) for t in found.library_timings]
    assert told == [("n=40000", "torch.small", "call"), ("n=100001", "torch.large", "composed")]
    assert all(t.anchor_latency_us < 5000 for t in found.library_timings)


SELDOM_WRONG = """
import time
from pathlib import Path
from operators.libraries import call

TURNED = Path(__file__).with_name("turned")

def slow(x, b, alpha):
    time.sleep(0.005)
    return b.add(x, alpha=alpha)

LIBRARIES = (
    call("torch.seldom_wrong", lambda x, b, alpha: b.add(x, alpha=alpha + TURNED.exists())),
    call("torch.slow", slow),
)
"""


@pytest.mark.slow
def test_a_call_that_is_wrong_in_a_confirmation_is_struck_and_the_next_one_takes_its_place(
    with_calls: Operator, tmp_path: Path
) -> None:
    (with_calls.folder / "libraries.py").write_text(SELDOM_WRONG)
    stage = CpuFitness(with_calls, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    try:
        before = stage.bench.library.choice()
        assert {trial.name for trial in before.best.values()} == {"torch.seldom_wrong"}
        (with_calls.folder / "turned").touch()
        first, again = stage.confirm(axpb_kernel(RIGHT)), stage.confirm(axpb_kernel(RIGHT))
    finally:
        stage.close()
    for found in (first, again):
        assert (found.status, found.library_lack) == (Status.CORRECT, "")
        assert {timing.library for timing in found.library_timings} == {"torch.slow"}
    stored = kept(with_calls, before.place, ["torch.seldom_wrong", "torch.slow"])
    assert stored and "out of bounds" in stored.tried[0].lack and stored.tried[1] == before.tried[1]


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
