"""Problems as users bring them: functions of PyTorch of all kinds become operators whose first kernel is right."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from evo.outside.importing import import_problem
from fitness.evaluation import Rejection
from fitness.judging.mutation_test import MutationTest
from fitness.oracle.inputs import draw
from fitness.targets import place
from operators.catalog import functions, load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.importing.graphs.decompositions import RULES
from operators.importing.graphs.faint import fainter, leaning, levels
from operators.importing.pairs import Complex, RealParts, pair_of
from operators.importing.problems import compiled
from operators.importing.readers import read
from operators.importing.rounding.running import running
from operators.kernel import Kernel
from tests.choosing import some_long
from tests.importing.conftest import of_function
from tests.importing.exporting import graph_of
from tests.importing.samples import M

USERS: dict[str, tuple[tuple[str, ...], str]] = {
    "cache": (("B", "H", "L", "D"), """
        def cache(q, new, cache, at):
            cache[torch.arange(q.shape[0]), :, at] = new
            score = (q.unsqueeze(2) @ cache.mT).squeeze(2)
            seen = torch.arange(cache.shape[2])[None] <= at[:, None]
            return score.masked_fill(~seen[:, None], -float("inf")).softmax(-1)
        def make():
            B, H, L, D = 3, 4, 40, 8
            return torch.randn(B, H, D), torch.randn(B, H, D), torch.randn(B, H, L, D), torch.randint(0, L, (B,))
     """),
    "state": (("B", "C", "L", "K"), """
        def state(x, last, weight):
            whole = torch.cat([last, x], -1)
            return F.conv1d(whole, weight[:, None], groups=x.shape[1]), whole[..., -(weight.shape[1] - 1) :]
        def make():
            B, C, L, K = 2, 12, 21, 9
            return torch.randn(B, C, L), torch.randn(B, C, K - 1), torch.randn(C, K)
     """),
    "ignored": (("N", "V"), """
        def ignored(logits, labels):
            return F.cross_entropy(logits, labels, ignore_index=-100)
        N, V = 30, 50
        def make():
            labels = torch.randint(0, V, (N,))
            labels[torch.rand(N) < 0.2] = -100
            return torch.randn(N, V), labels
     """),
    "names": (("d0", "d1", "d5"), """
        def names(values, reference, running, integers):
            device = values - reference / running.exp()
            return device[integers]
        def make():
            return torch.randn(40, 12), torch.randn(40, 12), torch.randn(12), torch.randint(0, 40, (40,))
     """),
    "resized": (("B", "C", "H", "W"), """
        def resized(x):
            small = F.interpolate(x, size=(9, 14), mode="bilinear", antialias=True)
            return small, F.interpolate(x, scale_factor=1.5, mode="bicubic", antialias=True, align_corners=True)
        B, C, H, W = 2, 3, 24, 31
        def make():
            return torch.rand(B, C, H, W)
     """),
    "grown": (("B", "C", "H", "W"), """
        def grown(x):
            twice = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
            half = F.interpolate(x, scale_factor=0.5, mode="nearest")
            more = F.interpolate(x, scale_factor=1.5, mode="bilinear")
            return F.interpolate(twice, x.shape[2:], mode="bilinear"), half, more
        B, C, H, W = 2, 3, 24, 31
        def make():
            return torch.rand(B, C, H, W)
     """),
    "shrunk": (("B", "C", "W"), """
        def shrunk(x):
            return F.interpolate(x, scale_factor=(0.3, 1), mode="bilinear")
        B, C, H, W = 2, 3, 24, 31
        def make():
            return torch.rand(B, C, H, W)
     """),
    "bagged": (("N", "d1", "d2", "d3", "d4"), """
        def bagged(table, ids, flat, offsets):
            largest = F.embedding_bag(ids, table, mode="max")
            return largest, F.embedding_bag(flat, table, offsets, mode="max", padding_idx=3)
        def make():
            N = 40
            offsets = torch.tensor([0, 7, 7, 20])
            return torch.randn(N, 12), torch.randint(0, N, (6, 5)), torch.randint(0, N, (30,)), offsets
     """),
    "cells": (("d0", "d1", "d2", "d4", "d5"), """
        def cells(x, h, into, within, bias):
            for step in range(2):
                h = torch.gru_cell(x[:, step], h, into, within, bias, bias)
            return h
        def make():
            return [torch.randn(5, 2, 7), torch.randn(5, 6), torch.randn(18, 7), torch.randn(18, 6), torch.randn(18)]
     """),
    "losses": (("d0", "d1"), """
        def losses(a, b):
            sign = torch.where(b > 0, 1, -1)
            hinge = F.hinge_embedding_loss(a, sign, 0.7)
            margin = F.margin_ranking_loss(a[:, 0], b[:, 0], sign[:, 0], 0.2)
            angle = F.cosine_embedding_loss(a, b, sign[:, 1], 0.1, reduction="sum")
            spread = F.gaussian_nll_loss(a, b, b.exp(), full=True)
            return hinge, margin, angle, spread, F.rms_norm(a, (a.shape[1],)), a.nanmean(0)
        def make():
            return torch.randn(40, 12), torch.randn(40, 12)
     """),
    "aligned": (("N", "C", "L"), """
        def aligned(logits, targets, steps, lengths):
            scores = logits.log_softmax(-1)
            each = F.ctc_loss(scores, targets, steps, lengths, blank=2, reduction="none", zero_infinity=True)
            return each, F.ctc_loss(scores, targets, steps, lengths, zero_infinity=True)
        def make():
            N, C, L = 6, 9, 4
            targets = torch.randint(1, C, (N, L))
            return torch.randn(7, N, C), targets, torch.randint(1, 8, (N,)), torch.randint(1, L + 1, (N,))
     """),
    "trained": (("d0", "d1", "d2"), """
        def trained(x, mean, variance, weight, bias):
            return F.batch_norm(x, mean, variance, weight, bias, True, 0.2)
        def make():
            return torch.randn(6, 4, 9), torch.zeros(4), torch.ones(4), torch.rand(4), torch.randn(4)
     """),
    "nearest": (("d0", "d1", "d2"), """
        def nearest(x, book):
            apart = x.pow(2).sum(1, keepdim=True) - 2 * x @ book.t() + book.pow(2).sum(1)
            place = apart.argmin(1)
            return place, ((book[place] - x) ** 2).mean(), torch.bincount(place, minlength=24)
        def make():
            return torch.randn(300, 8), torch.randn(24, 8)
     """),
    "padded": (("B", "L", "D"), """
        def padded(x, pad, rows, out):
            kept = x.masked_fill(pad[..., None], 0).sum(1)
            out[:] = torch.zeros(12, x.shape[2]).index_add(0, rows, x[:, 0])
            return kept
        def make():
            B, L, D = 6, 20, 8
            lengths, rows = torch.randint(1, L + 1, (B,)), torch.sort(torch.randint(0, 12, (B,)))[0]
            return torch.randn(B, L, D), torch.arange(L)[None] >= lengths[:, None], rows, torch.empty(12, D)
     """),
    "quantised": (("d0", "d1"), """
        def quantised(x, weight):
            y = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) * weight
            scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
            return torch.round(y / scale).clamp(-128, 127).to(torch.int8), scale.squeeze(-1)
        def make():
            return {"x": torch.randn(64, 96), "weight": torch.rand(96) + 0.5}
     """),
    "float8": (("d0", "d1"), """
        def float8(x):
            scale = x.abs().amax(-1, keepdim=True).clamp(1e-4) / 448
            return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
        def make():
            return torch.randn(32, 128),
     """),
    "rotated": (("d0", "d1", "d2", "d3"), """
        def rotated(x):
            angle = torch.outer(torch.arange(x.shape[1]).float(), 1 / 10 ** torch.linspace(0, 3, x.shape[3] // 2))
            turn = torch.polar(torch.ones_like(angle), angle)[None, :, None]
            pairs = torch.view_as_complex(x.reshape(*x.shape[:3], -1, 2))
            return torch.view_as_real(pairs * turn).flatten(3)
        def make():
            return torch.randn(2, 20, 4, 16),
     """),
    "convolved": (("d0", "d1", "d2", "d4"), """
        def convolved(u, k):
            n = 2 * u.shape[-1]
            return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)[..., : u.shape[-1]]
        def make():
            return torch.randn(2, 8, 48), torch.randn(8, 48)
     """),
    "solved": (("d0", "d1"), """
        def solved(x, y):
            kernel = torch.exp(-torch.cdist(x, x) ** 2) + torch.eye(x.shape[0])
            return torch.cholesky_solve(y[:, None], torch.linalg.cholesky(kernel)).squeeze(1)
        def make():
            return torch.randn(40, 3), torch.randn(40)
     """),
    "segments": (("d0",), """
        def segments(x, of):
            largest = torch.full((6,), -1e30).scatter_reduce(0, of, x, "amax")
            e = (x - largest[of]).exp()
            return e / torch.zeros(6).index_add_(0, of, e)[of]
        def make():
            return torch.randn(100), torch.randint(0, 6, (100,))
     """),
    "steps": (("n",), """
        def steps(p, g, m):
            m.mul_(0.9).add_(g)
            p.add_(m, alpha=-0.01)
        def make():
            n = 1 << 8
            return torch.randn(n), torch.randn(n), torch.randn(n)
     """),
    "filtered": (("d0", "d1"), """
        def filtered(logits):
            values, places = torch.topk(logits, 5, dim=-1)
            p = values.softmax(-1)
            p = p.masked_fill(p.cumsum(-1) - p >= 0.8, 0.0)
            return torch.zeros_like(logits).scatter(-1, places, p / p.sum(-1, keepdim=True))
        def make():
            return torch.randn(16, 60),
     """),
    "tables": (("d1", "d2"), """
        MOVES = torch.tensor([0, 1, -1])
        WEIGHTS = torch.tensor([0.5, 0.25, 0.25])
        def tables(f):
            mixed = f * WEIGHTS.view(-1, 1, 1)
            return torch.stack([torch.roll(mixed[i], int(MOVES[i]), 0) for i in range(3)])
        def make():
            return torch.rand(3, 20, 12),
     """),
    "labels": (("d0", "d1"), """
        def labels(x, y):
            return F.cross_entropy(x, y, label_smoothing=0.1)
        def make():
            return torch.randn(30, 300), torch.randint(0, 300, (30,))
     """),
    "guarded": (("d0", "d1", "d3"), """
        def guarded(x, w):
            y = x @ w
            centred = y - y.mean(-1, keepdim=True)
            normed = y / (y.norm(dim=-1, keepdim=True) + 1e-10)
            return normed, torch.log(y.abs() + 1e-9), centred / torch.sqrt(y.var(-1, keepdim=True) + 1e-5)
        def make():
            return torch.randn(30, 40), torch.randn(40, 20)
     """),
    "routed": (("T_", "D", "H"), """
        def routed(x, gate, up, down):
            weights, chosen = torch.topk((x @ gate.T).softmax(-1), 2, dim=-1)
            out, again = torch.zeros_like(x), torch.zeros_like(x)
            for e in range(up.shape[0]):
                mask = chosen == e
                token, slot = torch.where(mask)
                if token.numel() == 0:
                    continue
                h = F.silu(x[token] @ up[e].T) @ down[e].T
                out.index_add_(0, token, h * weights[token, slot, None])
                any_slot = mask.any(-1)
                if any_slot.any():
                    share = (weights * mask).sum(-1)[any_slot]
                    again[any_slot] += share[:, None] * (x[any_slot] @ up[e].T).relu() @ down[e].T
            return out, again, x[weights[:, 0] > 0.3].sum(0)
        def make():
            T, D, E, H = 40, 24, 4, 16
            return torch.randn(T, D), torch.randn(E, D), torch.randn(E, H, D) / 5, torch.randn(E, D, H) / 5
     """),
    "grouped": (("T_", "D", "H"), """
        def grouped(x, gate, up, down):
            chosen = (x @ gate.T).argmax(-1)
            order = chosen.argsort(stable=True)
            sorted_x, start, parts = x[order], 0, []
            for e, count in enumerate(torch.bincount(chosen, minlength=up.shape[0]).tolist()):
                if count == 0:
                    continue
                parts.append((sorted_x[start : start + count] @ up[e].T).relu() @ down[e].T)
                start += count
            out = torch.empty_like(sorted_x)
            out[order] = torch.cat(parts)
            return out
        def make():
            T, D, E, H = 40, 24, 4, 16
            return torch.randn(T, D), torch.randn(E, D), torch.randn(E, H, D) / 5, torch.randn(E, D, H) / 5
     """),
    "cut": (("d0", "d1"), """
        def cut(logits):
            values, places = torch.sort(logits, descending=True, dim=-1)
            drop = values.softmax(-1).cumsum(-1) > 0.9
            drop[..., 1:] = drop[..., :-1].clone()
            drop[..., 0] = False
            return logits.masked_fill(torch.zeros_like(drop).scatter(-1, places, drop), -float("inf"))
        def make():
            return torch.randn(8, 60),
     """),
    "related": (("T_", "B", "n"), """
        def related(boxes, low, high, x, offsets, matrix):
            width, height = (boxes[:, 2:] - boxes[:, :2]).unbind(1)
            of = torch.searchsorted(offsets, torch.arange(x.shape[0]), right=True) - 1
            sums = torch.zeros(offsets.shape[0] - 1).index_add_(0, of, x)
            return (width * height).sqrt(), (high - low).log(), sums, torch.linalg.cholesky(matrix)
        def make():
            T, B, n = 30, 5, 12
            corner, cuts, low = torch.rand(n, 2), torch.randint(0, T + 1, (B - 1,)).sort().values, torch.rand(n)
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), cuts, torch.full((1,), T)])
            a = torch.randn(n, n)
            boxes = torch.cat([corner, corner + torch.rand(n, 2)], 1)
            return boxes, low, low + torch.rand(n) + 0.1, torch.randn(T), offsets, a @ a.T + n * torch.eye(n)
     """),
}  # fmt: skip
"""By name: the dims that are found, and the source."""
LONG = ("aligned", "grown")
"""Those of a hundred operators of torch and more."""
Importer = Callable[[str], tuple[Operator, list[str]]]


def written(folder: Path, name: str) -> str:
    place = folder / f"{name}.py"
    place.write_text("import torch\nimport torch.nn.functional as F\n\n" + textwrap.dedent(USERS[name][1]))
    return str(place)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Importer:
    """Imports a function once for all tests."""

    @cache
    def made(name: str) -> tuple[Operator, list[str]]:
        folder = tmp_path_factory.mktemp(name)
        source = written(folder, name)
        operator, lines = import_problem(f"{source}:{name}", inputs=f"{source}:make", out=folder / name)
        return load(str(operator)), lines

    return made


def verdict(operator: Operator, folder: Path, *changes: tuple[str, str]) -> list[Rejection | None]:
    """The verdicts on an operator's first kernel, and on it with each of the changes."""
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=folder)
    test = MutationTest(host, kernel, operator.hidden)
    try:
        found = [test.naive().rejection]
        for old, new in changes:
            assert old in kernel.source
            found.append(test.tried(Kernel(operator.name, "cpu", kernel.source.replace(old, new, 1))).rejection)
    finally:
        test.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", some_long(USERS, LONG))
