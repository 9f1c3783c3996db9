"""`evo import`: problems of each format become operators, and hostile ones leave one line and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.outside.importing import import_problem, operators_of
from fitness.judging.mutation_test import MutationTest
from fitness.oracle.inputs import draw
from fitness.targets import place
from operators.catalog import functions, load
from operators.definition.spec import Task
from operators.errors import UserError
from operators.importing.folder import CALL, ORIGIN, together
from operators.importing.looking import Trials
from operators.importing.problems import problem_of
from operators.importing.readers import read
from operators.kernel import Kernel
from tests.choosing import some_long
from tests.importing.conftest import DATA, of_function

BASE = DATA / "3_Linear_Gelu_Scale.py"
DEEP = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        made = []
        for _ in range(layers):
            made += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
        self.all = nn.Sequential(*made)

    def forward(self, x):
        return self.all(x)


batch, side = 8, 64


def get_inputs():
    return [torch.rand(batch, 8, side, side)]


def get_init_inputs():
    return [12]
"""


RECURRENT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, hidden, layers):
        super().__init__()
        self.gru = nn.GRU(width, hidden, layers, batch_first=True)

    def forward(self, x, start):
        return self.gru(x, start)[0][:, -1]


batch, steps, width, hidden, layers = 4, 300, 12, 20, 2


def get_inputs():
    return [torch.rand(batch, steps, width), torch.rand(layers, batch, hidden)]


def get_init_inputs():
    return [width, hidden, layers]
