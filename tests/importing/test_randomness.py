"""Random numbers that a source draws are inputs of its task: what ignores them is wrong, and solutions draw them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from evo.outside.importing import import_problem
from evo.packaging.package import from_file
from evo.packaging.solution import write_solution
from fitness.judging.mutation_test import MutationTest
from fitness.targets import place
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.importing.control import AllRows, Branches
from operators.importing.foreign import Failed, Unrolled
from operators.importing.graphs.decompositions import decompositions
from operators.importing.randomness import Drawing, RandomNumbers
from operators.kernel import Kernel
from tests.importing.conftest import of_function
from tests.importing.test_solutions import alone, needs_ninja

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
U = torch.tensor([[0.1, 0.6, 0.3], [0.9, 0.25, 0.7]])
Z = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]])
P = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.0, 0.4]])
KINDS: dict[str, tuple[Callable[[], Tensor], str, Tensor, Tensor]] = {
    "rand": (lambda: torch.rand(2, 3), "uniform", U, U),
    "rand_like": (lambda: torch.rand_like(X) * X, "uniform", U, U * X),
    "uniform_": (lambda: torch.empty(2, 3).uniform_(-1, 3), "uniform", U, 4 * U - 1),
    "randn": (lambda: torch.randn(2, 3), "normal", Z, Z),
    "randn_like": (lambda: torch.randn_like(X), "normal", Z, Z),
    "normal_": (lambda: torch.empty(2, 3).normal_(1, 2), "normal", Z, 2 * Z + 1),
    "normal": (lambda: torch.normal(X, 2.0), "normal", Z, 2 * Z + X),
    "bernoulli": (lambda: torch.bernoulli(torch.full((2, 3), 0.5)), "uniform", U, (U < 0.5).float()),
    "bernoulli_": (lambda: torch.empty(2, 3).bernoulli_(0.25), "uniform", U, (U < 0.25).float()),
    "dropout": (lambda: functional.dropout(X, 0.5), "uniform", U, (U < 0.5) * X * 2),
    "rrelu": (lambda: functional.rrelu(X, 0.1, 0.5, True), "uniform", U, torch.where(X < 0, X * (0.4 * U + 0.1), X)),
    "exponential_": (lambda: torch.empty(2, 3).exponential_(2.0), "uniform", U, -torch.log1p(-U) / 2),
    "randint": (lambda: torch.randint(2, 12, (2, 3)), "uniform", U, torch.tensor([[3, 8, 5], [11, 4, 9]])),
    "randperm": (lambda: torch.randperm(3), "uniform", U[0], torch.tensor([0, 2, 1])),
    "multinomial": (lambda: torch.multinomial(P, 1), "uniform", U[:, :1], torch.tensor([[0], [2]])),
    "with replacement": (lambda: torch.multinomial(P, 3, True), "uniform", U, torch.tensor([[0, 2, 1], [2, 0, 2]])),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_is_a_function_of_the_numbers(kind: str) -> None:
    function, law, numbers, expected = KINDS[kind]
    with Drawing(RandomNumbers([(law, numbers)])):
        found = function()
    assert found.dtype == expected.dtype and torch.allclose(found, expected)


def test_places_are_drawn_as_often_as_their_shares_say() -> None:
    numbers = (torch.arange(1000) + 0.5).div(1000)
    with Drawing(RandomNumbers([("uniform", numbers)])):
        found = torch.multinomial(3 * P[0], 1000, replacement=True)
    assert found.bincount().tolist() == [200, 300, 500]


def test_several_places_without_replacement_are_refused_in_a_line() -> None:
    with pytest.raises(Failed, match=r"2 places without replacement \(torch.multinomial\)"), Drawing(RandomNumbers()):
        torch.multinomial(P, 2)


def test_other_numbers_than_those_recorded_are_told() -> None:
    with pytest.raises(Failed, match="hangs on values"), Drawing(RandomNumbers([("uniform", U)])):
        torch.randn(2, 3)


def test_each_way_of_an_if_is_taken_and_the_values_choose() -> None:
    branches = Branches()

    def way(x: Tensor) -> Tensor:
        if branches.decides(x < 0):
            return -x
        return 2 * x if branches.decides(x < 10) else x * 0

    found = [branches.all_ways(partial(way, torch.tensor(x))) for x in (-3.0, 4.0, 11.0)]
    assert list(map(float, found)) == [3, 8, 0]
    with pytest.raises(Unrolled, match="more than 12 values"):
        branches.all_ways(lambda: [branches.decides(torch.tensor(True)) for _ in range(13)])


def put(x: Tensor, places: Tensor, values: Any) -> Tensor:
    made = torch.zeros_like(x)
    made[places] = values
    return made


ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elements": lambda x, w: torch.where(x > 0, x * w[0, 0], x - 1)[None],
    "sums": lambda x, w: (x / x.sum() + x.amax(-1, keepdim=True))[None],
    "order": lambda x, w: torch.sort(x, descending=True)[0].cumsum(0)[None],
    "best": lambda x, w: (x.argmax() + x.reshape(2, 3).argmax(1).sum()).reshape(1),
    "product": lambda x, w: (x.reshape(2, 3) @ w).reshape(1, -1),
    "taken": lambda x, w: x[torch.sort(x)[1]][None],
    "of a table": lambda x, w: w[x.argmax()[None] % 3],
    "put": lambda x, w: put(x, torch.sort(x)[1], x)[None],
    "joined": lambda x, w: torch.cat([x[1:], x[:1]])[None],
    "axes": lambda x, w: x.reshape(2, 3).transpose(0, 1).unsqueeze(0).expand(2, 3, 2).reshape(1, -1),
    "shares": lambda x, w: x.softmax(0)[None],
}


@pytest.mark.parametrize("kind", ROWS)
def test_all_rows_at_once_are_what_each_is_alone(kind: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 6), torch.randn(3, 3)
    module = make_fx(functionalize(lambda x, w: ROWS[kind](x[0], w)), decompositions())(x[:1], w)
    found = AllRows(module, 5).of([x, w], [0, None])
    torch.testing.assert_close(found, torch.cat([ROWS[kind](row, w) for row in x]))


# --- imports ----------------------------------------------------------------------------------------------------------

NOISE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.line = nn.Linear(width, width)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        y = self.drop(self.line(x))
        return y + torch.randn_like(y) * torch.bernoulli(torch.sigmoid(x)) + torch.rand(y.shape[0], 1)


batch, width = 48, 40


def get_inputs():
    return [torch.randn(batch, width)]


def get_init_inputs():
    return [width]
"""
PLACES = """
import torch


def places(x):
    p = torch.softmax(x, -1)
    return torch.multinomial(p, 3, replacement=True), torch.randint(0, 7, (x.shape[0],)) + p.argmax(-1)


def two(x):
    return torch.multinomial(torch.softmax(x, -1), 2)


def make(rows=24, width=40):
    return torch.randn(rows, width)
"""
TOP_P = """
import torch


@torch.no_grad()
def run(probs, top_p):
    batch_size, vocab_size = probs.shape
    assert vocab_size == 128256
    out = torch.empty(batch_size, dtype=torch.int64, device=probs.device)
    for i in range(batch_size):
        row = probs[i]
        p = float(top_p[i].item())
        if p <= 0.0:
            out[i] = torch.argmax(row).to(torch.int64)
            continue
        if p < 1.0:
            vals, idx = torch.sort(row, descending=True)
            to_remove = torch.cumsum(vals, dim=0) > p
            to_remove[1:] = to_remove[:-1].clone()
            to_remove[0] = False
            keep_idx = idx[~to_remove]
            filtered = torch.zeros_like(row)
            filtered[keep_idx] = row[keep_idx]
            row = filtered / filtered.sum()
        out[i] = torch.multinomial(row, 1, replacement=True).squeeze(0)
    return out
"""
DEFINITION = {
    "name": "top_p_v128256", "op_type": "sampling",
    "axes": {"batch_size": {"type": "var"}, "vocab_size": {"type": "const", "value": 128256}},
    "inputs": {"probs": {"shape": ["batch_size", "vocab_size"], "dtype": "float32"},
               "top_p": {"shape": ["batch_size"], "dtype": "float32"}},
    "outputs": {"samples": {"shape": ["batch_size"], "dtype": "int64"}}, "reference": TOP_P,
}  # fmt: skip
SAMPLER = """/*! evo
[[buffer]]
name = "kept"
dtype = "T"
shape = ["batch_size", "vocab_size"]

[[launch]]
kernel = "sample"
args = ["probs", "top_p", "u", "kept", "y", "batch_size", "vocab_size"]
*/
extern "C" void sample(const T* probs, const T* top_p, const float* u, T* kept, long long* y, long long rows,
                       long long n) {
    for (long long row = 0; row < rows; ++row) {
        const T* x = probs + row * n;
        T* k = kept + row * n;
        const float p = top_p[row];
        if (p <= 0) {
            long long best = 0;
            for (long long i = 1; i < n; ++i)
                if (x[i] > x[best]) best = i;
            y[row] = best;
            continue;
        }
        float total = 0;
        for (long long i = 0; i < n; ++i) {
            float before = 0;
            for (long long j = 0; j < n; ++j)
                if (x[j] > x[i] || (x[j] == x[i] && j < i)) before += x[j];
            k[i] = p >= 1 || before <= p ? x[i] : 0;
            total += k[i];
        }
        const float wanted = u[row] * total;
        float sum = 0;
        long long found = n - 1;
        for (long long i = 0; i < n; ++i) {
            sum += k[i];
            if (sum > wanted) {
                found = i;
                break;
            }
        }
        y[row] = found;
    }
}
"""
WRONG = {
    "ignores the numbers": ("u[row] * total", "0.5f * total"),
    "ignores top_p": ("const float p = top_p[row]", "const float p = 1"),
    "ignores top_p above 0": ("p >= 1 || before <= p ?", "true ?"),
    "takes the largest": ("if (p <= 0)", "if (true)"),
    "takes no largest": ("if (p <= 0)", "if (false)"),
    "takes another row's numbers": ("u[row]", "u[(row + 1) % rows]"),
    "takes one row's numbers": ("u[row]", "u[0]"),
    "drops the token that crosses top_p": ("before <= p", "before + x[i] <= p"),
    "does not normalize": ("u[row] * total", "u[row]"),
    "counts from the end": ("u[row] * total", "(1 - u[row]) * total"),
    "takes the next": ("y[row] = found", "y[row] = found + 1 < n ? found + 1 : found"),
}


