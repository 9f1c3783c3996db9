"""The parts that an operator.toml may leave out: its form has them, or they follow from the rest.

A form, which `like = "elementwise"` names, is an unfinished operator.toml. Hidden shapes of all kinds follow from the
dims, bytes from the tensors.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operators.dtypes import DTYPES
from operators.expression import MAX_CHARACTERS

FORMS = Path(__file__).parents[1] / "shared"
_LISTED = re.compile(r"\b(workload|hidden|tensor|scalar)\[(\d+)\]")
_KEY = re.compile(r"\b(cost|tolerance|derived|data_dims|dtypes)\.(\w+)")
_SETTING = re.compile(r"^(\w+) \w+=")


@dataclass(frozen=True)
class Inherited:
    """The parts of a completed operator.toml that stand in a form, and not in the operator's own file."""

    form: str = ""
    """Its name; empty: the operator is like none."""
    keys: frozenset[str] = frozenset()
    """Whole tables and values (`dims`), and keys of tables that both have (`cost.min_bytes`)."""
    sets: frozenset[str] = frozenset()
    """Sets of workloads."""
    own_workloads: int = 0
    """Number of workloads of its own, which come first in the list."""
    dims: tuple[str, ...] = ()
    """The form's."""

    @property
    def place(self) -> str:
        """Where the form stands, for messages."""
        return f"the form {self.form} (operators/shared/{self.form}.toml)"

    def named_in(self, problem: str) -> str:
        """Words for a message about things that the user did not write: where they stand, and what to write."""
        for what, cure in self._found(problem):
            return f"; {what} comes from {self.place}, which `like` names: {cure}"
        return ""

    def _found(self, problem: str) -> list[tuple[str, str]]:
        found = []
        for table, index in _LISTED.findall(problem):
            if table in self.keys or (table == "workload" and self.sets and int(index) >= self.own_workloads):
                found.append((f"{table}[{index}]", f"write [[{table}]] of your own in its place"))
        for table, key in _KEY.findall(problem):
            if self.keys & {table, f"{table}.{key}"}:
                found.append((f"{table}.{key}", f"write {key} of your own in [{table}]"))
        if (match := _SETTING.match(problem)) and match[1] in self.sets:
            found.append((f"the workload set {match[1]}", f'write [[workload]] with set = "{match[1]}" of your own'))
        if "dims must be exactly" in problem and "dims" in self.keys:
            found.append(
                (f"dims = [{', '.join(self.dims)}]", "write dims of your own, with tensors and shapes over them")
            )
        return found


def with_form(own: dict[str, Any]) -> tuple[dict[str, Any], Inherited]:
    """The file over the form that its `like` names: tables key by key, workloads set by set, all else as a whole.

    Workloads, hidden shapes and costs of a form are left out where the file has other dims. Raises ValueError.
    """
    name = own.get("like")
    if name is None:
        return own, Inherited()
    if name not in (forms := {path.stem: path for path in FORMS.glob("*.toml")}):
        raise ValueError(f"`like`: {name!r} is no form; there are {', '.join(sorted(forms))}")
    base = tomllib.loads(forms[name].read_text(encoding="utf-8"))
    dims = tuple(base["dims"])
    _drop_other_dims(name, base, own)
    merged = base | own  # of each key the file's own; tables and workloads are merged below
    keys = set(base) - set(own)
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = base[key] | value
            keys |= {f"{key}.{inner}" for inner in set(base[key]) - set(value)}
    listed = own.get("workload", [])
    if not isinstance(listed, list):  # the model says what is wrong with it
        return merged, Inherited(name, frozenset(keys), dims=dims)
    sets = [entry.get("set") for entry in listed if isinstance(entry, dict)]
    kept = [entry for entry in base.get("workload", ()) if entry["set"] not in sets]
    merged["workload"] = listed + kept
    inherited = frozenset(entry["set"] for entry in kept)
    return merged, Inherited(name, frozenset(keys - {"workload"}), inherited, len(listed), dims)


