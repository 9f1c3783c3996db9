"""A function of a user's repository: its calls are recorded, it becomes an operator, a kernel takes its place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evo.api import Run
from evo.outside.importing import made_operator
from evo.packaging.package import Subject
from evo.report.status import taken_lines
from evo.repository.put import BEFOREHAND, Put, UserFunction, place_of, put
from evo.repository.recording import record
from operators.beginning import begin
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import UserError
from operators.importing.folder import CALL, ORIGIN
from operators.importing.needed import needed, source_digest
from operators.importing.readers import FAMILY
from operators.importing.taken import taken
from operators.kernel import Kernel
from tests.choosing import some_long
from tests.evo.test_cli import evo

REPOSITORIES = Path(__file__).parents[1] / "data" / "repositories"
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider checks.py"


def tensor(*shape: int, dtype: str = "float32", dense: bool = True) -> dict[str, Any]:
    stride = [1] * len(shape)
    told = {"shape": list(shape), "stride": stride, "dtype": dtype, "device": "cpu", "dense": dense}
    return {**told, "low": -3.0, "high": 3.0, "mean": 0.0, "std": 1.0}


def call(count: int, grad: bool = False, **arguments: dict[str, Any]) -> dict[str, Any]:
    return {"count": count, "grad": grad, "arguments": arguments, "keyword_only": []}


def recorded(function: str, *calls: dict[str, Any], to: Path) -> Path:
    to.write_text(json.dumps({"format": 1, "function": function, "calls": calls, "others": 0}))
    return to


# --- record -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys

def work(a, b=2, *, c="x"):
    return a

class Other:
    def work(self, a):
        return a

if __name__ == "__main__":
    for _ in range(3):
        work(1.5)
    Other().work(7)
    if os.fork() == 0:
        work(0, b=[1, 2])
        sys.exit(0)
    os.wait()
    sys.exit(5)
"""


