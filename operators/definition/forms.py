"""Forms that operators share: each an unfinished operator.toml, which `like = "elementwise"` names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """How many come first in the list of workloads."""
    dims: tuple[str, ...] = ()
    """The form's."""

    @property
    def place(self) -> str:
        """Where the form stands, for messages."""
        return f"the form {self.form} (operators/shared/{self.form}.toml)"

    def named_in(self, problem: str) -> str:
        """What to add to a message about things that the user did not write: where they stand, and what to write."""
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


def complete(own: dict[str, Any]) -> tuple[dict[str, Any], Inherited]:
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
