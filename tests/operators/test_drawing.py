"""Inputs that reference.py draws are the same in kind wherever they are drawn: by numpy, or by torch as on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from fitness.oracle.inputs import draw, families
from operators import drawing
from operators.catalog import folders, functions, load
from operators.dtypes import DTYPES
from operators.relations import Relation
from operators.shared.sparse import offsets, places, shuffled, zero_rows
from operators.shared.sums import zero_neighbours, zero_product, zero_sums
from tests.choosing import some_slow
from tests.operators.sampling import SAMPLE

CPU = torch.device("cpu")
NAMES = sorted(folders())


@pytest.fixture(autouse=True, params=["numpy", "torch"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whole tensors come from numpy, or as on a GPU from torch."""
    if request.param == "torch":
        monkeypatch.setattr("operators.drawing._by_numpy", lambda device: False)
    yield


@pytest.mark.parametrize("name", some_slow(NAMES, SAMPLE))
def test_every_family_and_relation_of_every_operator_can_be_drawn(name: str) -> None:
    operator, rng = load(name), np.random.default_rng(1)
    offered = functions(operator.folder)
    for workload in operator.hidden[:3]:
        for family in families(offered):
            drawn = draw(operator, offered, dims=workload.dims, dtype="fp32", family=family, rng=rng)
            values = {**drawn.dims, **{s.name: s.value for s in operator.scalars}, **drawn.tensors}
            for relation in offered.relations({**values, "rng": rng, "dtype": DTYPES["fp32"]}):
                assert isinstance(relation, Relation)
                for tensor, value in relation.inputs.items():
                    assert (value.dtype, value.shape) == (drawn.tensors[tensor].dtype, drawn.tensors[tensor].shape)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
def test_large_terms_annul_each_other_exactly(dtype: str) -> None:
    rng, kind = np.random.default_rng(2), DTYPES[dtype]
    wanted = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}[dtype]
    values = torch.from_numpy(rng.uniform(-1, 1, (5, 200))).to(wanted)
    rows = zero_sums(values, kind, rng).double()
    assert (rows.abs() > 2**-11).sum() > 5 * 120
    assert (rows.sum(1).abs() < 0.05).all()
    left, right = zero_product(values, torch.ones(200, 1, dtype=wanted), kind, rng)
    assert ((left.double() @ right.double()).abs() < 0.05).all()
    plane = zero_neighbours(9, 14, kind, rng, CPU).double()
    around = plane[:-2, 1:-1] + plane[2:, 1:-1] + plane[1:-1, :-2] + plane[1:-1, 2:]
    assert (around == 0).all() and plane.std() > 0.1


def test_rows_of_a_sparse_matrix_cancel_in_whatever_order_their_entries_come() -> None:
    rng = np.random.default_rng(3)
    rows = shuffled(places(40, 3000, rng, "structured", CPU), rng)
    values = torch.from_numpy(rng.uniform(-1, 1, 3000)).float()
    changed = zero_rows(rows, values, DTYPES["fp32"], rng).double()
    sums = torch.zeros(40, dtype=torch.float64).index_add_(0, rows, changed)
    size = torch.zeros(40, dtype=torch.float64).index_add_(0, rows, changed.abs())
    assert size.sum() > 300
    assert (sums.abs() <= 2**-12 * torch.bincount(rows, minlength=40)).all()
    assert torch.equal(zero_rows(rows.sort().values, values, DTYPES["fp32"], rng) != 0, values != 0)


@pytest.mark.parametrize("family", ["nominal", "scaled"])
def test_entries_fall_into_rows_that_exist(family: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(12):
        chosen = places(7, 500, rng, family, CPU)
        assert len(chosen) == 500 and int(chosen.min()) >= 0 and int(chosen.max()) < 7
        found = offsets(chosen, 7)
        assert found.dtype == torch.int32 and int(found[0]) == 0 and int(found[-1]) == 500
    assert len(places(7, 0, rng, family, CPU)) == 0


def test_a_permutation_holds_every_number_once() -> None:
    rng = np.random.default_rng(5)
    assert torch.equal(drawing.permutation(1000, rng, CPU).sort().values, torch.arange(1000))
    assert drawing.integers(-2, 3, 4000, rng, CPU).unique().tolist() == [-2, -1, 0, 1, 2, 3]
