"""The worked example that prompts show: it compiles, and is what it is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.cuda.compile.nvrtc import cutlass_folders
from mutators.prompts import informed
from operators.catalog import load
from operators.kernel import Kernel
from tests.choosing import some_slow

SCORES = Path(__file__).parents[1] / "data" / "scores"

pytestmark = pytest.mark.usefixtures("headers")


def test_the_example_of_cuda_compiles_and_uses_what_it_shows() -> None:
    (example,) = informed.EXAMPLES["cuda"]
    for stages in (2, 3, 4):
        built = compile_cuda(Kernel("scores", "cuda", example.source, {"STAGES": stages}), load(str(SCORES)), "bf16")
        assert isinstance(built, CudaBuild), built
        assert built.facts["bulk_copies"] and built.facts["tensor_cores"]
        assert not built.facts["spill_bytes"] and not built.facts["flagged"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("row_peaks", "fp32"), ("row_peaks", "bf16"), ("scores", "bf16")])
def test_the_examples_of_cute_compile(name: str, dtype: str) -> None:
    if not cutlass_folders():
        pytest.skip("nvidia-cutlass is not installed")
    (example,) = (each for each in informed.EXAMPLES[informed.CUTE] if each.operator == name)
    built = compile_cuda(Kernel(name, "cuda", example.source), load(str(SCORES.with_name(name))), dtype)
    assert isinstance(built, CudaBuild), built
    assert built.facts["access_bytes"] == 16 and not built.facts["spill_bytes"]
    assert bool(built.facts["tensor_cores"]) is (name == "scores")


@pytest.mark.parametrize(
    "included",
    some_slow(["", "#include <cmath>", "#include <cuda/std/cmath>", "#include <cub/block/block_reduce.cuh>"], 2),
)
def test_infinity_needs_no_header(included: str) -> None:
    source = """/*! evo
[[launch]]
kernel = "f"
grid = ["rows"]
block = [32]
args = ["x", "y", "rows", "cols"]
*/
INCLUDED
extern "C" __global__ void f(const T* x, T* y, int rows, int cols) { y[blockIdx.x] = x[blockIdx.x] > -INFINITY; }
"""
    built = compile_cuda(Kernel("softmax", "cuda", source.replace("INCLUDED", included)), load("softmax"), "fp32")
    assert isinstance(built, CudaBuild), built
