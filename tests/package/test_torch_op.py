"""A package as an operator of torch, and as a repository of Hugging Face's kernels, where there is no kernel-evo."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

import pytest

from evo.packaging.package import from_file, write_package
from tests.choosing import some_long
from tests.once import once
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
for wrong, said in (
    (x.double(), "holds fp64"), (x[0], "shape [33], not [rows, cols]"), (x.numpy(), "x is no tensor of torch"),
):
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
BUILT = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, sys.argv[1])
import torch, softmax_package, top_k_package
op, loader, plain = softmax_package.softmax, softmax_package.load(), softmax_package.load()
x = torch.randn(7, 33)
loader(x), plain(x)
direct, plain.direct = loader.direct, None
assert direct is not None, "nothing was built"

def said(way, *inputs, **named):
    try:
        return way(*inputs, **named)
    except ValueError as error:
        return str(error)

def same(one, two):
    return one == two if isinstance(one, str) else torch.equal(one, two)

turned, wide, wanting = torch.randn(33, 7).t(), torch.randn(7, 66)[:, ::2], torch.randn(7, 33, requires_grad=True)
shifted, negative = torch.randn(7 * 33 + 1)[1:].view(7, 33), torch._neg_view(x)
for usual in (x, torch.nn.Parameter(x, requires_grad=False), torch.randn(1, 1), torch.randn(300, 2)):
    assert same(direct(usual), plain(usual)) and same(op(usual), plain(usual))
for empty in (torch.randn(0, 5), torch.randn(3, 0)):
    assert direct(empty) is NotImplemented and loader(empty).shape == op(empty).shape == empty.shape
for other in (turned, wide, shifted, negative, x.double(), x[0], x.to("meta"), wanting, x.numpy(), 3):
    assert direct(other) is NotImplemented
for other in (turned, wide, shifted, negative, x.double(), x[0]):
    assert same(said(loader, other), said(plain, other))
assert direct(x, x) is NotImplemented and direct(x, rows=7) is NotImplemented and direct() is NotImplemented
assert torch.equal(loader(x, rows=7), plain(x)) and said(loader, x, rows=8) == said(plain, x, rows=8)
y = torch.empty_like(x)
assert type(loader(x.numpy())) is type(x.numpy()) and loader(x, out=y) is y and torch.equal(y, direct(x))
with torch.inference_mode():
    assert direct(x).is_inference() and torch.equal(direct(x), y)
with torch.device("cpu"):
    assert direct(x) is NotImplemented
    assert torch.equal(op(x), y)
with ThreadPoolExecutor(4) as pool:
    many = [torch.randn(7, 33 + n) for n in range(64)]
    assert all(torch.equal(plain(x), y) for x, y in zip(many, pool.map(direct, many)))
with torch.no_grad():
    assert same(direct(wanting), plain(wanting.detach()))

k, chosen = torch.randn(40), top_k_package.top_k
with torch.no_grad():
    for _ in range(2):  # Python's way loads the kernel, and then the other one serves
        values, indices = chosen(k, k=5)
        assert torch.equal(values, torch.topk(k, 5).values) and torch.equal(k[indices.long()], values)
short = chosen._kernel.direct
assert torch.equal(short(k, k=5)[1], indices)
assert short(k) is NotImplemented and short(k, k=True) is NotImplemented and short(k, n=40) is NotImplemented
namespace, _, name = chosen.name.partition("::")
torch.library.opcheck(getattr(getattr(torch.ops, namespace), name).default, (k,), {"k": 5})
compiled = torch.compile(lambda x: chosen(x + 1, k=3)[0], backend="aot_eager", fullgraph=True)
assert torch.equal(compiled(k), torch.topk(k + 1, 3).values)
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

NO_LIBRARY = """#!/bin/sh
case "$*" in *binding.cpp*) for last; do :; done; echo "no library" > "$last";; *) exec g++ "$@";; esac
"""
"""A compiler whose bindings no program can load."""
WAYS = some_long(["place", "built"], ["built"])
"""Fixtures whose packages are called."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("packages")
    subject = from_file("softmax", "naive", target="cpu")
    write_package(subject, place / "softmax_package")
    write_package(subject, place / "softmax-hub", hub=True)
    return place


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages whose bindings were built, to be read alone: each takes a compiler half a minute."""

    def make(place: Path) -> None:
        for name in ("softmax", "top_k"):
            write_package(from_file(name, "naive", target="cpu"), place / f"{name}_package")
        code = "import sys; sys.path.insert(0, sys.argv[1]); import softmax_package, top_k_package\n"
        done = alone(code + "softmax_package.build(); top_k_package.build()", str(place))
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "built", make)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_package_is_an_operator_of_torch(way: str, request: pytest.FixtureRequest) -> None:
    done = alone(CHECKED, str(request.getfixturevalue(way)))
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_a_binding_that_was_built_does_what_python_does(built: Path) -> None:
    done = alone(BUILT, str(built))
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


@pytest.mark.slow
def test_a_binding_that_cannot_be_built_or_loaded_leaves_the_call_to_python(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, compiler = tmp_path / "softmax_package", tmp_path / "compiler"
    shutil.copytree(place / folder.name, folder)
    call = "import sys; sys.path.insert(0, sys.argv[1]); import torch, softmax_package as p; x = torch.randn(3, 5)\n"
    right = "assert torch.allclose(p.softmax(x), torch.softmax(x, 1), atol=1e-6)\n"
    compiler.write_text(NO_LIBRARY)
    compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("CXX", str(compiler))
        done = alone(call + "p.build()\n" + right, str(tmp_path))
    assert done.returncode == 0 and "RuntimeWarning" in done.stderr and "it is not used" in done.stderr
    (found,) = (folder / "cache").glob("binding-*.so")
    found.unlink()
    (folder / "cpp" / "torch.hpp").write_text("#error that is no header\n")
    done = alone(call + right + "p.build()", str(tmp_path))
    assert done.returncode == 1 and "RuntimeError: " in done.stderr and "that is no header" in done.stderr
    assert not list((folder / "cache").glob("binding-*"))


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
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_program_calls_it(way: str, request: pytest.FixtureRequest) -> None:
    """With torch's own compiler, which needs g++."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch, softmax_package\n"
        "f = torch.compile(lambda x: softmax_package.softmax(x + 1) * 2, fullgraph=True)\n"
        "x = torch.randn(7, 33)\n"
        "assert torch.allclose(f(x), torch.softmax(x + 1, 1) * 2, atol=1e-6)\n"
    )
    done = alone(code, str(request.getfixturevalue(way)))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_build_for_cuda_names_the_gpu_that_its_cubin_is_for(tmp_path: Path) -> None:
    write_package(from_file("softmax", "naive", target="cuda", dtype="bf16"), tmp_path / "hub", hub=True)
    told = json.loads((tmp_path / "hub" / "build" / "torch-cuda" / "metadata.json").read_text())
    assert told["backend"] == {"type": "cuda", "archs": ["9.0"]} and told["id"].startswith("softmax_bf16_cuda_")
