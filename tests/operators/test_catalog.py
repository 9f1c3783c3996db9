"""Finding operators, and calling the functions of reference.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from operators import catalog
from operators.catalog import Functions, folders, functions, load
from operators.errors import OperatorError

TOML = """
name = "double"
family = "test"
formula = "y = 2 x"
dims = ["n"]
{data_dims}

[dtypes]
cpu = ["fp32"]

[[tensor]]
name = "x"
role = "in"
shape = ["n"]
{distribution}

[[tensor]]
name = "y"
role = "out"
shape = ["n"]
{more}

[[workload]]
set = "cpu"
dims = {{ n = 8 }}

[[hidden]]
dims = {{ n = 1 }}

[cost]
flops = "n"
min_flops = "n"
min_bytes = "8 * n"

[tolerance]
bound = "rounding"
"""
REFERENCE = "def reference(x):\n    return 2 * x\n"


def write(
    folder: Path,
    reference: str | None = REFERENCE,
    *,
    distribution: str = 'distribution = "uniform(0, 1)"',
    data_dims: str = "",
    more: str = "",
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "operator.toml").write_text(TOML.format(distribution=distribution, data_dims=data_dims, more=more))
    if reference is not None:
        (folder / "reference.py").write_text(reference)
    return folder


def offered(folder: Path, reference: str, **options: str) -> Functions:
    return functions(write(folder, reference, **options))


def test_bundled_operators_are_called_like_their_folders() -> None:
    assert {"softmax", "matrix_mul", "spmv_csr"} <= set(folders())
    for name, folder in folders().items():
        operator = load(name)
        assert (operator.name, operator.family) == (name, folder.parent.name)
        assert operator.folder == folder
    assert len({path.parent.name for path in catalog.ROOT.glob("*/*/operator.toml")}) == len(folders())


def test_an_operator_is_read_once() -> None:
    assert load("softmax") is load("softmax")


def test_a_folder_of_ones_own_is_an_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "double")
    monkeypatch.chdir(tmp_path)
    assert load("./double").folder == tmp_path / "double"
    assert load(str(tmp_path / "double")) == load("./double")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("~/double").folder == tmp_path / "double"


def test_the_same_relative_name_elsewhere_is_another_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        write(tmp_path / place / "double")
        monkeypatch.chdir(tmp_path / place)
        assert load("./double").folder == tmp_path / place / "double"


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(OperatorError, match="unknown operator `softmx`; did you mean `softmax`"):
        load("softmx")
    with pytest.raises(OperatorError, match=r"unknown operator `qqq`; the nearest of \d+ are (\w+, ){4}\w+$"):
        load("qqq")


def test_a_folder_beside_the_user_is_hinted_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "qqq")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OperatorError, match=r"unknown operator `qqq`; .*; for the folder beside you write \./qqq"):
        load("qqq")


def test_functions_are_called_with_what_they_name(tmp_path: Path) -> None:
    f = offered(tmp_path, "def reference(x, n, factor=2, *, shift=0):\n    return factor * x + n + shift\n")
    assert f.reference({"x": 10, "n": 1, "unused": 7}) == {"y": 21}
    assert f.reference({"x": 10, "n": 1, "factor": 3, "shift": 5}) == {"y": 36}


def test_an_argument_that_does_not_exist_is_named(tmp_path: Path) -> None:
    f = offered(tmp_path, "def reference(x, rows):\n    return x\n")
    with pytest.raises(OperatorError, match=r"reference\.py: reference\(\): unknown argument `rows`; allowed are n, x"):
        f.reference({"x": 1, "n": 2})


def test_arguments_without_names_are_refused(tmp_path: Path) -> None:
    f = offered(tmp_path, "def reference(*tensors):\n    return tensors[0]\n")
    with pytest.raises(OperatorError, match=r"reference\(\): `\*tensors` has no name to be called by"):
        f.reference({"x": 1})


def test_a_missing_function_is_named(tmp_path: Path) -> None:
    f = offered(tmp_path, REFERENCE)
    assert not f.offers("library")
    assert f.magnitude({"x": 1}) is None
    assert f.prepare({"x": 1}) is None
    with pytest.raises(OperatorError, match=r"reference\.py: `def library\(\.\.\.\)` is missing"):
        f.library({"x": 1})


def test_preparation_is_handed_to_the_library_call(tmp_path: Path) -> None:
    text = REFERENCE + "def prepare(x):\n    return [x]\ndef library(prepared, x):\n    return prepared + [x]\n"
    f = offered(tmp_path, text)
    values = {"x": 4}
    assert f.library(values | {"prepared": f.prepare(values)}) == [4, 4]


def test_results_go_by_output_name(tmp_path: Path) -> None:
    second = '[[tensor]]\nname = "z"\nrole = "out"\nshape = ["n"]'
    f = offered(tmp_path / "both", "def reference(x):\n    return {'z': 1, 'y': x}\n", more=second)
    assert f.reference({"x": 5}) == {"y": 5, "z": 1}
    f = offered(tmp_path / "one", "def reference(x):\n    return {'y': x}\n", more=second)
    with pytest.raises(OperatorError, match=r"reference\(\) must return y, z by name, not y"):
        f.reference({"x": 5})
    f = offered(tmp_path / "tuple", "def reference(x):\n    return x, x\n", more=second)
    with pytest.raises(OperatorError, match=r"reference\(\) must return y, z by name, not tuple"):
        f.reference({"x": 5})


def test_cancelling_inputs_go_by_the_names_of_inputs(tmp_path: Path) -> None:
    assert offered(tmp_path / "good", REFERENCE + "def cancel(x):\n    return {'x': -x}\n").changed(
        "cancel", {"x": 3}
    ) == {"x": -3}
    f = offered(tmp_path / "output", REFERENCE + "def cancel(x):\n    return {'y': x}\n")
    with pytest.raises(OperatorError, match=r"cancel\(\) must return some of x by name, not y"):
        f.changed("cancel", {"x": 3})
    f = offered(tmp_path / "tensor", REFERENCE + "def cancel(x):\n    return x\n")
    with pytest.raises(OperatorError, match=r"cancel\(\) must return some of x by name, not int"):
        f.changed("cancel", {"x": 3})


def test_an_operator_may_declare_no_relations(tmp_path: Path) -> None:
    assert offered(tmp_path / "none", REFERENCE).relations({"x": 3}) == []
    assert offered(tmp_path / "some", REFERENCE + "def relations(x):\n    return (x, 4)\n").relations({"x": 3}) == [
        3,
        4,
    ]


BAD = {
    "no file": (None, {}, "reference.py: no such file; reference.py defines reference(...) in fp64 torch"),
    "no reference": ("x = 1\n", {}, "`def reference(...)` is missing; it computes the outputs in fp64"),
    "reference is no function": ("reference = 3\n", {}, "`def reference(...)` is missing"),
    "no inputs": (
        REFERENCE,
        {"distribution": ""},
        "`def inputs(...)` is missing; it makes x, which operator.toml gives",
    ),
    "no data_dims": (
        REFERENCE,
        {"data_dims": '[data_dims]\nlongest = "row"'},
        "`def data_dims(...)` is missing; it tells",
    ),
    "syntax": ("def reference(:\n", {}, "reference.py: cannot be imported: SyntaxError: invalid syntax"),
    "module": (
        "import no_such_module\n",
        {},
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "its own missing file": ("open('/no/such/file')\n", {}, "cannot be imported: FileNotFoundError: [Errno 2]"),
    "message of several lines": ("raise ValueError('a\\nb')\n", {}, "cannot be imported: ValueError: a b"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_reference_file_is_told_what_is_wrong(tmp_path: Path, case: str) -> None:
    reference, options, phrase = BAD[case]
    folder = write(tmp_path / "double", reference, **options)
    with pytest.raises(OperatorError) as caught:
        functions(folder)
    assert phrase in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_listing_and_loading_operators_does_not_import_torch() -> None:
    program = """
import sys
from operators.catalog import folders, load
for name in folders():
    load(name)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
