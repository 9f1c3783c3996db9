"""Children that transforms make of CUDA kernels are not only compiled: they run, and are right."""

from __future__ import annotations

from random import Random

import pytest

from fitness.emulator.target import emulated
from fitness.evaluation import Rejection
from mutators.base import Parent, Request
from mutators.transforms.mutator import Transform
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.cuda.test_emulation import TILE
from tests.gpu.kernels import SOFTMAX

PARENTS = {
    **{
        name: (name, load(name).ancestor("naive", "cuda").read_text(encoding="utf-8"))
        for name in (
            *("softmax", "matrix_mul", "spmv_csr", "rms_norm", "stencil_2d", "cross_entropy_loss", "gelu", "conv_1d"),
            *("layer_norm", "fused_add_rms_norm", "dot_product", "softmax_attention", "batch_norm", "vector_add"),
        )
    },
    "tile": ("matrix_mul", TILE),
    "reduction": ("softmax", SOFTMAX),
}


@pytest.mark.parametrize(
    "parent", [pytest.param(name, marks=[] if name == "tile" else [pytest.mark.slow]) for name in PARENTS]
)
def test_chains_of_transforms_are_right(parent: str, request: pytest.FixtureRequest) -> None:
    name, source = PARENTS[parent]
    operator, kernel = load(name), Kernel(name, "cuda", source)
    for seed in range(10 if request.config.getoption("--slow") else 2):
        dtype = Random(seed).choice(operator.dtypes["cuda"])
        wish = Request(
            Task(name, dtype, "cuda"),
            0,
            "transform",
            (kernel.id,),
            seed,
            {"count": 1 + seed % 6, "random_values": True},
        )
        proposal = Transform().propose(wish, (Parent(kernel),), operator)
        assert proposal.kernel, proposal.failure
        found = emulated(proposal.kernel, operator, dtype, shapes=3, seed=seed)
        assert not isinstance(found, Rejection), f"{proposal.description}: {found.message}"