def test_a_users_function_has_dims_and_a_first_kernel_that_is_right(
    name: str, imported: Importer, tmp_path: Path
) -> None:
    operator, lines = imported(name)
    assert operator.dims == USERS[name][0]
    assert not [line for line in lines if line.startswith("naive.")]
    assert verdict(operator, tmp_path) == [None]


@pytest.mark.slow
def test_a_wrong_kernel_of_a_users_function_is_refused(imported: Importer, tmp_path: Path) -> None:
    """Integers may be one off where rounding turns them over, and nowhere else."""
    operator, _ = imported("quantised")
    changes = [("(rint(a0))", "(trunc(a0))"), ("ACC(127)", "ACC(128)")]
    if "ACC(127)" not in operator.naive("cpu"):
        changes[1] = ("(ACC)(127)", "(ACC)(128)")
    right, *wrong = verdict(operator, tmp_path, *changes)
    assert right is None and all(wrong)


@pytest.mark.slow
def test_a_mask_of_results_is_judged(imported: Importer, tmp_path: Path) -> None:
    """A result may be infinite or not where a sum is as large as the limit, and nowhere else."""
    operator, _ = imported("cut")
    assert operator.outputs[0].specials == ("inf",)
    right, *wrong = verdict(operator, tmp_path, ("ACC(0.9)", "ACC(0.85)"), ("ACC(0.9)", "ACC(2)"))
    assert right is None and all(wrong)