def _drop_other_dims(name: str, base: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Take out of a form what sets dims that the operator does not have. Raises ValueError without a workload."""
    wanted = own.get("dims", base["dims"])
    if not isinstance(wanted, list) or set(map(str, wanted)) == set(base["dims"]):
        return
    for table in ("workload", "hidden", "cost"):
        base.pop(table, None)
    if "workload" not in own:
        there, place = ", ".join(base["dims"]), Inherited(name).place
        sizes = ", ".join(f"{dim} = 64" for dim in wanted)
        raise ValueError(
            f"`workload` is missing: {place} has some over its own dims ({there}), not over yours "
            f'({", ".join(map(str, wanted))}); write [[workload]] with set = "cpu", dims = {{ {sizes} }}'
        )


# --- what follows from the rest ---------------------------------------------------------------------------------------


MOST_DIMS = 4
"""The most dims for which shapes are made: of more, too many would be large."""
OF_ONE = {
    "one element": (1,),
    "odd": (3, 7, 17, 127, 1023, 4097),
    "even, no multiple of 8": (2, 100, 1002),
    "divisible by 8": (8, 1000),
    "divisible by 32": (32, 96, 1024, 1056, 4000, 8192, 65536),
}
LONG = {2: 2039, 3: 509, 4: 127}
"""A prime, by the number of dims, that one dim takes while the others are small."""
SMALL = (3, 5, 2)
ODD = {2: (17, 127, 3, 257), 3: (17, 65, 3, 33), 4: (5, 17, 3, 7)}
OF_8 = (8, 40, 24)
OF_32 = {
    2: ((1, 1), (3, 8), (8, 3), (2, 33), (33, 1), (5, 32)),
    3: ((1, 1, 1), (3, 2, 1), (1, 3, 2), (2, 1, 3), (4, 2, 2), (2, 4, 4)),
    4: ((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (2, 1, 2, 1)),
}
"""Times 32: six shapes for kernels that ask for whole warps in every dim."""


def fill_in(raw: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The tables of an operator.toml, not yet checked, with what it leaves out; and whether hidden shapes are ours.

    `hidden` are made where there are at most `MOST_DIMS` dims, `cost.min_bytes` where no size depends on data;
    `cost.min_flops` is 0.
    """
    made, dims, cost = dict(raw), raw.get("dims"), raw.get("cost")
    own = "hidden" not in raw and isinstance(dims, list) and 0 < len(dims) <= MOST_DIMS
    if own:
        made["hidden"] = list(hidden([str(dim) for dim in dims or ()]))
    if isinstance(cost, dict):
        known = {} if raw.get("data_dims") else {"min_bytes": tensors_bytes(raw.get("tensor"))}
        made["cost"] = {"min_flops": 0, **known, **cost}
    return made, own


def hidden(dims: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Tables of `[[hidden]]`: ones, long and small, odd sizes, multiples of 8 and of 32."""
    if len(dims) == 1:
        yield from ({"source": source, "dims": {dims[0]: list(sizes)}} for source, sizes in OF_ONE.items())
        return
    seen = set()
    for source, sizes in _several(dims):
        if sizes not in seen:
            seen.add(sizes)
            yield {"source": source, "dims": dict(zip(dims, sizes, strict=True))}


def _several(dims: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    count = len(dims)
    odd, numbers = ODD[count], range(count)
    yield "one element", (1,) * count
    for one in numbers:
        yield f"long in {dims[one]}", tuple(LONG[count] if n == one else SMALL[n % len(SMALL)] for n in numbers)
        yield f"{dims[one]} = 1", tuple(1 if n == one else odd[(n + one) % len(odd)] for n in numbers)
    for turn in range(len(odd)):
        yield "odd", tuple(odd[(n + turn) % len(odd)] for n in numbers)
    for turn in range(len(OF_8)):
        yield "divisible by 8", tuple(OF_8[(n + turn) % len(OF_8)] for n in numbers)
    for factors in OF_32[count]:
        yield "divisible by 32", tuple(32 * factor for factor in factors)


def tensors_bytes(tensors: object) -> str:
    """A formula for the bytes of all tensors, those that are changed in place counted twice; what is no tensor is 0."""
    listed = tensors if isinstance(tensors, list) else []
    counts = Counter(found for each in listed if (found := _bytes(each)))
    terms = (" * ".join((size, *(f"({axis})" for axis in axes))) for size, axes in counts.elements())
    text = " + ".join(terms)
    if len(text) > MAX_CHARACTERS:  # a network's layers have many tensors, most of them of fixed shapes
        sums: dict[str, Counter[str]] = {}
        for (size, axes), count in counts.items():
            numbers = [int(axis) for axis in axes if axis.isdigit()]
            named = " * ".join(f"({axis})" for axis in axes if not axis.isdigit())
            sums.setdefault(size, Counter())[named] += count * math.prod(numbers)
        text = " + ".join(f"{size} * ({_sum(factors)})" for size, factors in sums.items())
    return text or "0"


def _sum(factors: Mapping[str, int]) -> str:
    return " + ".join(
        name if name and count == 1 else f"{count} * {name}" if name else str(count) for name, count in factors.items()
    )


def _bytes(tensor: object) -> tuple[str, tuple[str, ...]] | None:
    """The bytes of an element, twice where it is changed in place, and the axes."""
    if not isinstance(tensor, dict) or not isinstance(tensor.get("shape"), list):
        return None
    dtype = str(tensor.get("dtype", "T"))
    size = str(DTYPES[dtype].size) if dtype in DTYPES else f"sizeof_{'ACC' if dtype == 'ACC' else 'T'}"
    return ("2 * " if tensor.get("role") == "inout" else "") + size, tuple(map(str, tensor["shape"]))