@pytest.fixture(scope="module")
def top_p(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an imported definition that samples."""
    folder = tmp_path_factory.mktemp("top_p")
    (folder / "top_p.json").write_text(json.dumps(DEFINITION))
    made, lines = import_problem(str(folder / "top_p.json"), out=folder / "operator")
    assert any("draws with torch.multinomial; here the numbers are the input `u`" in line for line in lines)
    return made


def judged(operator: Operator, folder: Path, sources: list[str], shapes: int | None = None) -> list[bool]:
    """Whether each of these kernels is right."""
    kernels = [Kernel(operator.name, "cpu", source) for source in sources]
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=folder)
    test = MutationTest(host, kernels[0], operator.hidden[:shapes], seed=0)
    try:
        return [test.naive().rejection is None, *(test.tried(each).rejection is None for each in kernels[1:])]
    finally:
        test.close()


@pytest.mark.slow
def test_a_sampler_is_a_function_of_its_numbers_over_all_rows(top_p: Path) -> None:
    operator = load(str(top_p))
    assert operator.dims == ("batch_size", "vocab_size")
    u = next(tensor for tensor in operator.inputs if tensor.name == "u")
    assert u.bounded and u.shape[0].text == "batch_size" and u.dtype == "ACC"
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3]] * 4, dtype=torch.float64)
    values = {"probs": probs, "top_p": torch.tensor([0.0, 0.6, 0.6, 1.0]), "batch_size": 4, "vocab_size": 4}
    values["u"] = torch.tensor([[0.9], [0.5], [0.6], [0.05]])
    from operators.catalog import functions

    assert functions(operator.folder).call("reference", values)["y"].tolist() == [1, 1, 3, 0]


@pytest.mark.slow
def test_right_samplers_are_right_and_wrong_ones_are_refused(top_p: Path, tmp_path: Path) -> None:
    operator = load(str(top_p))
    sources = [operator.naive("cpu"), SAMPLER, *(SAMPLER.replace(*change) for change in WRONG.values())]
    assert SAMPLER not in sources[2:]
    right, by_hand, *wrong = judged(operator, tmp_path, sources)
    assert right and by_hand
    assert [name for name, taken in zip(WRONG, wrong, strict=True) if taken] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "name", "inputs"),
    [(NOISE, "", {"u": 2, "z": 1}), (PLACES, "places", {"u": 2})],
    ids=["modules", "places"],
)
def test_each_draw_is_an_input_and_the_first_kernel_is_right(
    text: str, name: str, inputs: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "1_noise.py").write_text(text)
    source = f"{tmp_path / '1_noise.py'}{f':{name}' if name else ''}"
    folder, _ = import_problem(source, inputs=f"{tmp_path / '1_noise.py'}:make" if name else "", out=tmp_path / "made")
    operator = load(str(folder))
    assert len(operator.dims) == 2
    found = [tensor.name.strip("_") for tensor in operator.inputs]
    assert {key: found.count(key) for key in inputs} == {**inputs, **({"u": 3} if not name else {})}
    assert judged(operator, tmp_path, [operator.naive("cpu")], 6) == [True]


@pytest.mark.slow
def test_places_that_hang_on_each_other_are_no_task(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="without replacement"):
        of_function(tmp_path, PLACES, "two")


SAMPLES = """
import json
from pathlib import Path
solution = json.load(open(sys.argv[1]))
(source,) = solution["sources"]
Path("main.py").write_text(source["content"])
run = loaded("main.py")[solution["spec"]["entry_point"].split("::")[1]]
probs, top_p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]]).repeat(1000, 1), None
top_p = torch.tensor([0.65, 1.5, 0.0]).repeat(1000)
samples = torch.full((3000,), -1)
torch.manual_seed(0)
run(probs, top_p, samples)
wanted = torch.tensor([[0, 0, 3 / 7, 4 / 7], [0.4, 0.3, 0.2, 0.1], [0, 0, 0, 1.0]])
found = torch.stack([samples[row::3].bincount(minlength=4) / 1000 for row in range(3)])
assert (found - wanted).abs().max() < 0.08 and (found[wanted == 0] == 0).all()
print("right")
"""
DROPS = """
theirs, ours = loaded(sys.argv[1]), loaded(sys.argv[2])
torch.manual_seed(42)
new = ours["ModelNew"](*theirs["get_init_inputs"]())
x = torch.zeros(4000, 40)
with torch.no_grad():
    new.line.weight.zero_(), new.line.bias.fill_(8.0)
    found = torch.stack([new(x) for _ in range(2)])