@pytest.mark.slow
def test_a_kernel_that_drops_an_epsilon_is_refused(imported: Importer, tmp_path: Path) -> None:
    """Each of them decides results of inputs that are small together alone."""
    operator, _ = imported("guarded")
    dropped = [
        (f"ACC({number})", f"ACC({other})") for number in ("1e-10", "1e-09", "1e-05") for other in ("0", "1e-11")
    ]
    right, *wrong = verdict(operator, tmp_path, *dropped)
    assert right is None and all(wrong)


@pytest.mark.filterwarnings("ignore")
def test_inputs_are_so_small_that_a_constant_decides_where_any_are() -> None:
    x = torch.randn(8, 12)
    graph = graph_of(M(lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-10)), [x])
    (name,) = [each.name for each in graph.inputs]
    ((names, exponent, zeros, sign),) = levels(graph, {name: x.double()}, {}, [name])
    assert names == (name,) and 28 <= exponent <= 40 and zeros and not sign
    rng = np.random.default_rng(0)
    norms = fainter({name: x}, [(names, exponent, False, 0)], rng)[name].norm(dim=-1)
    assert float(norms.min()) > 1e-13 and float(norms.max()) < 1e-7
    above_one = graph_of(M(lambda x: x.exp() / (x.exp().sum(-1, keepdim=True) + 1e-10)), [x.abs()])
    assert levels(above_one, {above_one.inputs[0].name: x.abs().double()}, {}, [name]) == []
    slope = graph_of(M(lambda x: torch.nn.functional.leaky_relu(x, 0.01)), [x])
    assert levels(slope, {slope.inputs[0].name: x.double()}, {}, [slope.inputs[0].name]) == []


