"""Sources that no graph says are executed as they are, and kernels that users write for them are judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import torch

from evo.outside.importing import import_problem
from fitness.oracle.inputs import draw
from fitness.oracle.source import of_rows
from operators.catalog import functions, load
from operators.definition.spec import Operator
from operators.errors import OperatorError, UnwrittenError, UserError
from operators.importing.draws import drawn_integers, found_rules
from operators.importing.executing import RunningSource, in_one_type, packed, unpacked
from operators.importing.foreign import Failed
from operators.importing.readers import read
from operators.plan.reading import parse_plan
from tests.importing.test_users import verdict

SOURCE = """
import torch

def run(x, cache, indptr, pages, lengths, sm_scale):
    assert pages.shape[0] == indptr[-1].item()
    out = torch.zeros(x.shape, dtype=torch.bfloat16)
    total = torch.full((x.shape[0],), -float("inf"), dtype=torch.float32)
    for b in range(indptr.shape[0] - 1):
        first, last = int(indptr[b].item()), int(indptr[b + 1].item())
        if first >= last:
            continue
        rows = cache[pages[first:last].long()].float()
        seen = rows[:, : int(lengths[b].item())].flatten(0, 1)
        score = (seen @ x[b].float()) * sm_scale
        total[b] = score.logsumexp(0)
        out[b] = (score.softmax(0) @ seen).to(torch.bfloat16)
    return out, total
