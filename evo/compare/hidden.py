"""Hidden shapes for the judgement of a comparison, drawn when its searches are over: no verdict of theirs used them."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random

from operators.definition.spec import Operator
from operators.files import read_text

NEAR = 4
"""A size becomes one that differs by at most a fourth of it."""
SMALL = 128
"""Smaller sizes keep all powers of two that divide them: tiles and vectors are made for them."""
TRIES = 20
FILE = "operator.toml"


def with_drawn_shapes(operator: Operator, folder: Path, rng: Random) -> int:
    """Write the operator to a new folder with more hidden shapes, drawn near its own; return how many were added.

    Nothing else differs. Where its file lists hidden shapes in a way that cannot be added to, it gets none.
    """
    text = read_text(operator.folder / FILE)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(operator.folder, folder, ignore=shutil.ignore_patterns("champions", "__pycache__"))
    drawn = {dict_name(dims): dims for dims in drawn_shapes(operator, rng)}
    own = tomllib.loads(text).get("hidden")
    if own is not None and text.count("[[hidden]]") != len(own):
        return 0
    inherited = [] if own is not None else [dict(workload.dims) for workload in operator.hidden]
    tables = [_table(dims, "its form") for dims in inherited] + [_table(dims, "judgement") for dims in drawn.values()]
    (folder / FILE).write_text("\n".join([text.rstrip("\n"), *tables, ""]), encoding="utf-8")
    return len(drawn)


def drawn_shapes(operator: Operator, rng: Random) -> Iterator[dict[str, int]]:
    """For each hidden shape one near it that is none of them, where there is one."""
    known = {dict_name(workload.dims) for workload in operator.hidden}
    for workload in operator.hidden:
        for _ in range(TRIES):
            dims = near(workload.dims, rng)
            if dict_name(dims) not in known:
                known.add(dict_name(dims))
                yield dims
                break


def near(dims: Mapping[str, int], rng: Random) -> dict[str, int]:
    """Other sizes, in which equal ones stay equal, larger ones larger, and powers of two still divide what they did.

    What else a kernel or a reference asks of them, such as no more entries than a matrix has room for, is most often
    fulfilled by that. Powers beyond a fourth of a size of SMALL or more may divide it no longer.
    """
    for _ in range(TRIES):
        moved = {size: rng.choice(_neighbours(size)) for size in sorted({*dims.values()})}
        values = list(moved.values())
        if all(low < high for low, high in pairwise(values)):
            return {name: moved[size] for name, size in dims.items()}
    return dict(dims)


def dict_name(dims: Mapping[str, int]) -> str:
    """As `operators.definition.spec.Workload.name`."""
    return ",".join(f"{name}={value}" for name, value in dims.items())


def _neighbours(size: int) -> list[int]:
    if size < NEAR:
        return [size]
    step = size & -size
    if size >= SMALL:
        step = min(step, 1 << (size // NEAR).bit_length() - 1)
    most = size // NEAR // step
    return [size + step * count for count in range(-most, most + 1)]


def _table(dims: Mapping[str, int], source: str) -> str:
    sizes = ", ".join(f"{name} = {size}" for name, size in dims.items())
    return f'\n[[hidden]]\nsource = "{source}"\ndims = {{ {sizes} }}'
