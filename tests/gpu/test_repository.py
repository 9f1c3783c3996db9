"""A Triton function and a CUDA extension: their calls recorded on a GPU, a kernel searched, put into place and out."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from evo.repository.put import UserFunction
from tests.evo.test_cli import evo
from tests.evo.test_repository import PYTEST, REPOSITORIES, WHOLE, kept

pytestmark = pytest.mark.gpu


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_a_search_on_a_gpu_puts_a_kernel_into_its_repository(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "cuda_extension" and not (shutil.which("nvcc") and shutil.which("ninja")):
        pytest.skip("the extension needs nvcc and ninja")
    if name == "triton_function":
        pytest.importorskip("triton")
    function, program, reference, _ = WHOLE[name]
    repository, runs = tmp_path / name, tmp_path / "runs"
    shutil.copytree(REPOSITORIES / name, repository)
    monkeypatch.chdir(repository)
    before = kept(repository)
    shapes = str(tmp_path / "shapes.json")
    code, out, said = evo(monkeypatch, capsys, "record", function, "--out", shapes, "--", sys.executable, *program)
    assert code == 0, out + said
    more = ["--reference", reference] if reference else []
    made = str(tmp_path / "made")
    code, out, said = evo(monkeypatch, capsys, "take", function, "--shapes", shapes, "--out", made, *more)
    assert code == 0, out + said
    search = ["run", made, "--target", "cuda", "--dtype", "fp32", "--budget", "60s", "--runs", str(runs)]
    code, out, said = evo(monkeypatch, capsys, *search)
    assert code == 0, out + said
    code, out, said = evo(monkeypatch, capsys, "put", "last", "--runs", str(runs), "--test", PYTEST, "--yes", "--all")
    with capsys.disabled():
        print(out)
    assert code == 0, out + said
    assert "the kernel served 2 of" in out and UserFunction.of(function).state() == "put"
    code, _, _ = evo(monkeypatch, capsys, "put", "--undo", "--into", function)
    assert code == 0 and kept(repository) == before
