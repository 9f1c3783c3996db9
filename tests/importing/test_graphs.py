"""Graphs are read and evaluated as torch would, and kernels are generated that our own verdict finds right."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from fitness.emulator.target import emulated
from fitness.evaluation import Rejection
from fitness.judging.mutation_test import MutationTest
from fitness.targets import place
from mutators.analysis.cpp_tree import SyntaxTree
from mutators.mutants import chosen, mutants
from operators.definition.spec import Task
from operators.errors import OperatorError
from operators.importing.graphs import OPERATORS
from operators.importing.graphs.graph import Graph, checked, evaluate, read_graph, write_graph
from operators.importing.graphs.kernels import folded, generate
from operators.importing.graphs.symbols import at
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.importing.exporting import called, graph_of, write_folder
from tests.importing.samples import SAMPLES, M, Sample, random_module, sample

FAST = ("gelu_mm", "conv2", "depthwise", "groups_of_two_transposed", "groupnorm", "sort", "views", "index", "gru")
RAW: dict[str, Any] = {
    "dims": ["rows", "cols"],
    "scalars": [{"name": "eps", "dtype": "ACC"}],
    "inputs": [{"name": "x", "shape": ["rows", "cols"], "dtype": "T"}],
    "constants": [{"name": "taps", "shape": ["1", 2], "dtype": "T", "values": [1, 2.5]}],
    "nodes": [
        {
            "name": "total", "op": "aten.sum.dim_IntList", "args": [{"ref": "x"}, [1], True],
            "outputs": [{"shape": ["rows", 1], "dtype": "T"}],
        },
        {
            "name": "scaled", "op": "aten.mul.Tensor",
            "args": [{"ref": "total"}, {"calc": "truediv", "args": [1, {"expr": "cols"}]}],
            "outputs": [{"shape": ["rows", 1], "dtype": "T"}],
        },
        {
            "name": "lifted", "op": "aten.add.Tensor", "args": [{"ref": "scaled"}, {"ref": "eps"}],
            "outputs": [{"shape": ["rows", 1], "dtype": "T"}],
        },
        {
            "name": "both", "op": "aten.mul.Tensor", "args": [{"ref": "lifted"}, {"ref": "taps"}],
            "outputs": [{"shape": ["rows", 2], "dtype": "T"}],
        },
    ],
    "outputs": [{"name": "y", "ref": "both"}],
}  # fmt: skip


def test_the_terms_of_several_sums_are_those_of_the_longest_at_any_size() -> None:
    """A product over few columns may be followed by a sum over many."""
    product = {
        "name": "product", "op": "aten.mm.default", "args": [{"ref": "x"}, {"ref": "w"}],
        "outputs": [{"shape": ["rows", 500], "dtype": "T"}],
    }  # fmt: skip
    total = {
        "name": "total", "op": "aten.sum.dim_IntList", "args": [{"ref": "product"}, [1]],
        "outputs": [{"shape": ["rows"], "dtype": "T"}],
    }  # fmt: skip
    weights = {"name": "w", "shape": ["cols", 500], "dtype": "T"}
    raw = RAW | {"scalars": [], "constants": [], "inputs": [*RAW["inputs"], weights], "nodes": [product, total]}
    raw["outputs"] = [{"name": "y", "ref": "total"}]
    assert generate(checked(raw), "cpu").terms == "max(cols, 500)"


@pytest.mark.parametrize(("op", "dtype"), [("aten.amax.default", "T"), ("aten.sum.dim_IntList", "int64")])
def test_loops_that_add_no_rounded_numbers_have_no_terms(op: str, dtype: str) -> None:
    node = {"name": "n", "op": op, "args": [{"ref": "x"}, [1]], "outputs": [{"shape": ["rows"], "dtype": dtype}]}
    inputs = [{"name": "x", "shape": ["rows", "cols"], "dtype": dtype}]
    raw = {**RAW, "inputs": inputs, "nodes": [node], "outputs": [{"name": "y", "ref": "n"}]}
    assert generate(checked(raw), "cpu").terms == "1"


def test_an_infinite_number_is_written_in_kernels(tmp_path: Path) -> None:
    infinite = {"calc": "float", "args": ["-inf"]}
    node = {
        "name": "above", "op": "aten.clamp_min.default", "args": [{"ref": "x"}, infinite],
        "outputs": [{"shape": ["rows", "cols"], "dtype": "T"}],
    }  # fmt: skip
    raw = RAW | {"scalars": [], "constants": [], "nodes": [node], "outputs": [{"name": "y", "ref": "above"}]}
    assert "ACC(-INFINITY)" in generate(checked(raw), "cpu").source


def test_sizes_are_calculated_as_sympy_does() -> None:
    a, b = sympy.symbols("a b", integer=True, positive=True)
    sizes: list[Any] = [3 * a**2 + b, FloorDiv(a, b) * 2, Mod(a, b), sympy.Max(a, b, 3), a / 2, sympy.Le(a, 2 * b)]
    for expr in sizes:
        for values in ({a: 7, b: 3}, {a: 3, b: 7}):
            assert at(expr, values, {}) == expr.subs(values)


def test_a_graph_is_the_same_once_written_and_read(tmp_path: Path) -> None:
    graph = checked(RAW)
    write_graph(graph, tmp_path / "graph.json")
    assert read_graph(tmp_path / "graph.json") == graph


def test_numbers_over_dims_scalars_and_constants_are_evaluated() -> None:
    x = torch.tensor([[1.0, 2.0, 6.0]])
    y = evaluate(checked(RAW), {"x": x, "eps": 0.5}, {"rows": 1, "cols": 3})["y"]
    assert y.dtype == torch.float64
    assert y.tolist() == [[3.5, 8.75]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"inputs": [{"name": "x", "shape": ["rwos"], "dtype": "T"}]}, "did you mean `rows`?"),
        ({"inputs": [{"name": "x", "shape": ["__import__('os')"], "dtype": "T"}]}, "not part of the language"),
        ({"outputs": [{"name": "y", "ref": "bth"}]}, "did you mean `both`?"),
        ({"outputs": [{"name": "y", "ref": "both", "index": 1}]}, "has 1 output(s)"),
        ({"inputs": [{"name": "x", "shape": ["rows"], "dtype": "float"}]}, "unknown dtype"),
        ({"code": "print(1)"}, "extra inputs are not permitted"),
        ({"inputs": [{"name": "x y", "shape": ["rows"], "dtype": "T"}]}, "no name"),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused_in_one_line(change: dict[str, Any], told: str) -> None:
    with pytest.raises(OperatorError) as error:
        checked(RAW | change, "graph.json")
    assert told in str(error.value)
    assert str(error.value).startswith("graph.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("op", ["aten.add_.Tensor", "os.system.default", "aten.rand.default", "aten.nothing.default"])
def test_operators_that_are_no_pure_functions_of_aten_are_refused(op: str) -> None:
    node = {"name": "n", "op": op, "args": [{"ref": "x"}], "outputs": [{"shape": ["rows", 1], "dtype": "T"}]}
    graph = checked({**RAW, "nodes": [node], "outputs": [{"name": "y", "ref": "n"}]})
    with pytest.raises(OperatorError):
        evaluate(graph, {"x": torch.ones(1, 1), "eps": 0.0}, {"rows": 1, "cols": 1})


def test_a_recurrence_that_drops_numbers_at_random_is_refused() -> None:
    node = {
        "name": "n", "op": "aten.gru.input",
        "args": [{"ref": "x"}, {"ref": "x"}, [], False, 1, 0.5, True, False, False],
        "outputs": [{"shape": ["rows", 1], "dtype": "T"}],
    }  # fmt: skip
    with pytest.raises(OperatorError, match="dropout"):
        checked({**RAW, "nodes": [node], "outputs": [{"name": "y", "ref": "n"}]})


def test_an_operator_without_loops_is_named_with_the_function_that_is_left_to_write() -> None:
    node = {
        "name": "n", "op": "aten.erfinv.default", "args": [{"ref": "x"}],
        "outputs": [{"shape": ["rows", "cols"], "dtype": "T"}],
    }  # fmt: skip
    made = generate(checked({**RAW, "nodes": [node], "outputs": [{"name": "y", "ref": "n"}]}), "cuda")
    assert made.missing == ("step1_erfinv() of naive.cu: no loops are known for aten.erfinv.default",)
    assert made.source.startswith('/*! evo\nunwritten = ["step1_erfinv"]\n')


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_layers_of_all_widths_share_one_function() -> None:
    layers = torch.nn.Sequential(
        torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 50)
    )
    made = generate(graph_of(layers, [torch.ones(5, 20)], {"rows": 5}), "cpu")
    assert made.source.count("[[launch]]") == 5
    assert made.source.count('extern "C"') == 2


def test_every_entry_names_an_operator_of_torch() -> None:
    for name in OPERATORS:
        _, packet, overload = name.split(".")
        assert hasattr(getattr(torch.ops.aten, packet), overload), name


# --- kernels ----------------------------------------------------------------------------------------------------------


def arguments(module: M, inputs: list[torch.Tensor], names: list[str]) -> dict[str, torch.Tensor]:
    """The inputs of a graph by name, parameters and buffers among them."""
    state = {"p_" + name.replace(".", "_"): value for name, value in module.named_parameters()}
    state |= {"b_" + name.replace(".", "_"): value for name, value in module.named_buffers()}
    given = iter(inputs)
    return {name: state[name].detach() if name in state else next(given) for name in names}


def agrees(case: Sample, folder: Path) -> None:
    """Check interpreter and generated kernel against the module itself in fp64."""
    module, inputs, dims = case
    graph = graph_of(module, inputs, dims)
    operator = write_folder(folder, graph, shapes=[dims])
    assert not generate(graph, "cpu").missing
    values = arguments(module, inputs, [tensor.name for tensor in graph.inputs])
    with torch.no_grad():
        right = copy.deepcopy(module).double()(*[x.double() if x.is_floating_point() else x for x in inputs])
    expected = [right] if isinstance(right, torch.Tensor) else list(right)
    evaluated = list(evaluate(graph, values, dims).values())
    made = list(called(operator, values, dims).values())
    assert len(expected) == len(evaluated) == len(made)
    for y, ours, kernels in zip(expected, evaluated, made, strict=True):
        torch.testing.assert_close(ours.double(), y.double(), rtol=1e-9, atol=1e-9, equal_nan=True)
        torch.testing.assert_close(kernels.double(), y.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_place_in_a_view_of_views_is_as_long_as_there_are_views(tmp_path: Path) -> None:
    """Networks that cut images into windows have many; written in one piece, it doubles with each."""

    def views(count: int) -> Graph:
        nodes, last = [], "x"
        for number in range(count):
            for op, axes, shape in (("permute", [1, 0], [5, "rows"]), ("view", ["rows", 5], ["rows", 5])):
                args = [{"ref": last}, [{"expr": each} if isinstance(each, str) else each for each in axes]]
                last = f"{op}{number}"
                outputs = [{"shape": shape, "dtype": "T"}]
                nodes.append({"name": last, "op": f"aten.{op}.default", "args": args, "outputs": outputs})
        x = {"name": "x", "shape": ["rows", 5], "dtype": "T"}
        return checked({"dims": ["rows"], "inputs": [x], "nodes": nodes, "outputs": [{"name": "y", "ref": last}]})

    assert len(generate(views(12), "cpu").source) < 3 * len(generate(views(6), "cpu").source)
    operator, x = write_folder(tmp_path / "views", views(3), shapes=[{"rows": 4}]), torch.rand(4, 5)
    right = evaluate(views(3), {"x": x}, {"rows": 4}, torch.float32)
    assert torch.equal(called(operator, {"x": x}, {"rows": 4})["y"], right["y"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", some_slow(sorted(SAMPLES), FAST))
def test_a_graph_and_its_kernel_compute_what_the_module_does(name: str, tmp_path: Path) -> None:
    agrees(sample(name), tmp_path / "sampled")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", some_slow(range(24), range(3)))
def test_a_random_graph_and_its_kernel_compute_what_the_module_does(seed: int, tmp_path: Path) -> None:
    agrees(random_module(seed), tmp_path / "random")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", some_slow(("gelu_mm", "softmax", "layernorm", "conv2", "maxpool2", "rms"), ("gelu_mm",))
)
def test_a_generated_kernel_is_judged_right_and_its_mutants_are_refused(name: str, tmp_path: Path) -> None:
    module, inputs, dims = sample(name)
    shapes = [{dim: size + more for dim, size in dims.items()} for more in (0, 1, 2, 5)]
    operator = write_folder(tmp_path / "judged", graph_of(module, inputs, dims), shapes=shapes)
    (tmp_path / "built").mkdir()
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=tmp_path / "built")
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    test = MutationTest(host, kernel, operator.hidden, seed=0)
    try:
        assert test.naive().rejection is None
        picked = chosen(mutants(kernel, SyntaxTree(kernel.source, operator, "cpu", "fp32")), 8)
        tried = [test.tried(mutant.kernel) for mutant in picked]
    finally:
        test.close()
    assert not any(found.rejection is None and found.differs for found in tried)
    assert sum(found.rejection is not None for found in tried) >= 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    some_slow(("gelu_mm", "layernorm", "convt2", "depthwise", "index2", "sort", "lstm_both", "gru"), ("layernorm",)),
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_generated_cuda_kernel_is_right_emulated(name: str, dtype: str, tmp_path: Path) -> None:
    module, inputs, dims = sample(name)
    operator = write_folder(tmp_path / "emulated", graph_of(module, inputs, dims), shapes=[dims])
    kernel = Kernel(operator.name, "cuda", operator.naive("cuda"))
    found = emulated(kernel, operator, dtype, shapes=[dims] if dims else 1)
    assert not isinstance(found, Rejection), found
    assert found
    assert not any(error.wrong for error in found)


def test_launches_that_repeat_are_groups() -> None:
    def launch(name: str, *integers: int) -> str:
        listed = ", ".join(f'"{each}"' for each in integers)
        return f'[[launch]]\nkernel = "{name}"\nargs = ["x", {listed}]'

    turns = [each for e in range(20) for each in (launch("a", e, 7), launch("b", 2 * e + 3))]
    found = folded([launch("first", 1), *turns, launch("last", 1)])
    assert found == [
        launch("first", 1),
        launch("a", 0, 7).replace('"0"', '"0 + 1 * i"') + '\ngroup = "turn1"',
        launch("b", 3).replace('"3"', '"3 + 2 * i"') + '\ngroup = "turn1"',
        launch("last", 1),
        '[group.turn1]\nrepeat = "20"',
    ]
    assert folded(turns[:6]) == turns[:6]
