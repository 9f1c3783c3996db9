"""`evo best --as`: solutions run where a task's own checker does, without kernel-evo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evo.outside.importing import import_problem
from evo.packaging.package import from_file
from evo.packaging.solution import write_solution
from operators.errors import UserError
from tests.importing.conftest import DATA

SIZES = {"batch = 4096": "batch = 30", "features, width = 65536, 32768": "features, width = 70, 33"}
ALONE = """
import sys, torch
for name in ("evo", "operators", "fitness", "mutators"):
    sys.modules[name] = None  # an import of it fails
def loaded(place):
    names = {}
    exec(open(place).read(), names)
    return names
"""
MODULES = """
theirs, ours = loaded(sys.argv[1]), loaded(sys.argv[2])
torch.manual_seed(42)
model = theirs["Model"](*theirs["get_init_inputs"]())
torch.manual_seed(42)
new = ours["ModelNew"](*theirs["get_init_inputs"]())
for trial in range(5):
    torch.manual_seed(trial)
    inputs = theirs["get_inputs"]()
    with torch.no_grad():
        expected, found = model(*inputs), new(*inputs)
    assert expected.shape == found.shape and torch.allclose(expected, found, atol=1e-4, rtol=1e-4)
print("right")
"""
SUBMISSION = """
custom_kernel = loaded(sys.argv[1])["custom_kernel"]
for size in (5, 33, 256):
    x = torch.randn(size, size)
    assert torch.equal(custom_kernel((x, torch.empty_like(x))), x.flip(0) + 1)
print("right")
"""
DEFINITION = """
import json, os
from pathlib import Path
import torch.utils.cpp_extension as extension
solution = json.load(open(sys.argv[1]))
spec, place = solution["spec"], Path(sys.argv[2])
for each in solution["sources"]:
    (place / each["path"]).write_text(each["content"])
options = spec["compile_options"]
files = [str(path) for path in place.iterdir() if path.suffix in (".cu", ".cpp")]
built = extension.load(name="benchmark_kernel", sources=files, extra_cflags=options["cflags"],
                       extra_ldflags=options["ld_flags"], extra_include_paths=[str(place)], build_directory=str(place))
run = getattr(built, spec["entry_point"].split("::")[1])
for rows in (1, 7, 128):
    x, weight = torch.randn(rows, 96).bfloat16(), torch.randn(48).bfloat16()
    y = torch.empty(rows, 48, dtype=torch.bfloat16)
    run(x, weight, 1e-6, y)
    wide = x.float()
    expected = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6))[:, :48] * weight.float()
    assert torch.allclose(y.float(), expected, atol=1e-2, rtol=1e-2)
try:
    run(x, weight[:3], 1e-6, y)
except RuntimeError as error:
    assert "weight has the shape" in str(error)
else:
    raise AssertionError("a wrong shape was taken")
print("right")
"""
needs_ninja = pytest.mark.skipif(shutil.which("ninja") is None, reason="torch compiles extensions with ninja")


def small(folder: Path) -> Path:
    """A fused KernelBench problem that a CPU checks in no time."""
    text = (DATA / "3_Linear_Gelu_Scale.py").read_text()
    for large, sizes in SIZES.items():
        text = text.replace(large, sizes)
    problem = folder / "3_Linear_Gelu_Scale.py"
    problem.write_text(text)
    return problem


def solved(operator: Path, wanted: str, place: Path) -> Path:
    """The solution that the first kernel of an imported operator is."""
    write_solution(from_file(str(operator), "naive", target="cpu"), wanted, place / "out")
    return place / "out"


def alone(script: str, folder: Path, *arguments: Path) -> str:
    """The last line that a script prints which has none of our packages."""
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "PYTHONPATH": ""}
    command = [sys.executable, "-c", ALONE + script, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


@needs_ninja
@pytest.mark.slow
def test_a_module_with_the_kernel_agrees_with_its_task(tmp_path: Path) -> None:
    problem = small(tmp_path)
    operator, _ = import_problem(str(problem), out=tmp_path / "operator", name="solved")
    out = solved(operator, "kernelbench", tmp_path)
    assert alone(MODULES, tmp_path, problem, out / "model_new.py") == "right"


@needs_ninja
@pytest.mark.slow
@pytest.mark.long
def test_a_submission_returns_what_its_reference_does(imported: Callable[[str], Path], tmp_path: Path) -> None:
    out = solved(imported("shifted"), "gpumode", tmp_path)
    assert alone(SUBMISSION, tmp_path, out / "submission.py") == "right"


@needs_ninja
@pytest.mark.slow
def test_a_solution_is_compiled_as_it_says_and_writes_into_its_last_arguments(
    imported: Callable[[str], Path], tmp_path: Path
) -> None:
    out = solved(imported("scaled"), "sol", tmp_path)
    (tmp_path / "build").mkdir()
    assert alone(DEFINITION, tmp_path, out / "solution.json", tmp_path / "build") == "right"


@pytest.mark.slow
def test_a_cuda_solution_brings_its_sources_and_names_its_entry(
    imported: Callable[[str], Path], tmp_path: Path
) -> None:
    subject = from_file(str(imported("product.json")), "naive", target="cuda")
    write_solution(subject, "flashinfer", tmp_path / "out")
    solution: dict[str, Any] = json.loads((tmp_path / "out" / "solution.json").read_text())
    assert solution["definition"] == "product_n40960_k8192" and solution["spec"]["destination_passing_style"]
    (source,) = solution["sources"]
    assert solution["spec"]["entry_point"] == f"{source['path']}::run"
    assert "__global__" in source["content"] and "cudaGetFuncBySymbol" in source["content"]
    compile(source["content"], "main.py", "exec")
    with pytest.raises(UserError, match="imported from FlashInfer Trace: say --as flashinfer"):
        write_solution(subject, "sol", tmp_path / "other")


def test_an_operator_that_was_not_imported_has_no_format(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was not made by evo import"):
        write_solution(from_file("softmax", "naive", target="cpu"), "kernelbench", tmp_path / "out")
    with pytest.raises(UserError, match="did you mean `kernelbench`"):
        write_solution(from_file("softmax", "naive", target="cpu"), "kernel", tmp_path / "out")
    assert not (tmp_path / "out").exists()
