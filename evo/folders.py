"""Folders of runs, one for each, and the names by which users mean one or several of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from operators.errors import UserError

if TYPE_CHECKING:
    from evo.config import RunConfig

DATABASE = "evo.duckdb"
PATTERN = "*?["
"""Characters that make a name the pattern of several."""
CONFIG = "config.json"
"""A search's settings, for readers; its time is that of the last session's beginning. A replay has none."""


def new_folder(runs: Path, config: RunConfig) -> Path:
    """A new folder `runs/<date>-<time>-<first operator>`, with a number where that exists. It raises UserError."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{config.tasks()[0][0].name}"
    for number in range(100):
        folder = runs / (stem if number == 0 else f"{stem}-{number + 1}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"{folder}: cannot be made: {error.strerror}; name a folder with --runs or EVO_RUNS"
            ) from None
        return folder
    raise UserError(f"{runs}: too many runs in this second")


def _check_name(runs: Path, name: str) -> None:
    """Raise UserError for an empty name, such as a variable of a script that is not set."""
    if not name:
        raise UserError(f"the name of a run is empty; name a run of {runs}/, or `last`")


def find_run(runs: Path, name: str) -> Path:
    """The folder of a run: a path, an id below `runs`, or the beginning of one. It raises UserError.

    `last` is the search that a session of began last; `last-replay` the newest replay.
    """
    _check_name(runs, name)
    if (Path(name) / DATABASE).exists():
        return Path(name)
    folders = sorted(path.parent for path in runs.glob(f"*/{DATABASE}"))
    if name in ("last", "last-replay"):
        return _last(runs, folders, replay=name != "last")
    matches = [folder for folder in folders if folder.name == name] or [f for f in folders if f.name.startswith(name)]
    # A replay's id begins with that of its run, which is meant where both would do.
    searches = [folder for folder in matches if (folder / CONFIG).exists()]
    if found := next((each for each in (matches, searches) if len(each) == 1), None):
        return found[0]
    if not matches and Path(name).exists():
        raise UserError(f"{name}: there is no {DATABASE} in it, so that it is no run; name a run of {runs}/, or `last`")
    known = ", ".join(folder.name for folder in (matches or folders)[-5:])
    problem = "is not unique" if matches else "does not exist"
    there = f"there are: {known} (or say `last`)" if known else "it holds none yet: evo run makes one"
    raise UserError(f"run {name} {problem} in {runs}/; {there}")


def find_runs(runs: Path, name: str) -> Path | list[Path]:
    """The folder of one run as `find_run` finds it, or those of several.

    Several are named by a pattern, such as `runs/compare-x/*`, or by the folder that holds them, or its name below
    `runs`. A file that a run was exported to stands for that run, one that runs were merged into is several. It raises
    UserError.
    """
    _check_name(runs, name)
    if (Path(name) / DATABASE).exists():
        return Path(name)
    if Path(name).is_file():
        from evo.store.several import holds_several

        return [Path(name)] if holds_several(Path(name)) else Path(name)
    for place in (Path(name), runs / name):
        if place.is_dir() and (held := sorted(file.parent for file in place.glob(f"*/{DATABASE}"))):
            return held
    if not any(letter in name for letter in PATTERN):
        return find_run(runs, name)
    root = Path(name).anchor
    try:
        found = sorted(path for path in Path(root).glob(name.removeprefix(root)) if (path / DATABASE).exists())
    except (ValueError, NotImplementedError, OSError) as error:
        raise UserError(f"{name} is no pattern of folders: {error}") from None
    if not found:
        raise UserError(f"no run matches {name}; write a pattern of folders, such as '{runs}/compare-x/*'")
    return found


def find_one(runs: Path, name: str, cure: str) -> Path:
    """The folder or file of the one run that a name means, see `find_runs`; the `cure` is told where it means several.

    It raises UserError.
    """
    found = find_runs(runs, name)
    if isinstance(found, list):
        raise UserError(f"{name} names several runs: {cure}")
    return found


def find_readable(runs: Path, name: str, tell: Callable[[str], object]) -> Path | list[Path]:
    """The folders that `find_runs` finds, without those of several that cannot be read: `tell` is told each and why.

    It raises UserError, also where none of several can be read.
    """
    found = find_runs(runs, name)
    if isinstance(found, Path):
        return found
    from evo.store.several import unreadable

    damaged = unreadable(found)
    if len(damaged) == len(found):
        raise damaged[found[0]]
    for why in damaged.values():
        tell(f"left out: {why}")
    return [path for path in found if path not in damaged]


def find_all(runs: Path, names: Iterable[str], tell: Callable[[str], object]) -> list[Path]:
    """The folders or files of all runs that these names mean, see `find_readable`. It raises UserError."""
    found = (find_readable(runs, name, tell) for name in names)
    return [path for where in found for path in (where if isinstance(where, list) else [where])]


def last_run(runs: Path) -> Path | None:
    """The search that a session of began last; None where there is none yet."""
    folders = sorted(path.parent for path in runs.glob(f"*/{DATABASE}"))
    return next(iter(_newest(folders, replay=False)), None)


def _last(runs: Path, folders: Sequence[Path], *, replay: bool) -> Path:
    for folder in _newest(folders, replay=replay):
        return folder
    raise UserError(
        f"{runs}/ holds no {'replay' if replay else 'run'} yet: {'evo replay' if replay else 'evo run'} makes one"
    )


def _newest(folders: Sequence[Path], *, replay: bool) -> Iterator[Path]:
    file = DATABASE if replay else CONFIG
    found = [folder for folder in folders if (folder / CONFIG).exists() != replay]
    for folder in sorted(found, key=lambda folder: (folder / file).stat().st_mtime, reverse=True):
        if replay or began(folder):
            yield folder


def began(folder: Path) -> bool:
    """Whether a session of the run in `folder` began, as far as can be told."""
    if not (folder / DATABASE).exists():
        return any(folder.glob(f"{DATABASE}*"))
    from evo.api import Run
    from evo.store import StoreError

    try:
        return bool(Run(folder).rows("runs.event", kind="session"))
    except StoreError:  # it is told when this run is asked for
        return True
