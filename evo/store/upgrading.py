"""Reading a run that an older version wrote: a copy of its file, brought to the newest schema."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import duckdb

from evo.store import snapshots
from evo.store.joined import bring_up
from evo.store.schema import newest_version
from evo.store.writer import CONFIG, FILE
from operators.identity import digest


def upgraded(file: Path, folder: Path) -> Path:
    """A copy of the run's `file` with the newest schema; made once for each state of it, and kept beside snapshots.

    The run itself stays as it is until a session writes it. Where `folder`, the run's, cannot be written, or is a file,
    the copy goes to the machine's temporary folder. Raises duckdb.Error, StoreError and OSError.
    """
    place = folder / snapshots.FOLDER
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        place = Path(tempfile.gettempdir(), f"kernel-evo-{os.getuid()}")
    place.mkdir(exist_ok=True, mode=0o700)
    sources = [path for path in (file, file.with_name(f"{file.name}.wal")) if path.exists()]
    state = [f"{path.absolute()} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in sources]
    target = place / f"upgraded-{digest(str(newest_version()), *state)}.duckdb"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=place, prefix="upgrading-") as scratch:
        for source in sources:
            snapshots.copy_file(source, Path(scratch, source.name.replace(file.name, FILE)))
        with duckdb.connect(str(Path(scratch, FILE)), config=dict(CONFIG)) as connection:
            bring_up(connection)
        Path(scratch, FILE).replace(target)
    return target