assert found.shape == (2, 4000, 40) and not torch.equal(*found)
# a number is 8 / 0.75 or dropped, half of them have a normal number more, and each row one of [0, 1)
assert abs(float((found > 7).double().mean()) - 0.75) < 0.01 and abs(float(found.mean()) - 8.5) < 0.1
print("right")
"""


@needs_ninja
@pytest.mark.slow
@pytest.mark.long
def test_a_solution_that_samples_draws_its_numbers_itself(top_p: Path, tmp_path: Path) -> None:
    write_solution(from_file(str(top_p), "naive", target="cpu"), "flashinfer", tmp_path / "out")
    assert alone(SAMPLES, tmp_path, tmp_path / "out" / "solution.json") == "right"


@needs_ninja
@pytest.mark.slow
@pytest.mark.long
def test_a_module_that_drops_has_the_signature_of_its_task(tmp_path: Path) -> None:
    problem = tmp_path / "1_noise.py"
    problem.write_text(NOISE.replace("batch, width = 48", "batch, width = 4000"))
    folder, _ = import_problem(str(problem), out=tmp_path / "operator", name="solved")
    write_solution(from_file(str(folder), "naive", target="cpu"), "kernelbench", tmp_path / "out")
    assert alone(DROPS, tmp_path, problem, tmp_path / "out" / "model_new.py") == "right"
