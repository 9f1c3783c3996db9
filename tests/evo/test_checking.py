"""`evo check`: naive kernels are right, mutants of them are refused, and survivors are shown with what was changed."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evo import check_operator
from evo.check_operator import Report, Survivor, TaskCheck
from evo.cli.commands import app
from fitness import targets
from fitness.judging.mutation_test import MutationTest
from mutators.mutants import Mutant
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import UserError
from operators.kernel import Kernel

AXPB = Path(__file__).parents[1] / "data" / "axpb"
BLIND = {
    'formula = "y[i] = alpha * x[i] + b[i]"': 'formula = "y[i] = max(x[i], 0) + b[i]"',
    'cuda = ["fp32", "bf16"]': 'cuda = ["fp32"]',
    'name = "x"\nrole = "in"\nshape = ["n"]\ndistribution = "uniform(-1, 1)"': (
        'name = "x"\nrole = "in"\nshape = ["n"]\ndistribution = "uniform(1, 2)"'
    ),
    "n = [1, 3, 7, 16, 31, 64, 100, 1000, 1023, 2048]": "n = [1, 100, 1023]",
}
"""Inputs that never show what the maximum is for."""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides GPUs, so that the cuda target is emulated and nothing is timed."""
    monkeypatch.setattr(targets, "present_target", lambda named: "cpu")


def changed(folder: Path, edits: dict[str, dict[str, str]]) -> str:
    """A copy of an operator with other text in its files."""
    shutil.copytree(AXPB, folder)
    for file, pairs in edits.items():
        path = folder / file
        text = path.read_text(encoding="utf-8")
        for old, new in pairs.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    return str(folder)


