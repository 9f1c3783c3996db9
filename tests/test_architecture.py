"""The shape of the code: which package may use which, and where heavy libraries may be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TARGETS = "targets.py"
"""Of fitness/: the registry through which everything else gets its target."""
LAYERS = ("operators", "fitness", "mutators", "evo")
HEAVY = {
    "duckdb": ("evo/store/",),
    "optuna": ("mutators/tune.py",),
    "tree_sitter": ("mutators/syntax.py",),
    "tree_sitter_cpp": ("mutators/syntax.py",),
    "litellm": ("mutators/llm_library.py",),
    "mcp": ("evo/mcp/",),
    "mcp_types": ("evo/mcp/",),
    "ray": ("evo/cluster/",),
    "cupy": ("fitness/cuda/", "fitness/library.py", "fitness/package/", "operators/"),
    "vl_convert": ("evo/report/figures.py",),
    "cuda": ("fitness/cuda/", "fitness/package/on_cuda.py"),
    "elftools": (
        "fitness/cpu/build.py",
        "fitness/cpu/gate.py",
        "fitness/cuda/cubin.py",
        "fitness/cuda/emulation/build.py",
    ),
    "torch": ("fitness/", "operators/"),
}
"""Library and the only places that may import it; `operators/` because of the operators' own reference.py."""

Import = tuple[str, int, bool]


def modules() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def imports(path: Path) -> Iterator[Import]:
    """(module, line, whether it is imported when the file is)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = (ROOT / Path(*name.split("."))).with_suffix(".py").exists()
                yield name if is_module else node.module or "", node.lineno, id(node) not in late


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_package_uses_only_what_stands_to_its_left(path: Path) -> None:
    allowed = LAYERS[: LAYERS.index(path.relative_to(ROOT).parts[0]) + 1]
    for module, line, _ in imports(path):
        top = module.split(".")[0]
        assert top not in LAYERS or top in allowed, f"{path}:{line}: imports {module}"
        assert top != "tests", f"{path}:{line}: imports {module}"


@pytest.mark.parametrize("path", sorted((ROOT / "fitness").glob("*.py")), ids=lambda p: p.name)
def test_only_the_registry_of_targets_knows_a_target(path: Path) -> None:
    for module, line, _ in imports(path):
        known = path.name == TARGETS or not module.startswith(("fitness.cpu", "fitness.cuda"))
        assert known, f"{path}:{line}: imports {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_stay_where_they_belong(path: Path) -> None:
    place = str(path.relative_to(ROOT))
    for module, line, _ in imports(path):
        homes = HEAVY.get(module.split(".")[0])
        assert homes is None or place.startswith(homes), f"{place}:{line}: imports {module}"


def test_nothing_shadows_the_standard_library() -> None:
    ours = {path.stem for path in modules()} | set(LAYERS)
    assert not (ours - {"__init__", "__main__"}) & sys.stdlib_module_names


def test_the_command_line_loads_nothing_heavy() -> None:
    program = f"import sys, evo.cli; print(*(m for m in {sorted(HEAVY)} + ['numpy', 'pydantic'] if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split() == []
