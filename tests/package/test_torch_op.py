"""A package as an operator of torch, and as a repository of Hugging Face's kernels, where there is no kernel-evo."""

from __future__ import annotations

import json
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

import pytest

from evo.packaging.package import from_file, write_package
from tests.package.test_cpu_packages import alone

CHECKED = """
import sys
sys.path.insert(0, sys.argv[1])
for name in ("evo", "operators", "fitness", "mutators"):
    sys.modules[name] = None
import torch, softmax_package
op = softmax_package.softmax
assert op is softmax_package.softmax and op.name.startswith("softmax_fp32_cpu_"), op.name
x = torch.randn(7, 33)
assert torch.allclose(op(x), torch.softmax(x, 1), atol=1e-6)
turned = torch.randn(33, 8).t()[:, 1:]
assert torch.allclose(op(turned), torch.softmax(turned, 1), atol=1e-6), "what is not dense is copied"
namespace, _, name = op.name.partition("::")
found = getattr(getattr(torch.ops, namespace), name)
torch.library.opcheck(found.default, (x,))
wanted = torch.randn(3, 5, requires_grad=True)
torch.library.opcheck(found.default, (wanted,), test_utils=("test_schema", "test_faketensor"))

compiled = torch.compile(lambda x: op(x + 1) * 2, backend="aot_eager", fullgraph=True)
for shape in ((7, 33), (4, 65)):
    y = torch.randn(shape)
    with torch.no_grad():
        assert torch.allclose(compiled(y), torch.softmax(y + 1, 1) * 2, atol=1e-6)

g = torch.randn(5, 9, requires_grad=True)
try:
    op(g).sum().backward()
except NotImplementedError as error:
    assert "has no backward" in str(error) and "register_backward" in str(error)
else:
    raise AssertionError("a gradient of nothing")
op.register_backward(lambda inputs, outputs, gradients: outputs[0] * (
    gradients[0] - (gradients[0] * outputs[0]).sum(1, keepdim=True)))
w = torch.randn(5, 9)
(op(g) * w).sum().backward()
mine, g.grad = g.grad, None
(torch.softmax(g, 1) * w).sum().backward()
assert torch.allclose(mine, g.grad, atol=1e-6)
for wrong, said in ((x.double(), "holds fp64"), (x[0], "axes")):
    try:
        op(wrong)
    except Exception as error:
        assert said in str(error), error
    else:
        raise AssertionError(said)
try:
    op(x, x)
except ValueError as error:
    assert "takes 1 tensors (x), not 2" in str(error)
print("done")
"""
LOADED = """
import importlib.util, sys
for name in ("evo", "operators", "fitness", "mutators"):
    sys.modules[name] = None
import torch
x, found = torch.randn(4, 9), []
for number, place in enumerate(sys.argv[1:]):
    spec = importlib.util.spec_from_file_location(f"kernel_{number}", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found.append(module.softmax)
    assert torch.allclose(module.softmax(x), torch.softmax(x, 1), atol=1e-6)
assert len({op.name for op in found}) == 1
print("done")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packages")
    subject = from_file("softmax", "naive", target="cpu")
    write_package(subject, place / "softmax_package")
    write_package(subject, place / "softmax-hub", hub=True)
    return place


@pytest.mark.slow
def test_a_package_is_an_operator_of_torch(place: Path) -> None:
    done = alone(CHECKED, str(place))
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


@pytest.mark.slow
def test_a_repository_of_the_hub_has_a_build_that_is_loaded_from_anywhere_twice(place: Path) -> None:
    build = place / "softmax-hub" / "build" / "torch-cpu"
    told = json.loads((build / "metadata.json").read_text())
    assert told["name"] == "softmax-hub" and told["backend"] == {"type": "cpu"} and told["id"].isidentifier()
    files = {str(path.relative_to(build)): path for path in build.rglob("*") if path.is_file()}
    assert files.keys() - {"metadata.json"} == told["digest"]["files"].keys()
    for name, digest in told["digest"]["files"].items():
        assert sha256(files[name].read_bytes()).digest() == b64decode(digest), name
    assert (place / "softmax-hub" / "README.md").read_text().startswith("---\nlibrary_name: kernels\n")
    done = alone(LOADED, str(build / "__init__.py"), str(place / "softmax_package" / "__init__.py"))
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    assert "from .. import load" in (build / "softmax_hub" / "__init__.py").read_text()


@pytest.mark.slow
def test_a_compiled_program_calls_it(place: Path) -> None:
    """With torch's own compiler, which needs g++."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch, softmax_package\n"
        "f = torch.compile(lambda x: softmax_package.softmax(x + 1) * 2, fullgraph=True)\n"
        "x = torch.randn(7, 33)\n"
        "assert torch.allclose(f(x), torch.softmax(x + 1, 1) * 2, atol=1e-6)\n"
    )
    done = alone(code, str(place))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_build_for_cuda_names_the_gpu_that_its_cubin_is_for(tmp_path: Path) -> None:
    write_package(from_file("softmax", "naive", target="cuda", dtype="bf16"), tmp_path / "hub", hub=True)
    told = json.loads((tmp_path / "hub" / "build" / "torch-cuda" / "metadata.json").read_text())
    assert told["backend"] == {"type": "cuda", "archs": ["9.0"]} and told["id"].startswith("softmax_bf16_cuda_")