def checked(folder: str, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["check", folder, "--target", "cuda", "--json", *options], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def test_a_check_ends_with_whether_the_operator_is_ready_and_why_not() -> None:
    judged = TaskCheck("axpb/fp32/cpu", "2 cores", "correct", level="confirmed", mutants=30, refused=30)
    emulated = TaskCheck("axpb/fp32/cuda", "no GPU here", "correct", mutants=25, refused=22)
    said = partial(Report("axpb", "axpb", "", [], [judged, emulated]).verdict, strict=False)
    assert said() == "axpb is ready; without a verdict yet: axpb/fp32/cuda"
    emulated.survivors = [Survivor(n, "a bound off by one", False, "") for n in range(3)]
    assert said() == "axpb is not ready: axpb/fp32/cuda: 3 of 25 mutants survived"
    judged.status = "compile_error"
    wrong = "axpb/fp32/cpu: the naive kernel is not right (compile error)"
    assert said() == f"axpb is not ready: {wrong}; axpb/fp32/cuda: 3 of 25 mutants survived"


@pytest.mark.slow
def test_inputs_that_do_not_tell_right_from_wrong_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("one branch for both", "inputs in a lower precision", "the last block not launched")
    monkeypatch.setattr(check_operator, "chosen", lambda found, most: [m for m in found if m.kind in kinds])
    reference = {"return alpha * x + b": "return x.clamp(min=0) + b", "abs(alpha) * x.abs()": "x.abs()"}
    kernel = {"load(alpha) * load(x[i])": "(load(x[i]) > 0 ? load(x[i]) : 0)"}
    folder = changed(tmp_path / "mine", {"operator.toml": BLIND, "reference.py": reference, "naive.cu": kernel})
    code, report = checked(folder)
    (task,) = report["tasks"]
    assert (task["task"], task["status"]) == ("axpb/fp32/cuda", "correct")
    assert (task["mutants"], task["refused"]) == (4, 3)
    (survivor,) = task["survivors"]
    assert (survivor["kind"], survivor["differs"]) == ("one branch for both", False)
    assert "+    if (i < n) y[i] = store((load(x[i])) + load(b[i]));" in survivor["diff"]
    assert code == 1
    assert report["passed"] is False
    assert any("multiples of 32" in note for note in report["notes"])


def test_a_naive_kernel_that_is_wrong_is_said_and_has_no_mutants(tmp_path: Path) -> None:
    wrong = {
        "naive.cu": {"+ load(b[i])": "- load(b[i])"},
        "operator.toml": {'cuda = ["fp32", "bf16"]': 'cuda = ["fp32"]'},
    }
    code, report = checked(changed(tmp_path / "mine", wrong))
    (task,) = report["tasks"]
    assert (code, task["status"], task["mutants"]) == (1, "wrong", 0)
    assert "out of bounds" in task["message"]


def test_a_mutant_whose_results_differ_within_the_bound_is_told_from_others(tmp_path: Path) -> None:
    source = (AXPB / "naive.cpp").read_text(encoding="utf-8")
    operator = load(str(AXPB))
    kernels = {
        "rounded otherwise": source.replace("load(x[i]) + load(b[i])", "(load(x[i]) + load(b[i]) / load(alpha))"),
        "a comment": source.replace("for (int i", "/* the same */ for (int i"),
        "wrong": source.replace("i < n;", "i < n - 1;"),
    }
    tried = targets.place(operator, Task("axpb", "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    admission = MutationTest(tried, Kernel("axpb", "cpu", source), operator.hidden)
    try:
        assert admission.naive().rejection is None
        found = {name: admission.tried(Kernel("axpb", "cpu", text)) for name, text in kernels.items()}
    finally:
        admission.close()
    assert (found["rounded otherwise"].rejection, found["rounded otherwise"].differs) == (None, True)
    assert found["a comment"].same_code
    assert found["wrong"].rejection is not None
    assert found["wrong"].rejection.status == "wrong"


@pytest.mark.slow
def test_a_mutant_that_differs_by_rounding_alone_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = "load(alpha) * load(x[i]) + load(b[i])"
    others = {
        "rounded otherwise": "load(alpha) * (load(x[i]) + load(b[i]) / load(alpha))",
        "hidden by rounding": "load(alpha) * load(x[i]) + (load(b[i]) + load(x[i]) * T(1e-8))",
    }

    def made(kernel: Kernel, _: object) -> list[Mutant]:
        changed = {kind: kernel.source.replace(right, text) for kind, text in others.items()}
        return [Mutant(kind, 1, Kernel(kernel.operator, kernel.target, text)) for kind, text in changed.items()]

    monkeypatch.setattr(check_operator, "mutants", made)
    folder = changed(tmp_path / "mine", {"operator.toml": {'cuda = ["fp32", "bf16"]': 'cuda = ["fp32"]'}})
    code, report = checked(folder)
    (task,) = report["tasks"]
    assert {s["kind"]: (s["differs"], s["rounded"]) for s in task["survivors"]} == {
        "rounded otherwise": (True, True),
        "hidden by rounding": (True, False),
    }
    assert code == 1
    del others["hidden by rounding"]
    assert checked(folder)[0] == 0


def test_what_cannot_be_checked_is_one_line(tmp_path: Path) -> None:
    unknown = {"naive.cu": {'"ceil_div(n, 256)"': '"ceil_div(m, 256)"'}}
    with pytest.raises(UserError, match=r"naive.cu:line 4: .*unknown name `m`"):
        checked(changed(tmp_path / "mine", unknown))
    lacking = changed(tmp_path / "lacking", {})
    Path(lacking, "naive.cu").unlink()
    with pytest.raises(UserError, match=r"lacking: naive.cu is missing"):
        checked(lacking)
    with pytest.raises(UserError, match="--limit 3evals: write a time"):
        checked(str(AXPB), "--limit", "3evals")


def test_a_naive_kernel_may_take_as_much_shared_memory_as_gpus_have_and_not_all_sizes(tmp_path: Path) -> None:
    code = {
        "/*! evo": '/*! evo\nrequires = "n >= 7"',
        "ceil_div(n, 256)": "n - 6",
        "block = [256]": 'block = [8]\nshared = "64 * 1024"',
    }
    shared = {
        "naive.cu": code,
        "operator.toml": {'cuda = ["fp32", "bf16"]': 'cuda = ["fp32"]'},
    }
    exit_code, report = checked(changed(tmp_path / "mine", shared), "--mutants", "0")
    assert (exit_code, report["tasks"][0]["status"]) == (0, "correct")