def test_calls_in_the_main_file_and_in_children_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(f"open({str(tmp_path / 'own.txt')!r}, 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    code, calls, others = record(f"{program}:work", [sys.executable, str(program)], tmp_path / "out.json")
    assert (code, others) == (5, 0)
    assert (tmp_path / "own.txt").exists(), "the user's own sitecustomize is executed too"
    assert [(each["count"], each["arguments"]) for each in calls] == [
        (3, {"a": {"value": 1.5}, "b": {"value": 2}, "c": {"value": "x"}}),
        (1, {"a": {"value": 0}, "b": {"list": [{"value": 1}, {"value": 2}]}, "c": {"value": "x"}}),
    ]
    assert calls[0]["keyword_only"] == ["c"]
    assert json.loads((tmp_path / "out.json").read_text())["calls"] == calls


def test_a_command_without_a_call_writes_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text("def work(a):\n    return a\n")
    out = tmp_path / "out.json"
    found = evo(monkeypatch, capsys, "record", f"{program}:work", "--out", str(out), "--", sys.executable, str(program))
    assert found[0] == 1 and "was not called" in found[2] and not out.exists()
    found = evo(monkeypatch, capsys, "record", f"{program}:rest", "--out", str(out), "--", "true")
    assert found[0] == 2 and "no function rest stands at its top (work)" in found[2]


# --- take -------------------------------------------------------------------------------------------------------------


def test_a_function_is_taken_with_what_it_refers_to_and_nothing_else() -> None:
    files = needed(REPOSITORIES / "torch_module" / "norms" / "layers.py", "gated_norm")
    assert set(files) == {"problem.py", "norms/constants.py"}
    assert "LEAST = 1e-6" in files["norms/constants.py"] and "def normalized" in files["problem.py"]
    assert "class GatedNorm" not in files["problem.py"] and "math" not in files["problem.py"]
    files = needed(REPOSITORIES / "cuda_extension" / "bias_gelu" / "ops.py", "bias_gelu")
    assert set(files) == {"problem.py", "bias_gelu/reference.py"}
    assert "@triton.jit" in needed(REPOSITORIES / "triton_function" / "softcap.py", "softcap")["problem.py"]


def test_one_operator_serves_the_calls_that_work_most_and_says_what_of_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text("def scaled(x, by):\n    return x * by\n")
    shapes = recorded(
        f"{file}:scaled",
        call(90, x=tensor(2, 3), by={"value": 3.0}),
        call(5, x=tensor(64, 32), by={"value": 2.0}),
        call(2, x=tensor(64, 32, dense=False), by={"value": 2.0}),
        call(3, grad=True, x=tensor(128, 32), by={"value": 2.0}),
        call(1, x=tensor(8, dtype="complex64"), by={"value": 2.0}),
        call(1, x=tensor(8, 8), by={"object": "Scale"}),
        call(1, x=tensor(0, 8), by={"value": 2.0}),
        to=tmp_path / "shapes.json",
    )
    source = taken(f"{file}:scaled", shapes)
    assert [(each["count"], each["arguments"]["x"]["shape"]) for each in source.call["workloads"]] == [
        (3, [128, 32]), (7, [64, 32]),
    ]  # fmt: skip
    said = "\n".join(source.notes)
    for words in ("90 of the recorded calls have other", "complex64", "neither tensors", "an empty one",
                  "2 calls have tensors that are not contiguous", "3 calls want gradients"):  # fmt: skip
        assert words in said
    assert source.call["constants"] == {"by": {"value": 2.0}}


def test_a_wrong_name_or_record_is_told_in_one_line(tmp_path: Path) -> None:
    triton = REPOSITORIES / "triton_function" / "softcap.py"
    with pytest.raises(UserError, match="no function softcap_kernel stands at its top"):
        taken(f"{triton}:softcap_kernel", tmp_path / "shapes.json")
    with pytest.raises(UserError, match="evo record FILE:NAME writes it"):
        taken(f"{triton}:softcap", tmp_path / "shapes.json")
    shapes = recorded("other.py:softcap", call(1, scores=tensor(4)), to=tmp_path / "shapes.json")
    with pytest.raises(UserError, match=r"it is a record of other\.py:softcap"):
        taken(f"{triton}:softcap", shapes)
    for calls in ([], [3], [{"count": 1}], [{"count": 1, "grad": False, "arguments": {"x": 4}}]):
        shapes.write_text(json.dumps({"format": 1, "function": f"{triton}:softcap", "calls": calls}))
        with pytest.raises(UserError, match="no record of calls"):
            taken(f"{triton}:softcap", shapes)
    with pytest.raises(UserError, match=r"write FILE\.py:FUNCTION"):
        taken("softcap", shapes)


@pytest.mark.slow
def test_a_function_that_changes_its_argument_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text("def grown(x):\n    x.mul_(3)\n    return x + 1\n")
    shapes = recorded(f"{file}:grown", call(1, x=tensor(64, 32)), to=tmp_path / "shapes.json")
    with pytest.raises(UserError, match="changes its arguments in place"):
        made_operator(taken(f"{file}:grown", shapes), "grown", out=tmp_path / "grown")


# --- put --------------------------------------------------------------------------------------------------------------

SOURCE = '''"""Squares."""
import functools

import torch


def announced(function):
    @functools.wraps(function)
    def inner(*arguments, **named):
        return function(*arguments, **named)

    return inner


@announced
def squared(x, *, more=1.0):
    return torch.stack([row * row + more for row in x.unbind()])


LAST = 1'''
CHECKS = """
import os, torch
from squares import squared

x = torch.arange(24.0).reshape(24)
assert torch.equal(squared(x), x * x + 1)
assert torch.equal(squared(x, more=2.0), x * x + 2)
"""


COMPILER = """#!/bin/sh
case "$*" in *binding.cpp*) echo "no bindings here" >&2; exit 1;; esac
exec g++ "$@"
"""


@pytest.fixture(autouse=True)
def no_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler refuses bindings to torch, which take it half a minute each."""
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))


@pytest.fixture
def squares(tmp_path: Path) -> Subject:
    """The naive kernel of an operator that was taken from a repository in `tmp_path`, confirmed at one size of two."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "squares.py").write_bytes(SOURCE.replace("\n", "\r\n").encode())
    (repository / "checks.py").write_text(CHECKS)
    folder = tmp_path / "squared"
    begin("squared", "elementwise", folder)
    definition = folder / "operator.toml"
    definition.write_text(definition.read_text().replace("\nlike", f'\nfamily = "{FAMILY}"\nlike'))
    (folder / ORIGIN).mkdir()
    file = repository / "squares.py"
    calls = [call(9, x=tensor(24), more={"value": 1.0}), call(1, x=tensor(40), more={"value": 1.0})]
    for each in calls:
        each["keyword_only"] = ["more"]
    way = {"into": f"{file}:squared", "source": source_digest(file, "squared"), "arguments": ["x", "more"]}
    way |= {"inputs": {"x": ["input", 0]}, "returned": "y", "bool": []}
    way["workloads"] = [[{"n": 24}, calls[0]], [{"n": 40}, calls[1]]]
    (folder / ORIGIN / CALL).write_text(json.dumps(way))
    return confirmed(folder, ["n=24"])


def confirmed(folder: Path, workloads: list[str]) -> Subject:
    """The naive kernel as if a run had confirmed it."""
    operator = load(str(folder))
    kernel = Kernel(operator.name, "cpu", (folder / "naive.cpp").read_text())
    timings = [{"workload": each, "latency_us": 1.0, "anchor_latency_us": 1.0, "log_ratio": 0.0, "log_ratio_se": 0.0,
                "pairs": 3} for each in workloads]  # fmt: skip
    verdict = {"status": "correct", "level": "confirmed", "timings": timings}
    return Subject(operator, Task(operator.name, "fp32", "cpu"), kernel, "a test", verdict)


def kept(folder: Path) -> dict[str, bytes]:
    """The files of a repository, those that Python writes aside."""
    files = (each for each in folder.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


def placed(subject: Subject, test: str = "", said: list[str] | None = None) -> bool:
    lines = said if said is not None else []
    made = Put(subject, place_of(subject, ""))
    return put(made, test=test, python=sys.executable, every=True, say=lines.append)


def outcome(place: UserFunction, code: str) -> str:
    """The last line that a Python in the repository prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place.root, capture_output=True, text=True, check=True,
        env={**os.environ, "EVO_PUT_COUNTS": os.devnull},
    )  # fmt: skip
    return (done.stdout.strip().splitlines() or [""])[-1] + done.stderr


COUNTED = """
import sys, torch
from squares import squared
from squared_kernel.dispatch import COUNTS

def of(*arguments, **named):
    before = COUNTS["kernel"]
    found = squared(*arguments, **named)
    more = named.get("more", 1.0)
    assert torch.allclose(found, arguments[0] * arguments[0] + more)
    return COUNTS["kernel"] - before

x = torch.randn(24)
wanting = torch.randn(24, requires_grad=True)
squared(wanting).sum().backward()
assert torch.allclose(wanting.grad, 2 * wanting)
wide = torch.randn(48)[::2]
assert torch.allclose(torch.func.vmap(squared)(torch.full((3, 24), 2.0)), torch.full((3, 24), 5.0))
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x, torch.ones(24))
    assert torch.allclose(torch.autograd.forward_ad.unpack_dual(squared(dual)).tangent, 2 * x), "a derivative is cut"
with torch.no_grad():
    without = of(wanting)
print(of(x), of(x, more=1.0), without, of(x, more=2.0), of(torch.randn(40)), of(x.double()), of(wide), of(wanting))
"""


@pytest.mark.slow
def test_a_kernel_serves_what_it_was_judged_for_and_goes_out_to_the_letter(squares: Subject) -> None:
    place = place_of(squares, "")
    before, said = kept(place.root), list[str]()
    test = f"cd {place.root} && {sys.executable} checks.py"
    assert placed(squares, test, said), said
    assert any("the kernel served 1 of 2 calls" in line for line in said)
    assert any("no binding to torch, Python calls the kernel: " in line for line in said)
    assert place.state() == "put" and not list((place.folder / "cache").glob("binding-*.so"))
    assert set(kept(place.root)) > set(before)
    text = place.path.read_bytes()
    assert text.count(b"\n") == text.count(b"\r\n") == before["squares.py"].count(b"\n") + 2
    assert b"\r\n@_put_squared  # kernel-evo: squared\r\n@announced" in text
    assert not list(place.folder.glob("test_*"))  # the user's pytest would collect it
    assert outcome(place, COUNTED).split() == ["1", "1", "1", "0", "0", "0", "0", "0"]
    assert place.take_out() and kept(place.root) == before
    assert not place.take_out()


@pytest.mark.slow
def test_a_put_builds_the_binding_where_it_can_and_says_so(squares: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX")
    said = list[str]()
    assert placed(squares, said=said)
    place = place_of(squares, "")
    assert len(list((place.folder / "cache").glob("binding-*.so"))) == 1
    assert any("its binding to torch is built" in line for line in said)
    assert not any("no binding to torch" in line for line in said)
    assert outcome(place, COUNTED).split() == ["1", "1", "1", "0", "0", "0", "0", "0"]
    assert place.take_out() and not place.folder.exists()


@pytest.mark.slow
def test_a_function_that_is_another_by_now_or_what_it_refers_to_loses_its_kernel_with_a_warning(
    squares: Subject,
) -> None:
    """A constant or a helper that is changed later changes its results, which the kernel knows nothing of. A kernel
    hides no call from a record, and goes out without its function."""
    assert placed(squares)
    place = place_of(squares, "")
    before = place.path.read_text()
    told = "import torch, squares; print(squares.squared(torch.ones(24) * 5)[0].item())"
    place.path.write_text(before + "\nUNRELATED = 1\n")
    assert outcome(place, told).split() == ["26.0"]
    place.path.write_text(before.replace("(*arguments, **named)\n\n", "(*arguments, **named) + 1\n\n"))
    said = outcome(place, told)
    assert said.startswith("27.0") and "is another by now" in said
    place.path.write_text(before.replace("row * row + more", "row + more"))
    said = outcome(place, told)
    assert said.startswith("6.0") and "the function, or what it refers to, is another by now" in said
    place.path.write_text(before)
    with pytest.raises(UserError, match="a kernel serves its calls"):
        record(f"{place.path}:squared", ["true"], place.root / "out.json")
    place.path.write_text(before.replace("def squared", "def cubed"))
    assert UserFunction.of(f"{place.path}:squared").take_out()
    assert not place.folder.exists() and "kernel-evo" not in place.path.read_text()


ENDINGS = {"exit 3": "fails with the kernel", "kill -INT $PPID; sleep 60": "", "kill -TERM $PPID; sleep 60": ""}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_everything_is_as_it_was_where_tests_fail_or_the_user_stops_it(squares: Subject, ending: str) -> None:
    place = place_of(squares, "")
    before, said = kept(place.root), list[str]()
    test = f"if [ -d {place.folder} ]; then {ending}; fi"
    if ENDINGS[ending]:
        assert not placed(squares, test, said) and ENDINGS[ending] in said[-1]
    else:
        with pytest.raises(KeyboardInterrupt):
            placed(squares, test)
    assert kept(place.root) == before


@pytest.mark.slow
def test_a_put_that_was_killed_is_undone_by_the_next(
    squares: Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = place_of(squares, "")
    before = kept(place.root)
    child = os.fork()
    if child == 0:  # a put whose tests kill it at once
        try:
            placed(squares, f"if [ -d {place.folder} ]; then kill -KILL $PPID; fi")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert place.state() == "testing" and kept(place.root) != before
    code, _, said = evo(monkeypatch, capsys, "put", "--undo", "--into", f"{place.path}:squared")
    assert code == 0 and "the kernel is taken out" in said
    assert kept(place.root) == before


def test_what_cannot_be_put_is_refused_before_anything_changes(squares: Subject, tmp_path: Path) -> None:
    place = place_of(squares, "")
    before = kept(place.root)
    with pytest.raises(UserError, match="fails before anything was changed"):
        placed(squares, "exit 4")
    with pytest.raises(UserError, match="changed meanwhile"):
        placed(squares, f"echo '# mine' >> {place.path}")
    assert kept(place.root) == {**before, "squares.py": before["squares.py"] + b"# mine\n"}
    place.path.write_bytes(before["squares.py"])
    squares.verdict["level"] = "full"  # type: ignore[index]
    with pytest.raises(UserError, match="not confirmed"):
        placed(squares)
    squares.verdict["level"] = "confirmed"  # type: ignore[index]
    place.folder.mkdir()
    (place.folder / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="nothing is overwritten"):
        placed(squares)
    assert kept(place.root) == {**before, "squared_kernel/mine.txt": b"mine"}
    shutil.rmtree(place.folder)
    place.path.write_text(SOURCE.replace("row * row", "row * 2"))
    with pytest.raises(UserError, match="changed since it was taken"):
        placed(squares)
    assert not place.folder.exists()


def test_what_a_put_will_gain_is_said_with_every_figure_and_before_it(
    squares: Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = SimpleNamespace(config={"operators": ["softmax", str(squares.operator.folder)]})
    (line,) = taken_lines(cast(Run, run))
    assert line.startswith("squared: times are from cold caches") and "evo put" in line and "\n" not in line
    monkeypatch.setattr("evo.folders.find_run", lambda *_: Path())
    monkeypatch.setattr("evo.api.Run", lambda _: run)
    monkeypatch.setattr("evo.packaging.package.from_run", lambda *_: squares)
    code, out, said = evo(monkeypatch, capsys, "put")
    assert code == 2 and BEFOREHAND in out and "say --yes" in said


@pytest.mark.slow
def test_a_kernel_with_other_results_than_the_function_is_refused(squares: Subject) -> None:
    place = place_of(squares, "")
    call_file = squares.operator.folder / ORIGIN / CALL
    place.path.write_text(SOURCE.replace("row * row + more", "row * row * 1.1 + more"))
    way = json.loads(call_file.read_text()) | {"source": source_digest(place.path, "squared")}
    call_file.write_text(json.dumps(way))
    before = kept(place.root)
    with pytest.raises(UserError, match="results differ by"):
        placed(squares)
    assert kept(place.root) == before


# --- whole repositories -----------------------------------------------------------------------------------------------

WHOLE = {
    "torch_module": ("norms/layers.py:gated_norm", ["serve.py", "9"], "", 2),
    "triton_function": ("softcap.py:softcap", ["softcap.py"], "", 2),
    "cuda_extension": ("bias_gelu/ops.py:bias_gelu", ["use.py"], "bias_gelu/reference.py:bias_gelu_reference", 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_long(WHOLE, ["triton_function"]))
def test_a_repository_gets_a_kernel_of_its_own_function_and_loses_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    function, program, reference, workloads = WHOLE[name]
    repository = tmp_path / name
    shutil.copytree(REPOSITORIES / name, repository)
    monkeypatch.chdir(repository)
    before = kept(repository)
    code, out, _ = evo(monkeypatch, capsys, "record", function, "--", sys.executable, *program)
    assert code == 0 and "float32" in out and "then: evo take" in out
    more = ["--reference", reference] if reference else []
    code, out, said = evo(monkeypatch, capsys, "take", function, *more, "--out", str(tmp_path / "made"))
    assert code == 0, said
    operator = load(str(tmp_path / "made"))
    assert len(operator.workload_set("cpu")) == len(operator.workload_set("realistic")) == workloads
    counts = [each.weight for each in operator.workload_set("realistic")]
    assert sum(counts) == {"torch_module": 9, "triton_function": 3, "cuda_extension": 8}[name]
    subject = confirmed(tmp_path / "made", [each.name for each in operator.workload_set("cpu")])
    (repository / "shapes.json").unlink()
    lines = list[str]()
    assert placed(subject, PYTEST, lines), lines
    assert any("the kernel served 2 of" in line for line in lines), lines
    place = place_of(subject, "")
    code, _, _ = evo(monkeypatch, capsys, "put", "--undo", "--into", f"{place.path}:{place.name}")
    assert code == 0 and kept(repository) == before