@pytest.mark.filterwarnings("ignore")
def test_inputs_are_large_and_of_one_sign_where_a_constant_decides_those_alone() -> None:
    def score(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        chance = x.sigmoid()
        return (2 * (chance * kept).sum(-1) + 1e-5) / (chance.sum(-1) + kept.sum(-1) + 1e-5)

    x, kept = torch.randn(4, 12), torch.zeros(4, 12)
    kept[:2] = 1.0
    graph = graph_of(M(score), [x, kept])
    name, other = (each.name for each in graph.inputs)
    values = {name: x.double(), other: kept.double()}
    ((names, exponent, _, sign),) = found = leaning(graph, values, {}, [name])
    assert names == (name,) and exponent < 0 and sign == -1
    drawn = fainter({name: x}, found, np.random.default_rng(0))[name]
    assert bool((drawn <= 0).all()) and float(drawn.abs().max()) > float(x.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["nominal", "structured"])
def test_inputs_keep_the_relations_that_their_source_gives_them(family: str, imported: Importer) -> None:
    operator, _ = imported("related")
    dims, rng = {"T_": 40, "B": 6, "n": 9}, np.random.default_rng(0)
    for _ in range(5):
        found = draw(operator, functions(operator.folder), dims=dims, dtype="fp32", family=family, rng=rng).tensors
        assert (found["boxes"][:, :2] <= found["boxes"][:, 2:]).all() and (found["low"] < found["high"]).all()
        assert found["offsets"][0] == 0 and found["offsets"][-1] == 40 and (found["offsets"].diff() >= 0).all()
        assert (torch.linalg.eigvalsh(found["matrix"].double()) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["nominal", "structured"])
def test_masks_of_lengths_and_sorted_rows_stay_such(family: str, imported: Importer) -> None:
    operator, _ = imported("padded")
    dims, rng = {"B": 30, "L": 20, "D": 3}, np.random.default_rng(0)
    found = draw(operator, functions(operator.folder), dims=dims, dtype="fp32", family=family, rng=rng).tensors
    assert (found["pad"].int().diff(dim=1) >= 0).all() and found["pad"].any()
    assert (found["rows"].diff() >= 0).all()


@pytest.mark.slow
def test_labels_that_a_mask_replaces_are_among_the_inputs(imported: Importer) -> None:
    operator, _ = imported("ignored")
    dims, rng = {"N": 200, "V": 9}, np.random.default_rng(0)
    labels = draw(operator, functions(operator.folder), dims=dims, dtype="fp32", family="nominal", rng=rng).tensors[
        "labels"
    ]
    kept = labels[labels != -100]
    assert 10 < len(labels) - len(kept) < 80 and int(kept.min()) >= 0 and int(kept.max()) < 9


@pytest.mark.slow
def test_arguments_that_are_changed_in_place_are_results(imported: Importer) -> None:
    operator, _ = imported("steps")
    assert [tensor.name for tensor in operator.outputs] == ["y0", "y1"]


@pytest.mark.slow
def test_a_message_names_the_line_of_the_source(tmp_path: Path) -> None:
    text = (
        "import torch\n\ndef chosen(x):\n    if len(x.unique()) > 3:\n        return x\n    return -x\n\n"
        "def make():\n    return torch.randn(8)\n"
    )
    folder, lines = of_function(tmp_path, text, "chosen")
    (executed,) = [line for line in lines if "is executed as it is" in line]
    assert re.search(r"line 4, `if len.*: it decides by values of its tensors \(unique\)", executed)
    assert load(str(folder)).dims == ("d0",)


def definition(path: Path, argument: str, reference: str) -> str:
    told = {
        "name": "scaled", "axes": {"n": {"type": "var"}},
        "inputs": {"x": {"shape": ["n"], "dtype": "float32"}, argument: {"shape": None, "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n"], "dtype": "float32"}}, "reference": reference,
    }  # fmt: skip
    path.write_text(json.dumps(told))
    return str(path)