"""


@pytest.mark.slow
def test_the_steps_of_a_recurrence_are_a_dim(tmp_path: Path) -> None:
    (tmp_path / "recurrent.py").write_text(RECURRENT)
    folder, _ = import_problem(str(tmp_path / "recurrent.py"), out=tmp_path / "recurrent")
    operator = load(str(folder))
    assert operator.dims == ("batch", "steps", "width", "hidden")
    assert len({shape.dims["steps"] for shape in operator.hidden}) > 5
    assert operator.tolerance.terms.text == "max(hidden, width)"
    weight = next(tensor for tensor in operator.inputs if tensor.name == "gru_weight_ih_l0")
    assert weight.distribution and weight.distribution.b == pytest.approx(20**-0.5, rel=1e-4)
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    test = MutationTest(host, kernel, operator.hidden[:4], seed=0)
    try:
        assert test.naive().rejection is None
        wrong = replace(kernel, source=kernel.source.replace("(v - n) *", "(v - n) * ACC(1.001) *"))
        assert wrong.source != kernel.source
        assert test.tried(wrong).rejection is not None
    finally:
        test.close()


@pytest.mark.slow
@pytest.mark.usefixtures("jailed")
def test_a_fused_module_becomes_an_operator_over_its_own_sizes(tmp_path: Path) -> None:
    folder, lines = import_problem(str(BASE), out=tmp_path / "fused", name="fused")
    operator = load(str(folder))
    assert operator.dims == ("batch", "features", "width")
    shapes = {tensor.name: [axis.text for axis in tensor.shape] for tensor in operator.tensors}
    assert shapes == {
        "linear_weight": ["width", "features"], "linear_bias": ["width"], "x": ["batch", "features"],
        "y": ["batch", "width"],
    }  # fmt: skip
    drawn = {tensor.name: tensor.distribution for tensor in operator.inputs}
    assert (drawn["x"].kind, drawn["x"].a, drawn["x"].b) == ("uniform", -1, 1)
    assert drawn["linear_weight"].b == pytest.approx(1 / 256, rel=1e-4)  # 1 / sqrt(features)
    (published,) = operator.workload_set("published")
    assert dict(published.dims) == {"batch": 4096, "features": 65536, "width": 32768}
    (small,) = operator.workload_set("small")
    assert 2**25 < small.dims["width"] * small.dims["features"] < 2**29  # a card of 24 GB holds it
    assert all(max(shape.dims.values()) < 65536 for shape in operator.hidden) and len(operator.hidden) >= 10
    assert all(2 * math.prod(shape.dims.values()) <= 1e8 for shape in operator.hidden)  # which plain loops finish soon
    assert operator.tolerance.terms.text == "features"
    assert [path.name for path in folder.glob("naive.*")]
    assert any("factor" in line for line in lines)


@pytest.mark.slow
def test_a_function_with_integers_in_no_module_is_read(tmp_path: Path) -> None:
    place = DATA / "layers.py"
    folder, _ = import_problem(f"{place}:centred", inputs=f"{place}:make_inputs", out=tmp_path / "centred")
    operator = load(str(folder))
    assert len(operator.dims) == 2 and "rows" in operator.dims
    counts = next(tensor for tensor in operator.inputs if tensor.name == "counts")
    assert counts.dtype == "int64" and counts.distribution and (counts.distribution.a, counts.distribution.b) == (0, 6)


@pytest.mark.slow
@pytest.mark.usefixtures("jailed")
def test_a_source_finds_packages_that_pythonpath_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a_package_of_the_users.py").write_text("FACTOR = 3.0\n")
    text = BASE.read_text(encoding="utf-8")
    problem = tmp_path / "problem.py"
    problem.write_text(f"import a_package_of_the_users\n{text}")
    with pytest.raises(UserError, match=r"needs the package a_package_of_the_users, .* PYTHONPATH"):
        import_problem(str(problem), out=tmp_path / "not")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    folder, _ = import_problem(str(problem), out=tmp_path / "found", name="found")
    assert load(str(folder)).name == "found"


@pytest.mark.slow
def test_a_definition_keeps_its_constants_and_its_workloads(imported: Callable[[str], Path]) -> None:
    operator = load(str(imported("scaled")))
    assert operator.dims == ("rows",) and operator.dtypes["cuda"][0] == "bf16"
    assert [workload.dims["rows"] for workload in operator.workload_set("published")] == [128, 2048]


def test_a_definition_is_called_by_name_and_numbers_of_its_source_that_are_its_axes_vary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = {
        "name": "rows", "op_type": "gemm",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 48},
                 "out": {"type": "const", "value": 96}, "wide": {"type": "const", "value": 96}},
        "inputs": {"x": {"shape": ["rows", "width"], "dtype": "float32"},
                   "bias": {"shape": ["wide"], "dtype": "float32"},
                   "w": {"shape": ["out", "width"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["rows", "out"], "dtype": "float32"}},
        "reference": "def run(x, w, bias):\n    wide = 96\n    assert x.shape[1] == 48 and bias.shape[0] == wide\n"
        "    out = 96\n    return (x @ w.T)[:, :out] + bias[:1] * 2\n",
    }  # fmt: skip
    (tmp_path / "rows.json").write_text(json.dumps(definition))
    source = read(str(tmp_path / "rows.json"))
    monkeypatch.chdir(tmp_path)
    for name, text in source.files.items():
        Path(name).write_text(text)
    sizes = {"rows": 3, "width": 5, "out": 4, "wide": 7}
    call, args = problem_of(source.request).made(sizes.__getitem__)
    assert [list(each.shape) for each in args] == [[3, 5], [7], [4, 5]] and list(call(*args).shape) == [3, 4]
    call, args = problem_of({**source.request, "is_literal": True}).made(sizes.__getitem__)
    with pytest.raises(AssertionError):
        call(*args)


@pytest.mark.slow
def test_integers_of_a_definition_are_drawn_by_what_they_are_for(tmp_path: Path) -> None:
    """Its workloads lie beside it in a data set, in a folder named as its own is."""
    axes = {"batch": {"type": "var"}, "steps": {"type": "var"}, "width": {"type": "const", "value": 12}}
    axes["words"] = {"type": "var"}
    shapes = {"table": ["words", "width"], "ids": ["batch", "steps"], "lengths": ["batch"], "weight": ["width"]}
    types = {"table": "float32", "ids": "int64", "lengths": "int32", "weight": "int8"}
    source = """
import torch

def run(table, ids, lengths, weight):
    seen = torch.arange(ids.shape[1]) < lengths[:, None]
    return ((table[ids] * seen[..., None]).sum(1) * weight.float())