"""
KERNEL = """
/*! evo
[[launch]]
kernel = "attend"
args = ["x", "cache", "indptr", "pages", "lengths", "y0", "y1", "batch"]
*/
#include <math.h>
extern "C" void attend(
    const T* x, const T* cache, const int* indptr, const int* pages, const int* lengths, T* y0, ACC* y1, int batch) {
    for (int b = 0; b < batch; b++) {
        double sum = 0, sums[16] = {0}, largest = -INFINITY;
        for (int again = 0; again < 2; again++)
            for (int p = indptr[b]; p < indptr[b + 1]; p++)
                for (int t = 0; t < lengths[b]; t++) {
                    long place = ((long)pages[p] * 4 + t) * 16;
                    double score = 0;
                    for (int d = 0; d < 16; d++) score += (double)load(x[b * 16 + d]) * load(cache[place + d]);
                    score *= 0.25;
                    if (!again) largest = fmax(largest, score);
                    if (!again) continue;
                    sum += exp(score - largest);
                    for (int d = 0; d < 16; d++) sums[d] += exp(score - largest) * load(cache[place + d]);
                }
        for (int d = 0; d < 16; d++) y0[b * 16 + d] = store(indptr[b] < indptr[b + 1] ? sums[d] / sum : 0.0);
        y1[b] = indptr[b] < indptr[b + 1] ? largest + log(sum) : -INFINITY;
    }
}
"""
WRONG = (
    ("score *= 0.25;", ""),
    ("p < indptr[b + 1]; p++", "p < indptr[b + 1] - 1; p++"),
    ("t < lengths[b]", "t < 4"),
    ("(long)pages[p]", "(long)p"),
)


def definition(source: str = SOURCE) -> dict[str, object]:
    def variable(description: str = "") -> dict[str, str]:
        return {"type": "var", "description": description}

    axes = {"batch": variable(), "T": variable(), "length": variable("of indptr (batch + 1)"), "used": variable()}
    axes |= {"size": {"type": "const", "value": 4}, "dim": {"type": "const", "value": 16}}  # type: ignore[dict-item]
    floats = {"x": ["batch", "dim"], "cache": ["T", "size", "dim"]}
    integers = {"indptr": ["length"], "pages": ["used"], "lengths": ["batch"]}
    inputs: dict[str, object] = {name: {"shape": shape, "dtype": "bfloat16"} for name, shape in floats.items()}
    inputs |= {name: {"shape": shape, "dtype": "int32"} for name, shape in integers.items()}
    inputs["sm_scale"] = {"shape": None, "dtype": "float32", "description": "Default is (1/sqrt(dim))."}
    outputs = {
        "out": {"shape": ["batch", "dim"], "dtype": "bfloat16"}, "lse": {"shape": ["batch"], "dtype": "float32"},
    }  # fmt: skip
    constraints = ["used == indptr[-1].item()"]
    return {
        "name": "paged", "op_type": "paged", "axes": axes, "inputs": inputs, "outputs": outputs, "reference": source,
        "constraints": constraints,
    }  # fmt: skip


def imported(folder: Path, source: str = SOURCE) -> tuple[Operator, list[str]]:
    place = folder / "paged.json"
    place.write_text(json.dumps(definition(source)), encoding="utf-8")
    made, lines = import_problem(str(place), out=folder / "paged")
    return load(str(made)), lines


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Operator, list[str]]]:
    yield imported(tmp_path_factory.mktemp("paged"))


@pytest.mark.slow
def test_what_is_assumed_of_a_loop_over_rows_is_told(paged: tuple[Operator, list[str]]) -> None:
    operator, lines = paged
    assert operator.dims == ("batch", "T_", "used")
    assert any(line.startswith("`sm_scale` has no value in a workload: it is 1/sqrt(16) here") for line in lines)
    assert "`lengths` holds lengths from 1 to size" in lines
    assert [line for line in lines if "is left to write" in line] == [
        "paged() of naive.cpp and of naive.cu is left to write: origin/ holds the source that says what it computes"
    ]


@pytest.mark.slow
def test_the_kernels_of_a_loop_over_rows_say_that_they_are_left_to_write(paged: tuple[Operator, list[str]]) -> None:
    operator, _ = paged
    for target in ("cpu", "cuda"):
        with pytest.raises(UnwrittenError, match=r"paged\(\) is left to write"):
            parse_plan(operator.naive(target), operator, target)


@pytest.mark.slow
def test_inputs_of_a_loop_over_rows_are_valid(paged: tuple[Operator, list[str]]) -> None:
    operator, _ = paged
    for number, shape in enumerate(operator.hidden):
        rng = np.random.default_rng(number)
        made = draw(operator, functions(operator.folder), dims=shape.dims, dtype="fp32", family="nominal", rng=rng)
        found = made.tensors
        offsets, pages, lengths = (found[tensor.name] for tensor in operator.inputs[2:])
        assert offsets[0] == 0 and offsets[-1] == len(pages) and bool((offsets.diff() >= 0).all())
        assert bool((pages >= 0).all()) and bool((pages < found["cache"].shape[0]).all())
        assert bool((lengths >= 1).all()) and bool((lengths <= 4).all())


@pytest.mark.slow
def test_a_kernel_that_a_user_writes_for_a_loop_over_rows_is_right_and_wrong_ones_are_refused(
    paged: tuple[Operator, list[str]], tmp_path: Path
) -> None:
    folder = copytree(paged[0].folder, tmp_path / "paged")
    (folder / "naive.cpp").write_text(KERNEL, encoding="utf-8")
    operator = load(str(folder))
    right, *refused = verdict(operator, tmp_path, *WRONG)
    assert right is None and all(refused)


@pytest.mark.slow
def test_a_source_that_ends_its_process_leaves_one_line(tmp_path: Path) -> None:
    operator, _ = imported(tmp_path)
    told = json.loads((operator.folder / "source.json").read_text(encoding="utf-8"))
    told["files"]["problem.py"] = "import os\n\ndef run(*_):\n    os._exit(1)\n"
    (operator.folder / "source.json").write_text(json.dumps(told), encoding="utf-8")
    rng = np.random.default_rng(0)
    offered = functions(operator.folder)
    made = draw(operator, offered, dims=operator.hidden[0].dims, dtype="fp32", family="nominal", rng=rng)
    with pytest.raises(OperatorError, match="the source gave no answer"):
        offered.reference({**made.dims, **made.tensors})


@pytest.mark.slow
def test_a_loop_over_rows_whose_results_do_not_depend_on_its_inputs_is_refused(tmp_path: Path) -> None:
    constant = SOURCE.replace("return out, total", "return torch.zeros_like(out)")
    with pytest.raises(UserError, match="do not depend on its inputs"):
        imported(tmp_path, constant)


# --- parts ---


def test_offsets_end_at_their_sizes_and_rows_are_no_shorter_in_the_longer() -> None:
    rules = {"keys": ("offsets", ["kv"]), "queries": ("offsets", ["q"]), "at": ("places", ["n", "m"])}
    for seed in range(20):
        torch.manual_seed(seed)
        made = drawn_integers(rules, {"keys": [6], "queries": [6], "at": [2, 5]}, {"kv": 40, "q": 9, "n": 2, "m": 3})
        keys, queries, places = made["keys"], made["queries"], made["at"]
        assert [int(each[at]) for each in (keys, queries) for at in (0, -1)] == [0, 40, 0, 9]
        assert bool((keys.diff() >= queries.diff()).all()) and bool((queries.diff() >= 0).all())
        assert all(len(row.unique()) == 5 and int(row.max()) < 6 for row in places)


def test_ranges_of_integers_are_found_by_trial() -> None:
    cache = torch.arange(14.0).reshape(7, 2)

    def run(given: Mapping[str, torch.Tensor]) -> Sequence[torch.Tensor]:
        at, length = given.get("at", torch.tensor([0])), given.get("length", torch.tensor([1]))
        if bool((at >= len(cache)).any()):
            raise Failed("index out of range")
        return [cache[at].sum(), cache[:, : int(length[0])].sum()]

    waiting = {name: torch.zeros(1, dtype=torch.int64) for name in ("at", "length", "unused")}
    found = dict(found_rules(waiting, {"cache": ["rows", "cols"], "q": ["b"]}, {"rows": 7, "cols": 2, "b": 5}, run))
    assert found == {"at": ("places", ["rows"]), "length": ("lengths", ["cols"])}


def test_all_numbers_of_a_source_have_one_type() -> None:
    with in_one_type(torch.float64):
        x = torch.ones(2, dtype=torch.bfloat16).float() + torch.zeros(2)
        assert x.half().dtype == torch.float64 and torch.arange(2).dtype == torch.int64
    assert torch.zeros(1).dtype == torch.float32


def test_messages_hold_tensors_of_all_types() -> None:
    sent = {"a": torch.tensor([[True], [False]]), "b": torch.tensor(1.5, dtype=torch.bfloat16), "c": torch.zeros(0, 3)}
    head, found = unpacked(packed({"seed": 1}, sent))
    assert head == {"seed": 1} and found.keys() == sent.keys()
    assert all(torch.equal(found[name], each) and found[name].dtype == each.dtype for name, each in sent.items())
    with pytest.raises(ValueError, match="without all of `a`"):
        unpacked(packed({}, {"a": torch.ones(4)})[:-1])


def test_sizes_of_rows_hold_where_results_are_infinite() -> None:
    sizes = of_rows({"y": torch.tensor([[3.0, -4.0], [float("-inf"), 2.0]])})["y"]
    assert bool(sizes.isfinite().all()) and float(sizes[0, 0]) == pytest.approx(3 + 12.5**0.5)


def test_an_axis_of_offsets_follows_from_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "paged.json"
    place.write_text(json.dumps(definition()), encoding="utf-8")
    request = read(str(place)).request
    assert request["derived"] == {"length": "batch + 1"} and request["offsets"] == {"indptr": "used"}
    monkeypatch.chdir(tmp_path)
    Path("problem.py").write_text(SOURCE, encoding="utf-8")
    leaves = RunningSource({**request, "rules": {"indptr": ("offsets", ["used"])}}).leaves(
        {"batch": 3, "T": 2, "used": 9}, 0
    )
    made = dict(zip(leaves.names, leaves.tensors, strict=True))
    assert made["indptr"].tolist()[::3] == [0, 9] and made["indptr"].dtype == torch.int32