POSITIVE = {
    "log": "import torch\ndef run(x, n):\n    return torch.log(x).mean(-1)\n",
    "share": "import torch\ndef run(x, n):\n    kept = torch.where(x >= x.amax(-1, True) / 2, x, 0 * x)\n"
    "    return (kept / kept.sum(-1, True)).square().sum(-1)\n",
    "mean": "import torch\ndef run(x, n):\n    kept = torch.arange(x.shape[1], device=x.device)[None] < n[:, None]\n"
    "    return (x * kept).sum(1) / n\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIVE)
def test_a_definition_whose_normal_draws_have_no_finite_results_gets_others(name: str, tmp_path: Path) -> None:
    told = {
        "name": name, "axes": {"B": {"type": "var"}, "H": {"type": "var"}},
        "inputs": {"x": {"shape": ["B", "H"], "dtype": "float32"}, "n": {"shape": ["B"], "dtype": "int32"}},
        "outputs": {"y": {"shape": ["B"], "dtype": "float32"}}, "reference": POSITIVE[name],
    }  # fmt: skip
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(told))
    folder, lines = import_problem(str(path), out=tmp_path / name)
    told_of = "`n` is at least 1" if name == "mean" else "positive numbers"
    assert any(told_of in line for line in lines)
    assert verdict(load(str(folder)), tmp_path) == [None]