"""
    definition = {
        "name": "bags", "op_type": "another", "axes": axes, "reference": source,
        "inputs": {name: {"shape": shape, "dtype": types[name]} for name, shape in shapes.items()},
        "outputs": {"y": {"shape": ["batch", "width"], "dtype": "float32"}},
    }  # fmt: skip
    given = {name: {"type": "random"} for name in shapes}
    workload = {"uuid": "1", "axes": {"batch": 6, "steps": 20, "words": 50}, "inputs": given}
    for folder, name, text in (
        ("definitions/bag", "bags.json", json.dumps(definition)),
        ("workloads/bag", "bags.jsonl", json.dumps({"definition": "bags", "workload": workload})),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(text)
    folder, lines = import_problem(str(tmp_path / "definitions" / "bag" / "bags.json"), out=tmp_path / "bags")
    operator = load(str(folder))
    (published,) = operator.workload_set("published")
    assert dict(published.dims)["words"] == 50 and not [line for line in lines if "zeros and ones" in line]
    rng, dims = np.random.default_rng(0), {"batch": 400, "steps": 7, "words": 9, "width": 12}
    drawn = draw(operator, functions(folder), dims=dims, dtype="fp32", family="nominal", rng=rng).tensors
    held = {name: (int(drawn[name].min()), int(drawn[name].max())) for name in ("ids", "lengths")}
    assert held == {"ids": (0, 8), "lengths": (0, 7)}
    weight = next(tensor.distribution for tensor in operator.inputs if tensor.name == "weight")
    assert weight and (weight.a, weight.b) == (-128, 127)


@pytest.mark.slow
def test_a_loop_over_rows_is_recorded_once_and_executed_for_all(tmp_path: Path) -> None:
    definition = {
        "name": "heads", "op_type": "gemm", "axes": {"batch": {"type": "var"}, "heads": {"type": "const", "value": 24},
                                                     "width": {"type": "const", "value": 16}},
        "inputs": {"x": {"shape": ["batch", "heads", "width"], "dtype": "float32"},
                   "w": {"shape": ["heads", "width", "width"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["batch", "heads", "width"], "dtype": "float32"}},
        "reference": "import torch\n\n\ndef run(x, w):\n    y = torch.zeros_like(x)\n    for b in range(x.shape[0]):\n"
        "        for h in range(24):\n            y[b, h] = x[b, h] @ w[h]\n    return y\n",
    }  # fmt: skip
    (tmp_path / "heads.json").write_text(json.dumps(definition))
    folder, lines = import_problem(str(tmp_path / "heads.json"), out=tmp_path / "heads")
    assert any("loop over `batch`" in line for line in lines)
    assert [axis.text for axis in load(str(folder)).tensors[0].shape] == ["batch", "heads", "width"]


@pytest.mark.slow
def test_a_loop_whose_rows_hang_on_each_other_is_run_once_where_no_workload_tells_its_axis(tmp_path: Path) -> None:
    definition = {
        "name": "carried", "op_type": "scan",
        "axes": {"steps": {"type": "var"}, "width": {"type": "const", "value": 24}},
        "inputs": {"x": {"shape": ["steps", "width"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["steps", "width"], "dtype": "float32"}},
        "reference": "import torch\n\n\ndef run(x):\n    y, held = torch.zeros_like(x), torch.zeros_like(x[0])\n"
        "    for t in range(x.shape[0]):\n        if float(x[t, 0].item()) > 0:\n            held = held + x[t]\n"
        "        y[t] = held\n    return y\n",
    }  # fmt: skip
    (tmp_path / "carried.json").write_text(json.dumps(definition))
    folder, lines = import_problem(str(tmp_path / "carried.json"), out=tmp_path / "carried")
    assert any("loop over it" in line and "steps" in line for line in lines)
    assert [axis.text for axis in load(str(folder)).tensors[0].shape] == ["1", "width"]


@pytest.mark.slow
def test_constants_that_nothing_insists_on_vary_in_hidden_shapes(imported: Callable[[str], Path]) -> None:
    operator = load(str(imported("product.json")))
    assert operator.dims == ("M", "N", "K")
    assert {shape.dims["N"] for shape in operator.hidden} != {40960}


@pytest.mark.slow
def test_a_gpu_mode_problem_is_read_without_a_gpu(imported: Callable[[str], Path]) -> None:
    operator = load(str(imported("shifted")))
    assert operator.dims == ("size",)
    assert [tensor.name for tensor in operator.inputs] == ["data_0"]
    assert 4096 in [workload.dims["size"] for workload in operator.workload_set("published")]


@pytest.mark.slow
def test_inputs_that_all_give_one_result_are_spread_and_a_task_of_one_result_is_refused(tmp_path: Path) -> None:
    """relu(x - 6) of numbers below 1 is zero, as a kernel that writes zeros is."""
    text = (
        "import torch\n\n\ndef low(x):\n    return torch.relu(x - 6)\n\n\ndef make(n=40):\n    return torch.rand(n)\n"
    )
    folder, lines = of_function(tmp_path, text, "low")
    (x,) = load(str(folder)).inputs
    assert x.distribution and (x.distribution.kind, x.distribution.b) == ("normal", 8)
    assert any("normal(0, 8)" in line for line in lines)
    with pytest.raises(UserError, match="do not depend on its inputs"):
        of_function(tmp_path / "same", text.replace("torch.relu(x - 6)", "(x - x).clamp(min=0)"), "low")


@pytest.mark.slow
def test_inputs_whose_results_leave_the_range_of_fp32_are_drawn_smaller_or_the_task_is_refused(tmp_path: Path) -> None:
    def problem(name: str, body: str) -> str:
        place = tmp_path / name
        place.write_text(
            "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, w):\n"
            f"        return {body}\n\n\n"
            "batch, width = 64, 128\n\n\ndef get_inputs():\n"
            "    return [torch.rand(batch, width), torch.randn(width, width)]\n\n\ndef get_init_inputs():\n"
            "    return []\n"
        )
        return str(place)

    decay = "torch.exp((x * 8).cumsum(1)) / torch.exp((x * 8).cumsum(1)) * (x @ w)"  # inf / inf from some width on
    folder, lines = import_problem(problem("1_Decay.py", decay), out=tmp_path / "decay")
    assert any("8 times smaller" in line for line in lines)
    (x, _) = load(str(folder)).inputs
    assert x.distribution and x.distribution.b == pytest.approx(1 / 8)
    with pytest.raises(UserError, match="512 times smaller, most of its results leave the range"):
        import_problem(problem("2_Never.py", "(x @ w * 1e30) * (x @ w * 1e30) * 1e-50"), out=tmp_path / "never")


@pytest.mark.slow
def test_layers_that_a_module_copies_have_dims(tmp_path: Path) -> None:
    problem = tmp_path / "1_Copies.py"
    problem.write_text(
        "import copy\nimport torch\nfrom torch import nn\n\nrows, width = 64, 32\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        layer = nn.Linear(width, width)\n"
        "        self.all = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])\n\n"
        "    def forward(self, x):\n        return self.all[1](self.all[0](x).relu())\n\n\n"
        "def get_inputs():\n    return [torch.rand(rows, width)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    folder, _ = import_problem(str(problem), out=tmp_path / "copies", name="copies")
    assert load(str(folder)).dims == ("rows", "width")


@pytest.mark.slow
def test_an_encoder_has_dims_for_batch_and_tokens(tmp_path: Path) -> None:
    """Attention is made of linear layers of tensors of three axes, whose sizes are no constants."""
    problem = tmp_path / "1_Encoder.py"
    problem.write_text(
        "import torch\nfrom torch import nn\n\ntokens, batch = 64, 3\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.place = nn.Parameter(torch.rand(tokens, 1, 16))\n"
        "        self.all = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 2)\n\n"
        "    def forward(self, x):\n        return self.all(x + self.place)\n\n\n"
        "def get_inputs():\n    return [torch.rand(tokens, batch, 16)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    folder, _ = import_problem(str(problem), out=tmp_path / "encoder", name="encoder")
    operator = load(str(folder))
    assert operator.dims == ("tokens", "batch") and len(operator.hidden) > 5


@pytest.mark.slow
def test_normal_numbers_of_which_large_ones_are_not_finite_keep_to_two_deviations(tmp_path: Path) -> None:
    text = (
        "import torch\n\n\ndef grown(x):\n    return torch.exp(torch.cumsum(x, 1))\n\n\n"
        "def make(rows=6, columns=40):\n    return torch.randn(rows, columns)\n"
    )
    folder, _ = of_function(tmp_path, text, "grown")
    (x,) = load(str(folder)).inputs
    assert x.bounded and x.distribution and (x.distribution.a, x.distribution.b) == (-2, 2)


@pytest.mark.slow
def test_numbers_that_lead_to_no_place_in_fp32_are_not_drawn(tmp_path: Path) -> None:
    """One more than 1e9 is 1e9 in fp32: there none of a row is greater, and its last one has no place."""
    text = (
        "import torch\n\n\ndef kept(x):\n    count = (1 + x > x.amax(-1, keepdim=True)).sum(-1, keepdim=True)\n"
        "    return x - x.gather(-1, count - 1)\n\n\ndef make():\n    return [torch.randn(16, 24)]\n"
    )
    folder, lines = of_function(tmp_path, text, "kept")
    assert any("`x` keeps to its range" in line for line in lines)
    assert load(str(folder)).inputs[0].bounded


ONE_SIGN = """
import torch

