"""The shape of the code: which package may use which, and where heavy libraries may be imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.garbage import no_garbage_collected

ROOT = Path(__file__).parent.parent
TARGETS = "targets.py"
"""Name in fitness/ of the registry through which everything else gets its target."""
LAYERS = ("operators", "fitness", "mutators", "evo")
HEAVY = {
    "duckdb": ("evo/store/",),
    "optuna": ("mutators/tuning/tune.py", "mutators/tuning/samplers.py"),
    "tree_sitter": ("mutators/analysis/syntax.py",),
    "tree_sitter_cpp": ("mutators/analysis/syntax.py",),
    "litellm": ("mutators/llm/library.py",),
    "mcp": ("evo/outside/",),
    "mcp_types": ("evo/outside/",),
    "ray": ("evo/cluster/",),
    "cupy": ("fitness/cuda/", "fitness/judging/library.py", "evo/packaging/runtime/", "operators/"),
    "vl_convert": ("evo/charts/drawing.py",),
    "cuda": ("fitness/cuda/", "evo/packaging/runtime/on_cuda.py"),
    "elftools": (
        "fitness/cpu/build.py",
        "fitness/cpu/gate.py",
        "fitness/cuda/compile/cubin.py",
        "fitness/emulator/target.py",
    ),
    "torch": ("fitness/", "operators/", "evo/packaging/runtime/"),
}
"""Library and the only places that may import it; `operators/` because of the operators' own reference.py."""

LOADERS = re.compile(
    r"\bdl(?:m?open|v?sym)\b|\b(?:C|Py)DLL\b|\bcdll\b|\bLoadLibrary|\bload_library\b|ExtensionFileLoader"
)
"""Words by which native code comes into a process, or is found there."""
MAY_LOAD = {
    "fitness/native/image.hpp": "maps code of candidates: looks up what they import, in libraries that are there",
    "fitness/sandbox/native.py": "our own checks.cpp",
    "fitness/oracle/bounds.py": "names the type of the same",
    "fitness/cuda/compile/line.py": "the driver, asked for its version",
    "fitness/cuda/compile/nvrtc.py": "our own confine.cpp",
    "fitness/cuda/running/runner_process.py": "our own confine.cpp",
    "evo/packaging/runtime/on_cpu.py": "a package's kernel, in the process of a user who chose it",
    "evo/packaging/runtime/native.py": "a package's binding to torch, in the process of a user who built it",
    "evo/doctor.py": "the C library, and a test program of ours",
    "evo/workers/parent.py": "the C library",
    "evo/cluster/guard.py": "the C library",
}
MAPPED_BY = {"fitness/cpu/runner.cpp": "confine_child();", "fitness/cpu/profile_driver.cpp": "confine_simulated();"}
"""Programs that have code of candidates mapped, and how each gives up system calls before it calls any of it."""

Import = tuple[str, int, bool]


def modules() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def neutral() -> list[Path]:
    """Modules of fitness/ that belong to no target."""
    found = (path.relative_to(ROOT / "fitness") for path in sorted((ROOT / "fitness").rglob("*.py")))
    return [ROOT / "fitness" / path for path in found if path.parts[0] not in ("cpu", "cuda", "emulator")]


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """(module, line, whether it is imported when the file is)."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Import]:
    with no_garbage_collected():
        waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(encoding="utf-8")), True)]
    while waiting:
        node, at_once = waiting.pop()
        at_once &= not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, at_once
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if _is_module(name) else node.module or "", node.lineno, at_once
        elif not isinstance(node, ast.expr):
            waiting += ((child, at_once) for child in ast.iter_child_nodes(node))


@cache
def _is_module(name: str) -> bool:
    return (ROOT / Path(*name.split("."))).with_suffix(".py").exists()


def every_import() -> Iterator[tuple[str, str, int]]:
    """(place of the file, module that it imports, line)."""
    for path in modules():
        for module, line, _ in imports(path):
            yield path.relative_to(ROOT).as_posix(), module, line


def test_a_package_uses_only_what_stands_to_its_left() -> None:
    above = {layer: {*LAYERS[at + 1 :], "tests"} for at, layer in enumerate(LAYERS)}
    offenders = [
        f"{place}:{line}: imports {module}"
        for place, module, line in every_import()
        if module.split(".")[0] in above[place.split("/")[0]]
    ]
    assert not offenders


def test_only_the_registry_of_targets_knows_a_target() -> None:
    offenders = [
        f"{path.name}:{line}: imports {module}"
        for path in neutral()
        for module, line, _ in imports(path)
        if path.name != TARGETS and module.startswith(("fitness.cpu", "fitness.cuda", "fitness.emulator"))
    ]
    assert not offenders


def test_heavy_libraries_stay_where_they_belong() -> None:
    offenders = [
        f"{place}:{line}: imports {module}"
        for place, module, line in every_import()
        if not place.startswith(HEAVY.get(module.split(".")[0], ("",)))
    ]
    assert not offenders


def native_and_python() -> dict[str, str]:
    """The text of every file of ours that is code, by its place; not the operators' kernels."""
    suffixes = {".py", ".cpp", ".hpp", ".h"}
    files = (path for layer in LAYERS for path in (ROOT / layer).rglob("*") if path.suffix in suffixes)
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    return {place: text for place, text in texts.items() if not (place.startswith("operators/") and ".cpp" in place)}


def test_nothing_loads_native_code_but_where_it_is_named() -> None:
    """Code of candidates comes into a process by one way, which runs nothing of it."""
    assert {place for place, text in native_and_python().items() if LOADERS.search(text)} == set(MAY_LOAD)


def test_code_of_candidates_is_mapped_by_programs_that_are_walled_in_first() -> None:
    texts = native_and_python()
    assert {place for place, text in texts.items() if "image::map(" in text} == set(MAPPED_BY)
    for place, gives_up in MAPPED_BY.items():
        before, _, after = texts[place].partition(".launch(")
        assert after
        assert gives_up in before.rpartition("int main(" if "driver" in place else "void child(")[2]
    # Only these modules start them.
    starts = re.compile(r"cpu/(?:runner|profile_driver)\.cpp\"")
    assert {place for place, text in texts.items() if place.endswith(".py") and starts.search(text)} == {
        "fitness/cpu/runner.py",
        "fitness/cpu/profiler.py",
        "fitness/emulator/target.py",
    }
    for place in ("fitness/cpu/runner.py", "fitness/cpu/profiler.py"):
        assert "alone=True" in texts[place]


def test_nothing_shadows_the_standard_library() -> None:
    ours = {path.stem for path in modules()} | set(LAYERS)
    assert not (ours - {"__init__", "__main__"}) & sys.stdlib_module_names


def loaded_by(module: str, among: Iterable[str]) -> list[str]:
    """The libraries among these that a new process has loaded once it has imported our module."""
    program = f"import sys, {module}; print(*(m for m in {list(among)} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return run.stdout.split()


def test_the_command_line_loads_nothing_heavy() -> None:
    assert loaded_by("evo.cli.commands", [*sorted(HEAVY), "numpy", "pydantic"]) == []


@pytest.mark.slow
def test_a_server_of_tools_is_there_before_a_client_gives_it_up() -> None:
    needed = {"duckdb", "elftools", "mcp", "mcp_types"}
    assert loaded_by("evo.outside.mcp_server", sorted(HEAVY.keys() - needed)) == []


def test_a_driver_loads_nothing_that_its_workers_load() -> None:
    assert loaded_by("evo.session, evo.outside.importing", sorted(HEAVY.keys() - {"duckdb", "elftools"})) == []