def test_workloads_of_a_data_set_are_spread_over_its_sizes_and_what_lies_in_files_is_told(tmp_path: Path) -> None:
    axes = {"n": {"type": "var"}}
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "at": {"shape": ["n"], "dtype": "int32"}}
    inputs |= {name: {"shape": None, "dtype": "float32"} for name in ("scale", "shift")}  # type: ignore[dict-item]
    outputs = {"y": {"shape": ["n"], "dtype": "float32"}}
    definition = {"name": "moved", "op_type": "moves", "axes": axes, "inputs": inputs, "outputs": outputs}
    definition["reference"] = "def run(x, at, scale, shift):\n    return x[at.long()] * scale + shift\n"
    place = {"type": "safetensors", "path": "./blob/moved/a.safetensors", "tensor_key": "at"}
    lines = []
    for size in (8, 8, *range(1, 41), 8):
        scale = {"type": "scalar", "value": 0.08838834764831843 if size % 2 else 0.0883883461356163}
        given = {"x": {"type": "random"}, "at": place, "scale": scale, "shift": {"type": "scalar", "value": size}}
        lines.append(json.dumps({"definition": "moved", "workload": {"axes": {"n": size}, "inputs": given}}))
    for path, text in (
        ("definitions/moves/moved.json", json.dumps(definition)),
        ("workloads/moves/moved.jsonl", "\n".join(lines)),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    found = read(str(tmp_path / "definitions/moves/moved.json"))
    sizes = [each["n"] for each in found.request["workloads"]]
    assert (len(sizes), sizes[0], sizes[-1]) == (12, 1, 40) and sizes == sorted(set(sizes))
    assert found.request["sizes"] == {"n": 40} and found.request["inputs"]["shift"]["value"] == 40
    absent = (
        "in 43 of 43 workloads `at` lie in files of blob/moved, which are not here: they are drawn by distributions"
    )
    assert found.notes == [
        f"{absent} instead",
        "workloads give `shift` 40 values: the one of the largest workload is taken for all",
        "12 of 43 workloads are taken, from the smallest to the largest",
    ]
    (tmp_path / "blob/moved").mkdir(parents=True)
    (tmp_path / "blob/moved/a.safetensors").write_bytes(b"")
    assert "which are not read" in read(str(tmp_path / "definitions/moves/moved.json")).notes[0]


def test_a_number_of_a_definition_without_workloads_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = definition(Path("one.json"), "factor", "import torch\n\ndef run(x, factor):\n    return x * factor\n")
    with pytest.raises(UserError, match="`factor` has no value, as no workload gives it one; write"):
        import_problem(place, out=tmp_path / "one")


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def make():\n    B, T = 2, 1 << 4\n    return torch.randn(B, T)", {"B": 2, "T": 16}),
        ("def boxes(n):\n    return torch.rand(n, 4)\ndef make():\n    return boxes(300)", {"d0": 300}),
        ("def make():\n    return torch.full((8,), 12), torch.randint(0, 9, size=(6,))", {"d0": 8, "d1": 6}),
        ("def make():\n    return torch.eye(30), torch.randperm(7)", {"d0": 30, "d1": 7}),
    ],
)
def test_sizes_are_found_where_a_function_makes_inputs(source: str, found: dict[str, int]) -> None:
    assert compiled(source, "problem.py", ("make",))[1] == found


