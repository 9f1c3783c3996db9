"""Packages of CPU kernels, used where there is no kernel-evo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evo.packaging.package import from_file, write_package
from operators.libraries import WITHOUT_COMPILER

ALONE = """
import runpy, sys
for name in ("evo", "operators", "fitness", "mutators", *sys.argv[2:]):
    sys.modules[name] = None  # an import of it fails
runpy.run_path(sys.argv[1], run_name="__main__")
"""
CALLS = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
import softmax_kernel, torch
kernel = softmax_kernel.load()
x = torch.randn(7, 33)
y = torch.empty_like(x)
assert kernel(x, out=y) is y
assert torch.allclose(y, torch.softmax(x, 1), atol=1e-6)
with ThreadPoolExecutor(4) as pool:
    many = [torch.randn(7, 33) for _ in range(64)]
    assert all(torch.allclose(y, torch.softmax(x, 1), atol=1e-6) for x, y in zip(many, pool.map(kernel, many)))
turned = torch.randn(33, 7).t()
for wrong, said in ((x.double(), "holds fp64"), (turned, "not contiguous"), (x[0], "not [rows"), (y, "shares memory")):
    try:
        kernel(wrong, out=y)
    except ValueError as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
"""
EMPTY = """
import sys
sys.path[:0] = sys.argv[1:]
import softmax_kernel, top_k_kernel, torch
for shape in ((0, 5), (3, 0)):  # softmax over no columns read what was not there
    assert softmax_kernel.load()(torch.randn(shape)).shape == shape
kernel = top_k_kernel.load()
assert [each.numel() for each in kernel(torch.randn(5), k=0)] == [0, 0]
try:
    raise AssertionError(kernel(torch.randn(5), k=7))
except ValueError as error:
    assert "judged where `k <= n`, which k=7, n=5 does not fulfil" in str(error)
"""
SIZES = """
import sys
sys.path.insert(0, sys.argv[1])
import dot_product_kernel, numpy as np, torch
kernel, x = dot_product_kernel.load(), torch.randn(5)
def said(*inputs, **named):
    try:
        return kernel(*inputs, **named)
    except ValueError as error:
        return str(error)
assert "judged where `n >= 1`" in said(x[:0], x[:0])
assert "has no memory" in said(torch._efficientzerotensor((5,)), x)
locked = np.frombuffer(bytes(4), dtype=np.float32).reshape(())
assert "may only be read" in said(x.numpy(), x.numpy(), out=locked) and float(locked) == 0
assert "whole numbers" in said(x, x, n=5.0)
"""
MORE_THREADS = """
import sys
sys.path.insert(0, sys.argv[1])
import dot_product_kernel, torch
kernel = dot_product_kernel.load()
x, y = torch.ones(1 << 20), torch.ones(1 << 20)
for threads in (None, 1, 64):
    if threads:
        torch.set_num_threads(threads)
    assert float(kernel(x, y)) == 1 << 20, (threads, float(kernel(x, y)))
    assert threads in (None, torch.get_num_threads())
"""
BY_CORES = Path(__file__).parents[1] / "redteam" / "right" / "dot_product_by_cores.cpp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages") / "softmax_kernel"
    write_package(from_file("softmax", "naive", target="cpu"), folder)
    return folder


@pytest.mark.slow
def test_a_package_passes_its_own_test_without_the_engine(folder: Path) -> None:
    for library in ((), ("torch",)):
        done = alone(ALONE, str(folder / "test_kernel.py"), *library)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("of what is allowed") > 5


@pytest.mark.slow
def test_a_wrong_kernel_fails_the_test_of_its_package(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "softmax_kernel"
    subprocess.run(["cp", "-r", str(folder), str(wrong)], check=True)
    code = (wrong / "kernel.cpp").read_text()
    (wrong / "kernel.cpp").write_text(
        code.replace("store(", "(T)1.00001f * store(", 2).replace("T (T)1.00001f * ", "T ")
    )
    done = alone(ALONE, str(wrong / "test_kernel.py"), "torch")
    assert done.returncode == 1 and "times what is allowed" in done.stderr, done.stderr


@pytest.mark.slow
def test_tensors_of_torch_are_taken_and_wrong_ones_refused(folder: Path) -> None:
    done = alone(CALLS, str(folder.parent))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_kernel_has_no_more_threads_than_there_are_cores(tmp_path: Path) -> None:
    """It was judged so, and its scratch may have room for no more."""
    write_package(from_file("dot_product", str(BY_CORES), target="cpu"), tmp_path / "dot_product_kernel")
    done = alone(MORE_THREADS, str(tmp_path))
    assert done.returncode == 0, done.stderr
    done = alone(SIZES, str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_no_kernel_was_judged_at_is_refused_and_what_is_empty_needs_none(folder: Path, tmp_path: Path) -> None:
    write_package(from_file("top_k", "naive", target="cpu"), tmp_path / "top_k_kernel")
    done = alone(EMPTY, str(tmp_path), str(folder.parent))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_launcher_in_cpp_builds_and_passes_its_test(folder: Path, tmp_path: Path) -> None:
    flags = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wshadow -Werror"
    for command in (["cmake", "-S", folder / "cpp", "-B", tmp_path, flags], ["cmake", "--build", tmp_path]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    command = [tmp_path / "softmax_kernel_test", folder / "cpp" / "cases.bin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("of what is allowed") > 5, done.stdout + done.stderr
    cases = (folder / "cpp" / "cases.bin").read_bytes()
    (tmp_path / "others.bin").write_bytes(cases[len(cases) // 2 :] + cases[: len(cases) // 2])
    done = subprocess.run([command[0], tmp_path / "others.bin"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "WRONG" in done.stdout


@pytest.mark.slow
def test_a_package_works_in_an_empty_environment(folder: Path, tmp_path: Path) -> None:
    """With numpy and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = ["-m", "pip", "--python", python, "install", "-q", "--no-compile", "numpy"]
    subprocess.run([sys.executable, *install], check=True)
    done = subprocess.run([python, str(folder / "test_kernel.py")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "of what is allowed" in done.stdout, done.stderr


def alone(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python, this repository not on its path."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", WITHOUT_COMPILER)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
