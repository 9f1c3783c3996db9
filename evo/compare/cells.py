"""A comparison's folder: what it was begun with, and how far each of its cells is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evo.compare.config import Cell, Comparison
from evo.folders import DATABASE
from evo.search.driver import FAULTY, WAITS
from evo.store import Connection, StoreError, open_reader
from fitness.base import DeviceInfo
from operators.definition.reading import first_problem
from operators.errors import UserError

CONFIG = "comparison.json"
"""What the comparison was begun with: its configuration, and the devices that prompts tell of."""
FREE = ("at_once",)
"""Keys that may be others when it goes on: they decide nothing but how long it takes."""
LAST_EVENT = """
    select kind, detail_json from events
    where kind in ('session', 'finished', 'stopped', 'task_failed') order by created_at desc, rowid desc limit 1
"""


class Begun(BaseModel):
    """What a comparison was begun with."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    config: Comparison
    devices: dict[str, DeviceInfo]
    """By target, what prompts of all cells tell of."""


class Standing(Enum):
    """How far a cell is."""

    NEW = "new"
    OPEN = "open"
    """Begun, and cut off or stopped."""
    WAITING = "waiting"
    """Answers from outside have to be told before it can go on."""
    FAILED = "failed"
    """Its operator is at fault; it is tried again when the comparison goes on."""
    DONE = "done"


def folder_of(runs: Path, name: str) -> Path:
    """Where a comparison of this name is."""
    return runs / f"compare-{name}"


def begun(folder: Path) -> tuple[Comparison, list[Cell]]:
    """The comparison that was begun in `folder`, and its cells in their order. It raises UserError."""
    known = stored(folder)
    return known.config, known.config.cells(known.devices)


def stored(folder: Path) -> Begun:
    """What a comparison was begun with. It raises UserError where none was begun."""
    try:
        return Begun.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: no comparison was begun there; begin one with: evo compare CONFIG") from None
    except (OSError, ValueError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{folder / CONFIG} cannot be used: {reason}") from None


def begin(folder: Path, comparison: Comparison, devices: Mapping[str, DeviceInfo]) -> Begun:
    """Write down what a comparison is begun with. It raises UserError where that cannot be."""
    held = Begun(config=comparison, devices=dict(devices))
    part = folder / f"{CONFIG}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(held.model_dump_json(indent=2), encoding="utf-8")
        part.replace(folder / CONFIG)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    return held


def check_same(folder: Path, then: Comparison, now: Comparison) -> None:
    """Raise UserError if a comparison would go on with another configuration than it was begun with."""
    changes = list(_changes(then.model_dump(mode="json"), now.model_dump(mode="json")))
    if changes:
        more = f", and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise UserError(
            f"{folder} was begun with another configuration ({changes[0]}{more}): cells of both would not compare; "
            "restore it, or give the comparison another name"
        )


def _changes(then: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where two configurations differ, in words."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            if place or key not in FREE:
                yield from _changes(then.get(key), now.get(key), f"{place}.{key}" if place else key)
    elif then != now:
        shown = [text if len(text := json.dumps(value)) <= 60 else f"{text[:57]}..." for value in (then, now)]
        yield f"{place} was {shown[0]}, is {shown[1]}"


def standing(folder: Path, read: Callable[[Connection], object] = lambda _: None) -> tuple[Standing, str]:
    """How far the cell in `folder` is, and why its last session ended; see `Standing`.

    `read` is given the cell while it is open, if it was begun.
    """
    if not (folder / DATABASE).exists():
        return Standing.NEW, ""
    try:
        with open_reader(folder) as store:
            found = _last_told(store)
            if found[0] is not Standing.NEW:
                read(store)
            return found
    except StoreError as error:  # it is told when the cell goes on
        return Standing.OPEN, str(error)


def _last_told(store: Connection) -> tuple[Standing, str]:
    found = store.sql(LAST_EVENT).to_arrow_table().to_pylist()
    if not found:
        return Standing.NEW, ""
    kind, detail = found[0]["kind"], json.loads(found[0]["detail_json"])
    reason = str(detail.get("reason", ""))
    if kind != "finished":
        return Standing.OPEN, reason if kind == "stopped" else ""
    if reason.startswith(WAITS):
        return Standing.WAITING, reason
    return (Standing.FAILED if reason == FAULTY else Standing.DONE), reason