def test_what_indices_are_drawn_below_is_tied_to_the_size_that_it_is() -> None:
    source = "import torch\ndef make():\n    return torch.randn(4, 900), torch.randint(0, 900, (4,))"
    code, found = compiled(source, "problem.py", ("make",), tied=True)
    assert found == {"d0": 4, "d1": 900, "d2": 4}
    names: dict[str, Any] = {"_size_of_a_problem": lambda name: {"d0": 3, "d1": 2, "d2": 50}[name]}
    exec(code, names)
    assert int(names["make"]()[1].max()) < 2


# --- rules ------------------------------------------------------------------------------------------------------------

X = torch.linspace(-2, 2, 24, dtype=torch.float64).reshape(4, 6) + 0.01
COMPLEX: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "spectrum": lambda x: torch.view_as_real(
        torch.fft.fft2(torch.view_as_complex(x.reshape(2, 2, 3, 2)), norm="ortho")
    ),
    "back": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=5, dim=1),
    "even": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) / (1 + 2j)),
    "sizes": lambda x: torch.fft.rfft(x).abs() + torch.complex(x, x + 5).angle()[:, :4],
    "exponents": lambda x: torch.view_as_real((torch.exp(1j * x) * (2 - 1j)).conj().resolve_conj().transpose(0, 1)),
    "products": lambda x: torch.view_as_real(torch.complex(x, -x) @ torch.complex(x, x).mT),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_computed_as_pairs(name: str) -> None:
    module = make_fx(COMPLEX[name])(X)
    real = make_fx(RealParts(module).run)(X)
    assert not any(
        value.is_complex() for node in real.graph.nodes if isinstance(value := node.meta.get("val"), torch.Tensor)
    )
    torch.testing.assert_close(real(X), COMPLEX[name](X))


def test_an_operator_of_complex_numbers_without_a_rule_is_named() -> None:
    module = make_fx(lambda x: torch.fft.rfft(x).tanh().real)(X)
    with pytest.raises(ValueError, match=r"aten\.tanh of complex"):
        RealParts(module).run(X)
    assert pair_of(2 + 1j) == Complex(2.0, 1.0)


def test_rules_compute_what_torch_does() -> None:
    aten, of = torch.ops.aten, torch.tensor([[0, 1, 1, 2, 0, 3]] * 4)
    edges = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    cases: list[tuple[Any, tuple[Any, ...]]] = [
        (aten._cdist_forward.default, (X, X[1:], 2.0, None)), (aten._cdist_forward.default, (X, X, 1.0, None)),
        (aten.as_strided.default, (X, [5, 3], [2, 1], 1)), (aten.median.dim, (X, 0)), (aten.median.default, (X,)),
        (aten.kthvalue.default, (X, 2, 1)), (aten.scatter_reduce.two, (X, 1, of, X + 1, "mean")),
        (aten.searchsorted.Tensor, (edges, X)), (aten.bucketize.Tensor, (X, edges)),
        (aten.index_put.default, (X, [X > 0], torch.tensor(3.0, dtype=torch.float64))),
    ]  # fmt: skip
    for operator, args in cases:
        torch.testing.assert_close(RULES[operator](*args), operator(*args), msg=str(operator))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_8_bits_are_rounded_as_torch_does(dtype: torch.dtype) -> None:
    numbers = torch.cat([torch.randn(4000) * 2.0**e for e in (-12, -7, -4, 0, 4)] + [2.0 ** torch.arange(-9.0, 8.0)])
    numbers = numbers.clamp(-400, 400)
    assert torch.equal(RULES[torch.ops.aten._to_copy.default](numbers, dtype=dtype), numbers.to(dtype).float())


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_number_of_the_program_is_rounded() -> None:
    x = torch.tensor([1.0], dtype=torch.float64)
    assert float(running(lambda x: x * 0.9)(x)) > float(running(lambda x: x * 0.5)(x))
    assert float(running(lambda x: torch.add(x, x, alpha=-0.01))(x)) > 0.5