def sparsified(x):
    return torch.relu(x)

def make():
    return (torch.rand(24, 40),)
"""
CENTRED = """
import torch

def centred(x):
    return torch.nn.functional.layer_norm(x, x.shape[1:])

def make():
    return (torch.randn(24, 40),)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "name", "edits"),
    [
        (ONE_SIGN, "sparsified", [("a0 < 0 ? 0 : a0", "a0")]),
        (CENTRED, "centred", [(" - mean;", ";"), ("squares / count", "fmax(squares / count - mean * mean, ACC(0))")]),
    ],
)
def test_what_an_example_never_draws_is_checked_too(
    text: str, name: str, edits: list[tuple[str, str]], tmp_path: Path
) -> None:
    """A rectifier that is none, of an example without negative numbers; a variance that has few digits far from 0."""
    folder, _ = of_function(tmp_path, text, name)
    operator = load(str(folder))
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=tmp_path)
    test = MutationTest(host, kernel, operator.hidden, seed=0)
    source = kernel.source
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    try:
        assert test.naive().rejection is None
        assert test.tried(replace(kernel, source=source)).rejection is not None
    finally:
        test.close()


@pytest.mark.slow
def test_a_deep_network_is_judged_by_samples_of_its_errors(tmp_path: Path) -> None:
    """Its analysis is too wide, and so many times the error of a plain sum, as measured bounds grant, is too tight."""
    problem = tmp_path / "1_Deep.py"
    problem.write_text(DEEP)
    folder, lines = import_problem(str(problem), out=tmp_path / "deep", name="deep")
    operator = load(str(folder))
    assert any("by samples" in line for line in lines)
    assert operator.tolerance.bound == "rounding"
    kernel, task = Kernel("deep", "cpu", operator.naive("cpu")), Task("deep", "fp32", "cpu")
    host = place(operator, task, workload_set="cpu", folder=tmp_path)
    test = MutationTest(host, kernel, operator.hidden[:6], seed=0)
    try:
        assert test.naive().rejection is None
        wrong = replace(kernel, source=kernel.source.replace("ACC(1e-05)", "ACC(2e-02)"))
        assert wrong.source != kernel.source
        assert test.tried(wrong).rejection is not None
    finally:
        test.close()


