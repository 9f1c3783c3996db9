"""Kernel files whose headers say that functions are left to write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evo.check_operator import check
from evo.config import RunConfig
from evo.evaluate import evaluate_file
from operators.catalog import load
from operators.errors import PlanError, UnwrittenError, UserError
from operators.plan.reading import left_to_write, parse_plan
from tests.operators.sample import OPERATOR, header

LAUNCH = '[[launch]]\nkernel = "rows<32, T>"\ngrid = [1]\nblock = [32]\n'


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """An operator whose kernel for cpus is left to write."""
    folder = tmp_path / "softplus"
    shutil.copytree(load("softplus").folder, folder)
    kernel = folder / "naive.cpp"
    text = kernel.read_text(encoding="utf-8")
    kernel.write_text(text.replace("/*! evo\n", '/*! evo\nunwritten = ["softplus"]\n'), encoding="utf-8")
    return folder


def test_functions_that_are_left_to_write_are_named_with_their_line() -> None:
    with pytest.raises(UnwrittenError) as error:
        parse_plan(header(f'unwritten = ["rows"]\n{LAUNCH}'), OPERATOR, "cuda", name="k.cu")
    said = "k.cu:line 2: rows() is left to write: write it, then take `unwritten` out of the header"
    assert str(error.value) == said
    parse_plan(header(f"unwritten = []\n{LAUNCH}"), OPERATOR, "cuda")


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ('["row"]', "line 2: `unwritten` may name functions of launches: unknown function `row`; did you mean `rows`?"),
        ("[3]", "line 2: `unwritten` may name functions of launches: holds 3"),
        ("true", 'line 2: `unwritten` must be a list such as ["rows"], not true'),
    ],
)
def test_mistakes_in_what_is_left_to_write(listed: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan(header(f"unwritten = {listed}\n{LAUNCH}"), OPERATOR, "cuda")
    assert str(error.value) == message and not isinstance(error.value, UnwrittenError)


def test_a_run_and_an_evaluation_begin_with_no_kernel_that_is_left_to_write(left: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.cpp"
    shutil.copy(load("softplus").ancestor("naive", "cpu"), other)
    with pytest.raises(UserError, match=r"naive\.cpp:line 2: softplus\(\) is left to write"):
        RunConfig(operators=[str(left)]).resolved()
    for file in (left / "naive.cpp", other):  # the naive kernel is the baseline
        with pytest.raises(UserError, match=r"naive\.cpp:line 2: softplus\(\) is left to write"):
            evaluate_file(str(left), file, target="cpu", dtype="fp32", values=[], workload_set="cpu")


def test_other_tasks_of_a_run_go_on(left: Path) -> None:
    assert RunConfig(operators=["elu", str(left)]).resolved().operators == ["elu", str(left)]


def test_a_check_tells_once_what_is_left_to_write(left: Path) -> None:
    said: list[str] = []
    report = check(str(left), targets=["cpu"], limit_s=1, most=0, say=said.append)
    assert not report.passed(strict=False) and [task.status for task in report.tasks] == ["unwritten"] * len(
        report.tasks
    )
    assert said[-1] == left_to_write(left / "naive.cpp", load(str(left)), "cpu")
    assert [line for line in said if "left to write" in line] == said[-1:]