def test_which_of_equal_numbers_comes_first_is_not_told() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 3.0, 0.0], [5.0, 4.0, 3.0, 2.0, 1.0]], dtype=torch.float64)

    def placed(x: torch.Tensor) -> dict[str, torch.Tensor]:
        values, places = x.topk(3, -1)
        return {"values": values, "places": places, "put": torch.zeros_like(x).scatter(-1, places, values * places)}

    found = running(placed)(x)
    assert not found["values"].any()
    assert (found["places"] > 0).tolist() == [[False, True, True], [False] * 3]
    assert (found["put"] > 1e6).tolist() == [[False, True, True, False, False], [False] * 5]
    assert not running(lambda x: x.argsort(dim=-1, stable=True))(x).any()
    cut = running(lambda x: x.topk(2, -1)[1])(x)
    assert (cut > 1e6).tolist() == [[False, True], [False, False]]


def test_a_place_in_an_order_is_told_where_errors_are_smaller_than_what_lies_between() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0 + 1e-9, 4.0]], dtype=torch.float64)
    assert (running(lambda x: (x / 3).argsort(-1))(x) > 0).tolist() == [[False, True, True, False]]


def test_a_masked_logit_whose_sum_may_be_no_number_loses_its_row() -> None:
    x = torch.tensor([[3e19, 3e19], [1.0, 1.0]], dtype=torch.float64)
    mask = torch.tensor([0.0, -torch.inf], dtype=torch.float64)
    found = running(lambda x: ((x @ x.mT) - 2 * (x @ x.mT) + mask).softmax(-1))(x)
    assert float(found[0].min()) > 1e6 and float(found[1].max()) < 1e6


def test_a_whole_number_of_a_rounded_one_is_a_step_off_where_errors_reach_the_next() -> None:
    x = torch.arange(1.0, 9.0, dtype=torch.float64) / 3
    found = running(lambda x: ((x * 3).floor().to(torch.int64) + 1).double())(x)
    assert bool((found > 1e6).all())


def test_a_place_that_may_be_another_may_be_equal_to_one() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 0.0], [4.0, 2.0, 1.0, 0.0]], dtype=torch.float64)
    found = running(lambda x: ((x / 3).argmax(-1, keepdim=True) == torch.arange(4)).double())(x)
    assert (found > 1e6).tolist() == [[True] * 4, [False] * 4]


def test_sums_of_integers_are_exact_but_for_comparisons_that_may_turn_over() -> None:
    x = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    for edge, is_open in ((0.3, True), (0.31, False)):
        found = running(lambda x, edge=edge: (x.cumsum(0) <= edge).sum())(x)
        assert (float(found) > 1e6) is is_open and is_open == bool(found)


def test_sums_of_what_is_moved_to_one_place_are_off_by_their_terms() -> None:
    x, place = torch.ones(40, dtype=torch.float64) / 3, torch.tensor([0] * 36 + [1] * 3 + [2])
    for add in (
        lambda x: torch.zeros(3, dtype=x.dtype).index_add(0, place, x),
        lambda x: torch.zeros(3, dtype=x.dtype).scatter_add(0, place, x),
        lambda x: torch.zeros(3, dtype=x.dtype).index_put((place,), x, accumulate=True),
    ):
        found = running(add)(x) * 40**0.5
        assert (found > torch.tensor([30.0, 2.0, 0.5])).all() and (found < torch.tensor([90.0, 6.0, 2.0])).all()