def test_a_network_whose_norms_small_images_leave_to_chance_is_tried_at_larger_ones() -> None:
    class Chance(Trials):
        """Source and graph agree where a shape may have a billion operations."""

        def __init__(self) -> None:
            self.least, self.most_work, self.differences, self.is_heavy = 3e6, 1e8, [], False

        def lowest(self) -> dict[str, int]:
            return {"side": 1}

        def elements(self, dims: Mapping[str, int]) -> int:
            return 1000

        def work(self, dims: Mapping[str, int]) -> float:
            return 1e6

        def _confirmed(self, lowest: Mapping[str, int]) -> list[dict[str, Any]]:
            if self.most_work > 1e9:
                return [{"source": "odd", "dims": {"side": 33}}]
            self.differences.append("side=1: rounding decides its `y`, which differs from the same in fp64")
            return []

    assert Chance().hidden() == [{"source": "odd", "dims": {"side": 33}}]


@pytest.mark.slow
def test_inputs_hold_no_zeros_where_a_row_of_them_would_divide_zero_by_zero(tmp_path: Path) -> None:
    """A fifth of the numbers may be zero in long rows, but a row of one is zero then."""
    text = (
        "import torch\n\n\ndef share(x):\n    return x / x.abs().mean(1, keepdim=True)\n\n\n"
        "def make(rows=6, columns=400):\n    return torch.rand(rows, columns)\n"
    )
    folder, lines = of_function(tmp_path, text, "share")
    (x,) = load(str(folder)).inputs
    assert x.specials == () and x.distribution and x.distribution.a > 0
    assert any("`x` holds no zeros" in line for line in lines)


@pytest.mark.slow
def test_errors_are_bounded_for_inputs_as_they_are_drawn_and_not_for_constants_of_the_source(tmp_path: Path) -> None:
    """The mean of normalised numbers is all rounding error where weights are 1 and biases 0, as they are at first."""
    problem = tmp_path / "1_Mean.py"
    problem.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self, channels):\n"
        "        super().__init__()\n        self.norm = torch.nn.GroupNorm(4, channels)\n\n"
        "    def forward(self, x):\n        return self.norm(x).mean(dim=[1, 2])\n\n\n"
        "channels = 32\n\n\ndef get_inputs():\n    return [torch.rand(16, channels, 64)]\n\n\n"
        "def get_init_inputs():\n    return [channels]\n"
    )
    folder, lines = import_problem(str(problem), out=tmp_path / "mean")
    assert load(str(folder)).tolerance.bound == "rounding" and not any("too wide" in line for line in lines)


