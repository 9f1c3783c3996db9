"""The cuda target as far as it goes without a GPU: what a build of one kernel is told apart from another's by."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fitness.cuda import gpu
from fitness.cuda.compile import nvrtc
from fitness.cuda.running.driver import DeviceFacts
from fitness.cuda.target import CudaDevice, PreparedCudaKernel
from fitness.evaluation import Rejection, Status
from fitness.oracle.verify import Oracle
from operators.catalog import functions, load
from operators.definition.spec import Task
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.gpu.kernels import SOFTMAX

H100 = DeviceFacts(
    ordinal=0,
    name="NVIDIA H100 80GB HBM3",
    uuid="00",
    capability=(9, 0),
    memory_bytes=80 << 30,
    sm_count=132,
    warp_size=32,
    max_shared_bytes=232448,
    l2_bytes=50 << 20,
    memory_gb_s=3352.0,
    max_clock_ghz=1.98,
)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaDevice]:
    try:
        nvrtc.include_folders()
    except UserError as error:
        pytest.skip(str(error))
    operator = load("softmax")
    oracle = Oracle(operator, functions(operator.folder), "fp32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "device_facts", lambda: H100)
        mine = gpu.shared_gpu(tmp_path_factory.mktemp("build"))
    mine.join(None)
    yield CudaDevice(operator, Task("softmax", "fp32", "cuda"), oracle, mine, workload_set="cpu", folder=mine.folder)
    mine.leave(None)


def digest(device: CudaDevice, source: str) -> str:
    prepared = device.prepare(Kernel("softmax", "cuda", source))
    assert isinstance(prepared, PreparedCudaKernel), prepared
    return prepared.code_digest


def test_another_comment_changes_no_digest(device: CudaDevice) -> None:
    assert digest(device, SOFTMAX + "// a comment\n") == digest(device, SOFTMAX)


@pytest.mark.parametrize("shape", ["2 ** 34", "2 ** 34 if rows == 1 else 1", "2 ** 14 * rows * cols"])
def test_scratch_beyond_the_device_is_invalid_and_never_allocated(device: CudaDevice, shape: str) -> None:
    buffer = f'[[buffer]]\nname = "scratch"\ndtype = "fp32"\nshape = ["{shape}"]\n'
    found = device.prepare(Kernel("softmax", "cuda", SOFTMAX.replace("[[launch]]", f"{buffer}[[launch]]", 1)))
    assert isinstance(found, Rejection)
    assert found.status is Status.INVALID
    assert re.search("at most (10.00 GiB|68719476736) are allowed", found.message), found.message


@pytest.mark.parametrize(
    ("old", "new"),
    some_slow(
        [
            ("/*! evo\n", '/*! evo\nrequires = "cols > 2"\n'),
            ("/*! evo\n", "/*! evo\ndeterministic = false\n"),
            ("/*! evo\n", '/*! evo\nzero = ["y"]\n'),
            ("[[launch]]\n", '[[launch]]\nwhen = "cols >= 1000"\n'),
            ("block = [256]", 'block = ["256 if cols >= 1000 else 128"]'),
        ],
        2,
        ids=[
            "supports fewer shapes",
            "may differ between runs",
            "output cleared",
            "launched when large",
            "another block",
        ],
    ),
)
def test_what_may_behave_differently_on_hidden_shapes_alone_has_another_digest(
    device: CudaDevice, old: str, new: str
) -> None:
    assert old in SOFTMAX
    assert digest(device, SOFTMAX.replace(old, new)) != digest(device, SOFTMAX)
