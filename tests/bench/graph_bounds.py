"""How wide error bounds by running analysis are, and what passes them: `python -m tests.bench.graph_bounds`.

For sample modules, and for KernelBench problems of a clone that is named (`--kernelbench FOLDER`, run as they are, with
smaller sizes; only for a source that you trust): the largest error of torch in fp32 and bf16 as a share of the bound,
and how many of so many mutants of the generated cpu kernel are refused.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fitness.judging.mutation_test import MutationTest
from fitness.targets import place
from mutators.analysis.cpp_tree import SyntaxTree
from mutators.mutants import chosen, mutants
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.importing.exporting import graph_of, write_folder
from tests.importing.samples import SAMPLES, sample
from tests.importing.test_running import LEFT_OUT, share


def shrunk(source: str) -> str:
    """A problem whose large module-level integers are smaller ones of the same divisibility by 32."""
    tree = ast.parse(source)
    for statement in tree.body:
        for value in ast.walk(statement) if isinstance(statement, ast.Assign) else ():
            if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 16:
                value.value = 32 if value.value % 32 == 0 else 16 if value.value % 16 == 0 else 17
    return ast.unparse(tree)


def problems(clone: Path, level: int) -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """KernelBench's problems of a level, small."""

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", clone, *args], check=True, capture_output=True, text=True).stdout

    for name in git("ls-tree", "--name-only", "HEAD", f"KernelBench/level{level}/").split():
        if not name.endswith(".py"):
            continue
        space: dict[str, Any] = {}
        try:
            exec(compile(shrunk(git("show", f"HEAD:{name}")), name, "exec"), space)
            torch.manual_seed(0)
            module = space["Model"](*space["get_init_inputs"]()).eval()
            yield Path(name).stem, module, list(space["get_inputs"]())
        except Exception as error:  # noqa: BLE001 (whatever a problem of others does)
            print(f"{Path(name).stem}: not built with smaller sizes: {str(error)[:80]}")


def refused(module: Any, inputs: list[Any], folder: Path, count: int, dims: dict[str, int]) -> str:
    """How many of so many mutants of the generated kernel are refused; why the kernel itself is, if it is."""
    shapes = [{dim: size + more for dim, size in dims.items()} for more in (0, 1, 5)]
    operator = write_folder(folder / "judged", graph_of(module, inputs, dims), shapes=shapes)
    (folder / "built").mkdir()
    host = place(operator, Task(operator.name, "fp32", "cpu"), workload_set="cpu", folder=folder / "built")
    kernel = Kernel(operator.name, "cpu", operator.naive("cpu"))
    test = MutationTest(host, kernel, operator.hidden, seed=0)
    try:
        if (own := test.naive().rejection) is not None:
            return f"first kernel {own.status}: {own.message[:160]}"
        picked = chosen(mutants(kernel, SyntaxTree(kernel.source, operator, "cpu", "fp32")), count)
        tried = [test.tried(mutant.kernel) for mutant in picked]
    finally:
        test.close()
    differ = [found for found in tried if not found.same_code and (found.rejection or found.differs)]
    return f"{sum(f.rejection is not None for f in tried)} of {len(tried)}, {len(differ)} of which had other results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--mutants", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.kernelbench:
        tasks = ((*each, {}) for each in problems(options.kernelbench, options.level))
    else:
        tasks = ((name, *sample(name)) for name in SAMPLES if name not in LEFT_OUT)
    shares: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for number, (name, module, inputs, dims) in enumerate(tasks):
        if number == options.most:
            break
        begin, found = time.monotonic(), {}
        for dtype, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            try:
                found[dtype] = f"{share(module, inputs, kind):.3g}"
                shares[dtype].append(float(found[dtype]))
            except Exception as error:  # noqa: BLE001
                found[dtype] = f"no figure ({str(error)[:80]})"
        told = ""
        if options.mutants:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    told = refused(module, inputs, Path(folder), options.mutants, dims)
                except Exception as error:  # noqa: BLE001
                    told = f"failed: {' '.join(str(error).split())[:160]}"
        print(f"| {name} | {found['fp32']} | {found['bf16']} | {told} | {time.monotonic() - begin:.1f} s |", flush=True)
    for dtype, all_shares in shares.items():
        some = [each for each in all_shares if each > 0]
        print(
            f"{dtype}: {len(all_shares)} tasks, {len(some)} with errors: median {statistics.median(some):.3g}, "
            f"least {min(some):.3g}, largest {max(some):.3g}, above 1: {sum(each > 1 for each in some)}"
        )


if __name__ == "__main__":
    main()