@pytest.mark.slow
def test_sizes_are_found_where_a_flattened_image_leaves_few(tmp_path: Path) -> None:
    """Images of 50 to 59 make the 25 places that the weights are for."""
    problem = tmp_path / "1_Flat.py"
    problem.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.patches = torch.nn.Conv2d(3, 4, 10, stride=10)\n        self.last = torch.nn.Linear(100, 6)\n\n"
        "    def forward(self, x):\n        return self.last(self.patches(x).flatten(1))\n\n\n"
        "batch = 64\nheight = 55\nwidth = 55\n\n\ndef get_inputs():\n"
        "    return [torch.rand(batch, 3, height, width)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    folder, _ = import_problem(str(problem), out=tmp_path / "flat")
    operator = load(str(folder))
    assert operator.dims == ("batch", "height", "width")
    assert {shape.source for shape in operator.hidden} >= {"odd", "even, no multiple of 8", "divisible by 8"}
    assert all(50 <= shape.dims[dim] < 60 for shape in operator.hidden for dim in ("height", "width"))
    assert 1 in [shape.dims["batch"] for shape in operator.hidden]  # the choice of a faster algorithm is no condition


WINDOWS = """
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.1, depth)]
        width = int(channels * 2.0)
        made = [nn.Conv2d(channels if n == 0 else width, width, 1) for n, rate in enumerate(rates) if rate < 1]
        self.layers = nn.Sequential(*(each for layer in made for each in (layer, nn.ReLU6(inplace=True))))

    def forward(self, x):
        x = self.layers(functional.pad(x, [0, 1, 1, 0])).flatten(2).transpose(1, 2)
        windows = x.reshape(-1, x.shape[1] // 4, x.shape[2])
        count = int(windows.shape[0] / 4)
        x = windows.view(count, 4, -1, x.shape[2]).flatten(1, 2)
        return nn.functional.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1)


batch, channels, side = 8, 16, 31


def get_inputs():
    return [torch.rand(batch, channels, side, side)]


def get_init_inputs():
    return [channels, 3]
"""


@pytest.mark.slow
def test_rates_pads_and_counts_of_windows_leave_sizes_free(tmp_path: Path) -> None:
    """Each of linspace, pad, int, an activation in place and an average over a transposed image once fixed them all."""
    (tmp_path / "1_Windows.py").write_text(WINDOWS)
    folder, _ = import_problem(str(tmp_path / "1_Windows.py"), out=tmp_path / "windows")
    operator = load(str(folder))
    assert operator.dims == ("batch", "channels") and len(operator.hidden) > 5


DENSE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, layers, features, growth):
        super().__init__()
        widths = [features + n * growth for n in range(layers)]
        made = [nn.Sequential(nn.BatchNorm2d(w), nn.Conv2d(w, growth, 3, padding=1)) for w in widths]
        self.layers = nn.ModuleList(made)

    def forward(self, x):
        every = [x]
        for layer in self.layers:
            every.append(layer(x))
            x = torch.cat(every, 1)
        return x


batch, features, growth, side = 4, 16, 8, 16


def get_inputs():
    return [torch.rand(batch, features, side, side)]


def get_init_inputs():
    return [8, features, growth]
