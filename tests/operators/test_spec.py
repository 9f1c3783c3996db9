"""operator.toml: what a good one becomes, and what a bad one is told."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.catalog import load
from operators.definition.reading import read_operator
from operators.definition.spec import Distribution, Operator, Task
from operators.errors import MachineError, OperatorError
from tests.choosing import examples

GOOD = """
name = "scale_rows"
family = "test"
formula = "y[r, c] = alpha * x[r, c]"
dims = ["rows", "cols"]

[derived]
half = "cols // 2"
pairs = "rows * half"

[data_dims]
longest = "longest row"

[dtypes]
cpu = ["fp32"]
cuda = ["fp32", "bf16"]

[[tensor]]
name = "x"
role = "in"
shape = ["rows", "cols"]
distribution = "uniform(-1, 1)"

[[tensor]]
name = "index"
role = "in"
dtype = "int32"
shape = ["longest + 1"]
distribution = "integers(0, 9)"

[[tensor]]
name = "y"
role = "out"
shape = ["rows", "cols"]

[[scalar]]
name = "alpha"
dtype = "fp32"
value = 0.5

[[scalar]]
name = "count"
dtype = "int32"
value = 3

[[workload]]
set = "cpu"
source = "a grid"
dims = { rows = [4, 8], cols = "rows * 2" }
weight = "rows * half"

[[workload]]
set = "published"
dims = { rows = 16, cols = [6, 10] }

[[hidden]]
dims = { rows = 1, cols = 7 }

[cost]
flops = "2 * rows * cols"
min_flops = "rows * cols"
min_bytes = "2 * sizeof_T * rows * cols"

