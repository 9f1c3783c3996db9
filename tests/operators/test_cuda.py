"""Every CUDA kernel that comes with the operators compiles, in both dtypes, with NVRTC, which needs no GPU."""

from __future__ import annotations

import pytest

from fitness.cuda.compile import nvrtc
from fitness.cuda.compile.build import CudaBuild, compile_cuda
from operators.catalog import folders, load
from operators.champions import offered
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.operators.sampling import every_operator


@pytest.mark.parametrize("name", every_operator(("prefix_sum",)))
def test_all_ancestors_compile(name: str) -> None:
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
    operator = load(name)
    for path in sorted(operator.folder.glob("*.cu")):
        for dtype in operator.dtypes["cuda"]:
            result = compile_cuda(Kernel(name, "cuda", path.read_text()), operator, dtype)
            assert isinstance(result, CudaBuild), (path.name, dtype, result.message)
            assert all(facts.spill_store_bytes == 0 for facts in result.kernels.values()), (path.name, dtype)


WITH_CHAMPIONS = sorted(name for name, folder in folders().items() if (folder / "champions").exists())
QUICK = ("relu",)
LONG = (
    "batch_norm", "fft", "matrix_power", "softmax_attention", "sorting", "spmm_coo", "square_matrix_mul",
    "triangle_multiplication",
)  # fmt: skip
"""Those that take ten seconds and more, which CI compiles for one line of CUDA."""


@pytest.mark.parametrize("name", some_slow(WITH_CHAMPIONS, QUICK, long=LONG))
def test_all_champions_compile(name: str) -> None:
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
    operator = load(name)
    for dtype in operator.dtypes["cuda"]:
        for champion in offered(operator, "cuda", dtype):
            source = operator.ancestor(champion, "cuda").read_text(encoding="utf-8")
            result = compile_cuda(Kernel(name, "cuda", source), operator, dtype)
            assert isinstance(result, CudaBuild), (champion, dtype, result.message)