"""


@pytest.mark.slow
def test_a_dense_block_is_an_operator_whose_bytes_are_told_and_whose_joins_are_two_launches(tmp_path: Path) -> None:
    (tmp_path / "1_Dense.py").write_text(DENSE)
    folder, _ = import_problem(str(tmp_path / "1_Dense.py"), out=tmp_path / "dense")
    operator, dims = load(str(folder)), {"batch": 2, "features": 3, "growth": 1, "side": 5}
    env = operator.cost_environment(dims, "fp32")
    numbers = sum(2 * width + 9 * width + 1 for width in range(3, 11)) + 2 * 25 * (3 + 11)
    assert operator.min_bytes.evaluate(env) == 4 * numbers
    assert (folder / "naive.cpp").read_text().count('_cat"') == 2 * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("while x.sum() > 1:\n        x = x / 2\n    return x", "by more than 12 values of its tensors"),
        ("return x.new_zeros(int(x.sum()))", "by values of its tensors"),
        pytest.param(
            "return torch.stack([x[i] * i + i for i in range(x.shape[0])])",
            "more than 5,000 functions of torch",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_no_graph_can_say_is_executed_as_it_is_or_told(body: str, reason: str, tmp_path: Path) -> None:
    text = f"import torch\n\n\ndef told(x):\n    {body}\n\n\ndef make(n=4096):\n    return torch.rand(n)\n"
    if "new_zeros" in body:  # no size of its result follows from those of its inputs
        with pytest.raises(UserError, match=reason):
            of_function(tmp_path, text, "told")
    else:
        folder, lines = of_function(tmp_path, text, "told")
        assert any("is executed as it is" in line and reason in line for line in lines)
        assert any(line.startswith("told() of naive.cpp and of naive.cu is left to write") for line in lines)
        assert load(str(folder)).dims == ("n",)


FORKS = "import os\nwhile True: os.fork()"
HOSTILE = {
    "open('/etc/passwd').read()": "'/etc/passwd'; a source has no files here but its own modules",
    "import os; os.listdir('/root')": "PermissionError",
    "import socket; socket.create_connection(('127.0.0.1', 9))": "Error",
    FORKS: "",
    "torch.empty(50 * 2**30, dtype=torch.uint8).fill_(1)": "",
    "import os; os._exit(3)": "ended the process",
}


@pytest.mark.slow
@pytest.mark.usefixtures("jailed")
@pytest.mark.parametrize("line", some_long(HOSTILE, [FORKS]))
def test_a_hostile_source_ends_in_one_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if line == FORKS:  # it ends by no other limit
        monkeypatch.setattr("evo.outside.importing.LOOK_S", 15.0)
    problem = tmp_path / "1_hostile.py"
    problem.write_text(f"import torch\n{line}\n" + BASE.read_text().replace("import torch\n", "", 1))
    with pytest.raises(UserError) as caught:
        import_problem(str(problem), out=tmp_path / "made")
    assert "\n" not in str(caught.value) and HOSTILE[line] in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1_hostile.py"]


@pytest.mark.slow
@pytest.mark.parametrize("returned", ["None", "['a', 3]"])
def test_inputs_without_a_tensor_are_told_in_one_line(tmp_path: Path, returned: str) -> None:
    text = f"def doubled(x):\n    return x * 2\n\n\ndef make():\n    return {returned}\n"
    with pytest.raises(UserError, match=r"make\(\) gives no tensor; it is to return what doubled\(\) is called with"):
        of_function(tmp_path, text, "doubled")


def test_what_is_no_problem_is_told_in_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(UserError, match="defines no Model, get_inputs"):
        read(str(empty))
    with pytest.raises(UserError, match="--inputs"):
        read(f"{BASE}:Model")
    with pytest.raises(UserError, match="defines no `block`"):
        read(f"{BASE}:block", f"{BASE}:get_inputs")
    with pytest.raises(UserError, match="no problem is recognised"):
        read(str(tmp_path))
    with pytest.raises(UserError, match="no such file"):
        read(str(tmp_path / "absent.py"))
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(UserError, match="not valid Python: line 1"):
        read(str(broken))


def test_formats_are_recognised_by_their_files() -> None:
    assert [read(str(DATA / name)).format for name in (BASE.name, "scaled", "shifted")] == [
        "KernelBench", "SOL-ExecBench", "GPU MODE",
    ]  # fmt: skip
    assert read(str(DATA / "product.json")).format == "FlashInfer Trace"


def test_a_type_without_an_element_type_is_named(tmp_path: Path) -> None:
    raw = json.loads((DATA / "scaled" / "definition.json").read_text())
    raw["inputs"]["x"]["dtype"] = "float8_e4m3fn"
    (tmp_path / "definition.json").write_text(json.dumps(raw))
    with pytest.raises(UserError, match="float8_e4m3fn"):
        read(str(tmp_path))


def test_a_number_without_a_value_is_none_where_the_source_has_a_default_for_that(tmp_path: Path) -> None:
    raw = json.loads((DATA / "product.json").read_text())
    raw["inputs"]["scale"] = {"shape": None, "dtype": "float32"}
    place = tmp_path / "definition.json"
    place.write_text(json.dumps(raw))
    with pytest.raises(UserError, match="`scale` has no value"):
        read(str(place))
    raw["reference"] += "\n# scale = 1.0 if scale is None else scale\n"
    place.write_text(json.dumps(raw))
    found = read(str(place))
    assert found.request["inputs"]["scale"]["value"] is None
    assert any("`scale` has no value" in note and "default" in note for note in found.notes)


def test_names_and_operator_folders_are_left_as_they_are() -> None:
    assert operators_of(["softmax", "operators/activation/relu"]) == ["softmax", "operators/activation/relu"]


@pytest.mark.slow
@pytest.mark.usefixtures("jailed")
def test_a_pattern_stands_for_its_problems_and_one_that_cannot_be_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "1_Fused.py").write_text(BASE.read_text().replace("65536, 32768", "64, 32"))
    (tmp_path / "level1" / "2_Broken.py").write_text("x = 1\n")
    assert operators_of(["level1/*.py"]) == ["./imported/level1/fused"]
    assert "2_Broken.py: left out" in capsys.readouterr().err
    made = (tmp_path / "imported" / "level1" / "fused" / "graph.json").stat().st_mtime_ns
    assert operators_of(["level1/*.py"]) == ["./imported/level1/fused"]
    assert (tmp_path / "imported" / "level1" / "fused" / "graph.json").stat().st_mtime_ns == made
    with pytest.raises(UserError, match="no file is there; clone the repository"):
        operators_of(["level3/*.py"])


@pytest.mark.parametrize("place", ["dims", "derived", "hidden"])
def test_no_name_that_a_look_brings_back_gets_into_code(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that looks runs a stranger's code, which may write any result it likes."""
    hostile = "n=print('run')"
    graph = {"dims": ["n"], "inputs": [{"name": "x", "shape": ["n"], "dtype": "T"}], "nodes": [], "outputs": []}
    found: dict[str, Any] = {"graph": graph, "dims": {"n": 4}, "derived": {}, "workloads": [], "cpu": {}}
    found |= {"small": {}, "hidden": [], "faint": [], "making": {}}
    if place == "dims":
        graph["dims"] = [hostile]
    elif place == "derived":
        found["derived"] = {hostile: "n"}
    else:
        found["hidden"] = [{"source": "small", "dims": {hostile: 1}}]
    monkeypatch.setattr("evo.outside.importing.look", lambda _: found)
    with pytest.raises(UserError, match="is no name"):
        import_problem(str(BASE), out=tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_inputs_that_a_source_names_have_the_order_of_its_parameters(tmp_path: Path) -> None:
    source = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width, *, scale):
        super().__init__()
        self.scale, self.layer = scale, torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x, y):
        return self.norm(x - self.layer(y) * self.scale)