[tolerance]
bound = "rounding"
terms = "longest"
"""


def read(folder: Path, text: str) -> Operator:
    (folder / "operator.toml").write_text(text, encoding="utf-8")
    return read_operator(folder)


def test_everything_a_file_declares_arrives(tmp_path: Path) -> None:
    operator = read(tmp_path, GOOD)
    assert (operator.name, operator.family, operator.dims) == ("scale_rows", "test", ("rows", "cols"))
    assert [t.name for t in operator.inputs] == ["x", "index"]
    assert [t.name for t in operator.outputs] == ["y"]
    assert operator.tensors[0].dtype == "T"
    assert operator.tensors[0].distribution == Distribution("uniform", -1, 1)
    assert operator.tensors[2].distribution is None
    assert [(s.name, s.dtype, s.value) for s in operator.scalars] == [("alpha", "fp32", 0.5), ("count", "int32", 3)]
    assert operator.dtypes == {"cpu": ("fp32",), "cuda": ("fp32", "bf16")}
    assert operator.shape_names == {"rows", "cols", "half", "pairs", "longest"}
    assert operator.names == operator.shape_names | {"x", "index", "y", "alpha", "count"}
    assert operator.tolerance.bound == "rounding"
    assert not operator.tolerance.exact_integers
    assert [t.specials for t in operator.tensors] == [("zero",), (), ()]
    assert operator.folder == tmp_path


def test_what_the_oracle_is_told_arrives(tmp_path: Path) -> None:
    text = GOOD.replace('bound = "rounding"', 'bound = "measured"\nexact_integers = true')
    text = text.replace('"uniform(-1, 1)"', '"uniform(-1, 1)"\nspecials = ["inf", "nan"]')
    operator = read(tmp_path, text)
    assert operator.tolerance.bound == "measured"
    assert operator.tolerance.exact_integers
    assert operator.tensors[0].specials == ("inf", "nan")


@pytest.mark.parametrize(
    ("law", "more", "bounded", "specials"),
    [
        ("uniform(3, 4)", "", True, ()),
        ("uniform(-4, -3)", "", True, ()),
        ("integers(2, 9)", "", True, ()),
        ("uniform(0, 1)", "", False, ("zero",)),
        ("normal(5, 1)", "", False, ("zero",)),
        ("uniform(-1, 1)", "bounded = true", True, ()),
        ("uniform(3, 4)", "bounded = false", False, ("zero",)),
        ("uniform(3, 4)", 'specials = ["zero"]', True, ("zero",)),
    ],
)
def test_a_range_that_leaves_out_zero_is_kept_to_unless_the_file_says_otherwise(
    tmp_path: Path, law: str, more: str, bounded: bool, specials: tuple[str, ...]
) -> None:
    tensor = read(tmp_path, GOOD.replace('"uniform(-1, 1)"', f'"{law}"\n{more}')).tensors[0]
    assert (tensor.bounded, tensor.specials) == (bounded, specials)


def test_lists_of_dims_multiply_and_formulas_use_the_dims_before_them(tmp_path: Path) -> None:
    operator = read(tmp_path, GOOD)
    assert [w.name for w in operator.workload_set("cpu")] == ["rows=4,cols=8", "rows=8,cols=16"]
    assert [w.weight for w in operator.workload_set("cpu")] == [16, 64]
    assert {w.source for w in operator.workload_set("cpu")} == {"a grid"}
    assert [w.name for w in operator.workload_set("published")] == ["rows=16,cols=6", "rows=16,cols=10"]
    assert [(w.set, w.name) for w in operator.hidden] == [("hidden", "rows=1,cols=7")]


def test_environments_add_derived_dims_and_sizes(tmp_path: Path) -> None:
    operator = read(tmp_path, GOOD)
    dims = {"rows": 3, "cols": 10}
    assert operator.environment(dims) == {"rows": 3, "cols": 10, "half": 5, "pairs": 15}
    env = operator.cost_environment(dims, "bf16")
    assert (env["sizeof_T"], env["sizeof_ACC"]) == (2, 4)
    assert operator.min_bytes.evaluate(env) == 2 * 2 * 30


def test_sets_are_joined_in_their_order_and_have_each_workload_once(tmp_path: Path) -> None:
    operator = read(tmp_path, GOOD)
    joined = operator.workload_set("published+cpu")
    assert [w.name for w in joined[:2]] == [w.name for w in operator.workload_set("published")]
    assert len({w.name for w in joined}) == len(joined)
    assert {w.name for w in joined} == {w.name for s in ("cpu", "published") for w in operator.workload_set(s)}
    assert [w.name for w in operator.workload_set("cpu+cpu")] == [w.name for w in operator.workload_set("cpu")]
    with pytest.raises(OperatorError, match="no workload set `gpu`"):
        operator.workload_set("published+gpu")


def test_a_set_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no workload set `gpu`; there are cpu, published"):
        read(tmp_path, GOOD).workload_set("gpu")


def test_ancestors_have_the_suffix_of_their_target(tmp_path: Path) -> None:
    operator = read(tmp_path, GOOD)
    assert operator.ancestor("naive", "cpu") == tmp_path / "naive.cpp"
    assert operator.ancestor("naive", "cuda") == tmp_path / "naive.cu"


BAD = {
    # What a typing error makes of the file.
    "not TOML": ('name = "scale_rows"', "name = scale_rows", "not valid TOML: Invalid value (at line 2"),
    "key that does not exist": ("[cost]", "[costs]\nx = 1\n[cost]", "`costs` is not a key that exists here"),
    "nested key that does not exist": ('set = "cpu"', 'set = "cpu"\nwieght = 3', "`workload[0].wieght` is not a key"),
    "missing key": ('formula = "y[r, c] = alpha * x[r, c]"\n', "", "`formula` is missing"),
    "missing nested key": ('\nflops = "2 * rows * cols"\n', "\n", "`cost.flops` is missing"),
    "bytes that only data tell": (
        'min_bytes = "2 * sizeof_T * rows * cols"\n',
        "",
        "`cost.min_bytes` is missing",
    ),
    "wrong type": ('dims = ["rows", "cols"]', 'dims = "rows"', "`dims`: input should be a valid list, not 'rows'"),
    "no dims": ('dims = ["rows", "cols"]', "dims = []", "`dims`: list should have at least 1 item"),
    "wrong role": ('role = "out"', 'role = "output"', "`tensor[2].role`: input should be 'in', 'out' or 'inout', not"),
    "wrong bound": (
        'bound = "rounding"',
        'bound = "loose"',
        "`tolerance.bound`: input should be 'bits', 'exact', 'rounding' or 'measured'",
    ),
    "fraction as a size": ("rows = 16,", "rows = 1.5,", "`workload[1].dims.rows`: write an integer or a formula"),
    "truth value as a size": ("rows = 16,", "rows = true,", "`workload[1].dims.rows`: write an integer or a formula"),
    "formula in a list": ("cols = [6, 10]", 'cols = [6, "rows"]', "a list of sizes holds one integer or more"),
    "empty list": ("cols = [6, 10]", "cols = []", "a list of sizes holds one integer or more"),
    "fraction as a weight": ('weight = "rows * half"', "weight = 0.5", "`workload[0].weight`: write an integer"),
    # Names.
    "operator name": ('"scale_rows"', '"scale rows"', "name: 'scale rows' is not an identifier"),
    "dim name": (
        '"rows", "cols"]\n\n[derived]',
        '"rows", "cols", "2d"]\n\n[derived]',
        "a dim is called '2d'; names are",
    ),
    "name of the prelude": ('name = "y"', 'name = "load"', "a tensor is called `load`, which is reserved"),
    "C++ keyword": ('name = "alpha"', 'name = "float"', "a scalar is called `float`, which is reserved"),
    "Python keyword": ('name = "alpha"', 'name = "lambda"', "a scalar is called `lambda`, which is reserved"),
    "argument of reference.py": ('name = "alpha"', 'name = "rng"', "a scalar is called `rng`, which is reserved"),
    "two meanings": ('name = "alpha"', 'name = "rows"', "`rows` is both a dim and a scalar; names must differ"),
    "declared twice": ('name = "alpha"', 'name = "count"', "a scalar called `count` is declared twice"),
    # Types.
    "no dtypes": ('cpu = ["fp32"]\ncuda = ["fp32", "bf16"]', "", 'dtypes: name at least one, such as cpu = ["fp32"]'),
    "no such target": ('cpu = ["fp32"]', 'gpu = ["fp32"]', "dtypes.gpu: no such target; there are cpu, cuda"),
    "no such T": ('cpu = ["fp32"]', 'cpu = ["float"]', "dtypes.cpu: 'float' cannot be T; allowed are fp64, fp32, fp16"),
    "T that C++ lacks": ('cpu = ["fp32"]', 'cpu = ["bf16"]', "dtypes.cpu: the cpu target has no bf16"),
    "dtype twice": ('["fp32", "bf16"]', '["fp32", "fp32"]', "dtypes.cuda: fp32 stands twice"),
    "no such dtype": ('dtype = "int32"\nshape', 'dtype = "int"\nshape', "`index` has dtype 'int'; allowed are T, ACC,"),
    "dtype that C++ lacks": ('dtype = "fp32"\nvalue', 'dtype = "bf16"\nvalue', "the cpu target has no bf16"),
    "scalar's value": ("value = 3", "value = 3.5", "scalar[1] `count`: int32 needs an integer, not 3.5"),
    "scalar's range": ("value = 3", "value = 3000000000", "`count`: 3000000000 exceeds what int32 holds"),
    # Distributions.
    "distribution's name": (
        "uniform(-1, 1)",
        "gaussian(0, 1)",
        "tensor[0] `x`: distribution 'gaussian(0, 1)': write uni",
    ),
    "distribution's numbers": ("uniform(-1, 1)", "uniform(-1, 1.2.3)", "write uniform(low, high), normal(mean, sd) or"),
    "distribution's order": (
        "uniform(-1, 1)",
        "uniform(1, -1)",
        "'uniform(1, -1)': the bounds are the wrong way round",
    ),
    "deviation below 0": ("uniform(-1, 1)", "normal(0, -1)", "'normal(0, -1)': the standard deviation is negative"),
    "infinite bound": ("uniform(-1, 1)", "uniform(0, 1e999)", "'uniform(0, 1e999)': both numbers must be finite"),
    "fractional bound": ("integers(0, 9)", "integers(0, 9.5)", "'integers(0, 9.5)': both bounds must be integers"),
    "fractions for integers": (
        "integers(0, 9)",
        "uniform(0, 9)",
        "`index`: int32 needs a distribution integers(low, h",
    ),
    "range of integers": (
        "integers(0, 9)",
        "integers(0, 1e10)",
        "`index`: distribution 'integers(0, 1e10)' exceeds wha",
    ),
    "distribution of an output": (
        'role = "out"',
        'role = "out"\ndistribution = "normal(0, 1)"',
        "an output has no dist",
    ),
    "no output": ('role = "out"', 'role = "in"\ndistribution = "normal(0, 1)"', "no tensor has the role out or inout"),
    "no such special": (
        'distribution = "uniform(-1, 1)"',
        'distribution = "uniform(-1, 1)"\nspecials = ["infinity"]',
        "`tensor[0].specials[0]`: input should be 'zero', 'subnormal', 'huge', 'inf' or 'nan'",
    ),
    "bounds of a normal law": (
        '"uniform(-1, 1)"',
        '"normal(0, 1)"\nbounded = true',
        "`x`: a normal distribution has no bounds; write uniform",
    ),
    "matrices that are not square": (
        'distribution = "uniform(-1, 1)"',
        'distribution = "uniform(-1, 1)"\npattern = "symmetric"',
        "`x`: symmetric matrices need two last axes of one size, not ['rows', 'cols']",
    ),
    "zeros out of bounds": (
        'shape = ["rows", "cols"]\ndistribution = "uniform(-1, 1)"',
        'shape = ["rows", "rows"]\ndistribution = "uniform(-1, 1)"\npattern = "upper"\nbounded = true',
        "`x`: upper triangular matrices hold zeros, so that they cannot be bounded",
    ),
    "a pattern of what inputs() makes": (
        'role = "out"',
        'role = "out"\npattern = "upper"',
        "`y`: pattern needs a dist",
    ),
    "bounds without a law": ('role = "out"', 'role = "out"\nbounded = true', "`y`: bounded needs a distribution"),
    "specials of an output": ('role = "out"', 'role = "out"\nspecials = ["nan"]', "`y`: an output has no specials"),
    "specials of integers": (
        'dtype = "int32"\nshape',
        'dtype = "int32"\nspecials = ["zero"]\nshape',
        "`index`: int32 has no specials; only floating tensors do",
    ),
    # Formulas.
    "unknown name": (
        'shape = ["rows", "cols"]\n\n[[scalar]]',
        'shape = ["rows", "column"]\n\n[[scalar]]',
        "did you mean",
    ),
    "derived from a later one": ('half = "cols // 2"', 'half = "pairs"', "derived.half: `pairs`: unknown name `pairs`"),
    "syntax": ('flops = "2 * rows * cols"', 'flops = "2 rows"', "cost.flops: `2 rows`"),
    "true division": (
        'half = "cols // 2"',
        'half = "cols / 2"',
        "derived.half: `cols / 2`: `/` would leave the integers",
    ),
    "data in a cost": (
        'flops = "2 * rows * cols"',
        'flops = "longest"',
        "cost.flops: `longest`: unknown name `longest`",
    ),
    "data in a weight": (
        'weight = "rows * half"',
        'weight = "longest"',
        "workload[0]: weight: `longest`: unknown name",
    ),
    "division by zero": (
        'half = "cols // 2"',
        'half = "cols // (rows // 16)"',
        "workload[0]: half: `cols // (rows // 16)` divides by zero with",
    ),
    # Workloads.
    "missing dim": ("rows = 16, cols = [6, 10]", "rows = 16", "workload[1]: dims must be exactly rows, cols, not rows"),
    "unknown dim": (
        "rows = 1, cols",
        "rows = 1, width = 2, cols",
        "hidden[0]: dims must be exactly rows, cols, not rows, w",
    ),
    "negative dim": ('cols = "rows * 2"', 'cols = "rows - 5"', "workload[0]: cols: `rows - 5` = -1 is negative"),
    "negative weight": (
        'weight = "rows * half"',
        'weight = "rows - 5"',
        "workload[0]: weight: `rows - 5` = -1 is negative",
    ),
    "negative size": (
        '"longest + 1"',
        '"rows - 4"',
        "hidden rows=1,cols=7: shape of tensor `index`: `rows - 4` = -3 is neg",
    ),
    "negative cost": ('min_bytes = "2 *', 'min_bytes = "-2 *', "cost.min_bytes: `-2 * sizeof_T * rows * cols` = -"),
    "negative terms": (
        'terms = "longest"',
        'terms = "rows - 2"',
        "hidden rows=1,cols=7: tolerance.terms: `rows - 2` = -1",
    ),
    "floor above the bytes": (
        'min_bytes = "',
        'bytes = 1\nmin_bytes = "',
        "cost.min_bytes = 256 exceeds cost.bytes = 1",
    ),
    "floor above the count": ('min_flops = "', 'min_flops = "9 * ', "cost.min_flops = 288 exceeds cost.flops = 64"),
    "workload twice": ("cols = [6, 10]", "cols = [6, 6]", "workload rows=16,cols=6 stands twice in set `published`"),
    "set called hidden": ('set = "published"', 'set = "hidden"', "workload[1]: a set cannot be called 'hidden'"),
    "too many shapes": (
        "rows = 16, cols = [6, 10]",
        f"rows = {[*range(1, 60)]}, cols = {[*range(1, 60)]}",
        "3481 shapes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_what_is_wrong_and_where(tmp_path: Path, case: str) -> None:
    old, new, phrase = BAD[case]
    assert GOOD.count(old) == 1, "the case must change one place"
    with pytest.raises(OperatorError) as caught:
        read(tmp_path, GOOD.replace(old, new))
    text = str(caught.value)
    assert phrase in text
    assert text.startswith(f"{tmp_path}/operator.toml: ")
    assert "\n" not in text


def test_a_folder_without_the_file_is_told_what_an_operator_is(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such file; an operator is a folder with operator"):
        read_operator(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="file: it is a file; an operator is a folder"):
        read_operator(tmp_path / "file")


def test_a_file_that_is_no_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OperatorError, match="cannot be read: 'utf-8' codec"):
        read_operator(tmp_path)


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="not valid TOML"):
        read(tmp_path, "x = " + "[" * 10_000)


@pytest.mark.parametrize("text", ["softmax", "softmax/fp32", "a/b/c/d", "a//cpu", ""])
def test_a_task_has_three_parts(text: str) -> None:
    with pytest.raises(OperatorError, match="is not a task; write operator/dtype/target"):
        Task.parse(text)


def test_a_task_reads_what_it_writes() -> None:
    task = Task("softmax", "fp32", "cpu")
    assert Task.parse(str(task)) == task


def test_a_distribution_reads_what_python_writes() -> None:
    assert Distribution.parse(" normal( 1e-3 ,.5) ") == Distribution("normal", 1e-3, 0.5)
    assert Distribution.parse("integers(-2,+2)") == Distribution("integers", -2, 2)
    assert Distribution.parse("uniform(1.,2E+1)") == Distribution("uniform", 1, 20)


def test_a_distribution_may_depend_on_dims() -> None:
    law = Distribution.parse("uniform(-1, 1) / sqrt(3 * k)", ("k",))
    assert law.at({"k": 12}) == Distribution("uniform", -1 / 6, 1 / 6) and str(law) == "uniform(-1, 1) / sqrt(3 * k)"
    for wrong, why in {"uniform(0, 1) / k": "write uniform", "integers(0, 4) / sqrt(k)": "write uniform"}.items():
        with pytest.raises(ValueError, match=why):
            Distribution.parse(wrong, ("k",))
    with pytest.raises(ValueError, match="unknown name"):
        Distribution.parse("uniform(0, 1) / sqrt(m)", ("k",))


LINES = GOOD.splitlines()


@examples(150)
@given(st.data())
def test_no_edit_of_a_file_raises_anything_but_operator_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.integers(0, 12))
        inserted = data.draw(st.text(alphabet='abx019"=[]{}(),.-*/\n _', max_size=6) | st.sampled_from(LINES))
        text = text[:start] + inserted + text[start + length :]
    try:
        operator = read(tmp_path_factory.mktemp("edited"), text)
    except OperatorError as error:
        assert "\n" not in str(error).partition("operator.toml: ")[2].strip()
    else:
        assert operator.outputs
        assert tomllib.loads(text)["name"] == operator.name


def test_a_machine_that_opens_no_file_is_not_the_operators_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    read, fresh = load("softmax"), read_operator(load("softmax").folder)
    source = read.naive("cpu")

    def fail(path: Path, *_: object, **__: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(Path, "open", fail)
    assert read.naive("cpu") == source  # it is open no more, and need not be
    with pytest.raises(MachineError, match="cannot be read now: Too many open files"):
        fresh.naive("cpu")
