"""The parts of an operator's folder that count as its definition."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.catalog import folders, load
from operators.definition import forms
from operators.definition.fingerprint import _code, fingerprint
from operators.definition.reading import read_operator
from tests.conftest import DATA


def of(folder: Path, target: str = "cpu") -> dict[str, str]:
    return fingerprint(read_operator(folder), target=target, workload_set="cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "axpb", tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__")))


def test_a_helper_and_its_data_belong_to_it_and_notes_do_not(folder: Path) -> None:
    before = of(folder)
    (folder / "helper.py").write_text("x = 1")
    (folder / "weights.npz").write_bytes(b"\x00")
    for name in ("notes.md", "other.cpp", ".hidden", "reference.py~"):
        (folder / name).write_text("1")
    assert set(of(folder)) - set(before) == {"helper.py", "weights.npz"}


def test_only_the_workloads_that_are_timed_count(folder: Path) -> None:
    before = of(folder)
    toml = folder / "operator.toml"
    toml.write_text(toml.read_text() + '\n[[workload]]\nset = "realistic2"\ndims = { n = 5 }\n')
    assert of(folder) == before
    toml.write_text(toml.read_text() + '\n[[workload]]\nset = "cpu"\ndims = { n = 5 }\n')
    assert {name for name, value in of(folder).items() if before[name] != value} == {"operator.toml: workload"}


def test_what_is_only_reported_does_not_count_and_a_dim_of_that_name_does(folder: Path) -> None:
    toml = folder / "operator.toml"
    toml.write_text(re.sub(r"\bn\b", "weight", toml.read_text()))
    before = of(folder)
    plain = toml.read_text()
    toml.write_text(plain.replace("[cost]\n", '[cost]\nbytes = "99 * weight"\n'))
    assert of(folder) == before
    toml.write_text(plain.replace("{ weight = [", "{ weight = [77, "))
    changed = {name for name, value in of(folder).items() if before[name] != value}
    assert changed == {"operator.toml: workload", "operator.toml: hidden"}


def test_the_naive_kernel_is_the_targets(folder: Path) -> None:
    cpu, cuda = of(folder), of(folder, "cuda")
    (folder / "naive.cpp").write_text((folder / "naive.cpp").read_text() + "\n")
    assert of(folder, "cuda") == cuda
    assert of(folder) != cpu


def test_what_a_form_says_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elu = folders()["elu"]
    assert 'like = "elementwise"' in (elu / "operator.toml").read_text()
    before = of(elu)
    monkeypatch.setattr(forms, "FORMS", Path(shutil.copytree(forms.FORMS, tmp_path / "forms")))
    assert of(elu) == before
    form = forms.FORMS / "elementwise.toml"
    form.write_text(form.read_text().replace('bound = "rounding"', 'bound = "measured"'))
    assert {name for name, value in of(elu).items() if before[name] != value} == {"operator.toml: tolerance"}


def test_every_operator_has_one() -> None:
    for name in folders():
        operator = load(name)
        for target in operator.dtypes:
            found = fingerprint(operator, target=target, workload_set="cpu")
            assert {"reference.py", operator.ancestor("naive", target).name, "operator.toml: tolerance"} <= set(found)


LINES = st.sampled_from(["x = 1", "y = '#'", 'z = """a', "#b", '"""', "f(1)", "", "  ", "w = 'it''s'"])


@given(lines=st.lists(LINES), noise=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["# c", "", "   # d"]))))
def test_comments_between_statements_never_count(
    lines: list[str], noise: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("code") / "a.py"
    plain = [line for line in lines if '"""' not in line]
    file.write_text("\n".join(plain))
    before = _code(file)
    for place, text in noise:
        plain.insert(place, text)
    file.write_text("\n".join(plain))
    assert _code(file) == before


def test_a_hash_within_a_string_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    texts = []
    for text in ("x = '# a'\n", "x = '# b'\n", "x = ''' # a\n# b\n'''\n", "x = ''' # a\n# c\n'''\n", "x = (\n"):
        file.write_text(text)
        texts.append(_code(file))
    assert len(set(texts)) == len(texts)