rows, width = 12, 8


def get_inputs():
    return {"y": torch.rand(rows, width), "x": torch.rand(rows, width)}


def get_init_inputs():
    return {"scale": 3.0, "width": width}
"""
    (tmp_path / "1_Named.py").write_text(source, encoding="utf-8")
    folder, _ = import_problem(str(tmp_path / "1_Named.py"), out=tmp_path / "named")
    operator = load(str(folder))
    assert [tensor.name for tensor in operator.inputs] == ["layer_weight", "layer_bias", "x", "y"]
    assert operator.dims == ("rows", "width")


PARTS = """
from __future__ import annotations
import functools
from dataclasses import dataclass
from typing import NamedTuple
import torch
import torch.nn.functional as F
@dataclass(frozen=True)
class Config:
    edge: int
    scale: float = 0.5
@dataclass
class Batch:
    x: torch.Tensor
    kept: torch.Tensor
class Sums(NamedTuple):
    each: torch.Tensor
    parts: Batch
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, scale):
        context.save_for_backward(x)
        return x * scale
    @staticmethod
    def backward(context, slope):
        return slope, None
def summed(config, batch):
    around = F.pad(batch.x, (config.edge, config.edge), mode="circular")
    weights = torch.arange(len(batch.x))[:, None, None] + 1
    parts = Batch(Scaled.apply(batch.x, config.scale), (batch.x * batch.kept).sum(-1))
    return Sums(F.avg_pool1d(around, 3, 1) * weights, parts)
task = functools.partial(summed, Config(1))
def make():
    return [Batch(torch.randn(4, 3, 16), torch.rand(4, 3, 16))]
"""


@pytest.mark.slow
def test_a_function_may_take_and_return_dataclasses_and_have_gradients_of_its_own(tmp_path: Path) -> None:
    folder, lines = of_function(tmp_path, PARTS, "task")
    assert not any(line.startswith("naive") for line in lines)
    call = json.loads((folder / ORIGIN / CALL).read_text())
    assert list(call["inputs"].values()) == [["input", 0, {"field": "x"}], ["input", 0, {"field": "kept"}]]
    assert call["returned"] == {"tuple": ["y0", {"dict": [["x", "y1"], ["kept", "y2"]]}]}
    assert len(load(str(folder)).dims) == 3


def test_what_is_said_of_many_tensors_alike_is_said_once() -> None:
    lines = [f"`norm{number}` is 1 everywhere in the source, and drawn from 0.5 to 1.5 here" for number in range(9)]
    several = "`norm0`, `norm1`, `norm2`, `norm3`, `norm4`, `norm5` and 3 others are 1 everywhere in the source, and "
    mask = ["`mask` is drawn from what its values looked like"]
    assert together([*lines, *mask, "constant: n"]) == [f"{several}drawn from 0.5 to 1.5 here", *mask, "constant: n"]
    both = ["`a` is drawn from what its values looked like", "`b` is drawn from what its values looked like"]
    assert together(both) == ["`a`, `b` are drawn from what their values looked like"]
