"""The best kernels known of an operator, per device and dtype: where they come from, and what was measured of them.

They stand in the folder `champions` of an operator's own: `h200-fp32.cu` is one for fp32, `h200.cu` one for every dtype
that has no file of its own and that it was measured with. `champions.toml` beside them says of each file and dtype
what `Champion` holds. A search may start from them (`--ancestors all`); it judges them anew, whatever is written there.
What a run finds is put in their place by `evo champion RUN`, which writes both with `write_champion`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operators.definition.reading import first_problem
from operators.definition.spec import CHAMPIONS, Operator
from operators.errors import OperatorError
from operators.files import read_text
from operators.identity import digest

RECORDS = "champions.toml"
HEAD = "# Where the kernels of this folder come from, and what was measured of them there.\n"
Interval = tuple[float, float]
Around = tuple[float, float, float]
"""A speedup, and the ends of its 95 % interval."""


class Champion(BaseModel):
    """One kernel file with one dtype, as it was judged when it was taken in."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    file: str = Field(pattern=r"^[\w-]+\.(cu|cpp)$")
    """Its name in the folder."""
    dtype: str
    """Type that `T` was."""
    device: str
    """Device that it was measured on."""
    author: str
    """Who or what wrote it."""
    added: date
    """The day on which it was taken in."""
    level: Literal["screen", "full", "confirmed"]
    """Severity of the judgement."""
    flagged: str = ""
    """Suspicions about it, which is legal, in words, as the run found them."""
    workloads: str
    """The set of workloads that it was timed on."""
    status: str
    """Its verdict, such as `correct`."""
    over_naive: float | None = Field(None, gt=0)
    """Speedup over the naive kernel; None: not measured, like those below."""
    over_library: float | None = Field(None, gt=0)
    """Speedup over the vendor's call that is the fastest on each workload; with older engines the one call that was the
    fastest on all of them together."""
    of_roofline: float | None = Field(None, gt=0)
    """Share of what the roofline allows."""
    over_library_published: float | None = Field(None, gt=0)
    """Speedup over the vendor's call, a geometric mean over the published sizes, in a run of its own with cold caches
    that events timed."""
    note: str = ""
    """Note for readers of the verdict."""
    run: str = ""
    """The run that found it; empty where none did, like what follows."""
    kernel: str = ""
    """Its id there, that of the file it was found as with `values` for its tunables."""
    values: dict[str, int] = {}
    """The values of its tunables that won: the defaults of the file."""
    lineage: tuple[str, ...] = ()
    """Steps from the kernel that the run started from: what made each."""
    engine: str = ""
    """The kernel-evo that measured it."""
    versions: dict[str, str] = {}
    """By name, the versions of the packages that its rivals are of, and of the GPU's driver; empty where they were not
    kept."""
    library: tuple[str, ...] = ()
    """The rivals that it was compared with, each on the workloads where it was the fastest."""
    untried: tuple[str, ...] = ()
    """Rivals that were not tried, for want of minutes, memory or a package: one of these may be faster."""
    text_digest: str = ""
    """Digest of the file as it was judged; empty where it was not kept."""
    judged: date | None = None
    """The day on which all figures but `over_previous` were measured anew; None: as it was taken in."""
    over_naive_interval: Interval | None = None
    """The 95 % interval, like those below."""
    over_library_interval: Interval | None = None
    over_naive_by_size: dict[str, Around] = {}
    """The same by workload: the speedup and the ends of its interval; empty where it was not kept, like the next."""
    over_library_by_size: dict[str, Around] = {}
    """Beside each workload's fastest call."""
    previous: str = ""
    """The champion whose place it took, as its file was called, and who wrote that; empty where there was none."""
    over_previous: float | None = Field(None, gt=0)
    """Speedup over that one, as the same run measured both against the naive kernel."""
    over_previous_interval: Interval | None = None

    @property
    def stem(self) -> str:
        """The name that `Operator.champions` has for it, the folder left out."""
        return self.file.rpartition(".")[0]

    def stands_for(self, place: str, dtype: str, suffix: str) -> bool:
        """Whether it is the one of a device, named by `place` such as `h200`, for a dtype and kind of file."""
        return is_of(self.file, place, dtype) and self.dtype == dtype and self.file.endswith(suffix)


def is_of(file: str, place: str, dtype: str) -> bool:
    """Return whether a champion's file is called as that of a device, named by `place` such as `h200`, for a dtype."""
    return file.rpartition(".")[0] in (place, f"{place}-{dtype}")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    champion: list[Champion]


def champions(folder: Path) -> tuple[Champion, ...]:
    """Return what the records in an operator's folder say, in their order; none where it has no champions.

    It raises OperatorError, one line, for records that cannot be read.
    """
    path = folder / CHAMPIONS / RECORDS
    try:
        found = _File.model_validate(tomllib.loads(read_text(path)))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: cannot be read: {error}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise OperatorError(f"{path}: not valid TOML: {error}") from None
    except ValidationError as error:
        raise OperatorError(f"{path}: {first_problem(error)}") from None
    return tuple(found.champion)


def text_digest(source: str) -> str:
    """Return what a record keeps of the file that it is about."""
    return digest("champion", source)


def is_as_judged(folder: Path, record: Champion) -> bool:
    """Return whether the file of a record in an operator's folder is the one that was judged, as far as it tells."""
    return record.text_digest in ("", text_digest(read_text(folder / CHAMPIONS / record.file)))


def offered(operator: Operator, target: str, dtype: str) -> tuple[str, ...]:
    """Return the names of the best kernels known for one dtype, as `Operator.champions` has them.

    A file that was measured with other dtypes alone is left out: its instructions may be theirs. It raises
    OperatorError, one line, for records that cannot be read.
    """
    measured: dict[str, set[str]] = {}
    for champion in champions(operator.folder):
        measured.setdefault(f"{CHAMPIONS}/{champion.stem}", set()).add(champion.dtype)
    return tuple(name for name in operator.champions(target, dtype) if dtype in measured.get(name, {dtype}))


def standing(operator: Operator, place: str, target: str, dtype: str) -> Champion | None:
    """Return the champion of one device, named by `place` such as `h200`. It raises OperatorError as `champions`."""
    suffix = operator.ancestor("naive", target).suffix
    return next((each for each in champions(operator.folder) if each.stands_for(place, dtype, suffix)), None)


def write_champion(operator: Operator, place: str, record: Champion, source: str) -> Champion:
    """Write a champion's file and its record in place of the one that stood for its device, dtype and target.

    Where the device's champion for another dtype is the same text, one file serves both, `h200.cu`. Files for which no
    record is left are removed. It returns the record as it was written. Whenever it is cut off, every file that has a
    record is there. It raises OSError, and OperatorError for records that cannot be read.
    """
    folder, suffix = operator.folder / CHAMPIONS, Path(record.file).suffix
    known = champions(operator.folder)
    kept = [each for each in known if not each.stands_for(place, record.dtype, suffix)]
    same = [c for c in kept if c.stands_for(place, c.dtype, suffix) and read_text(folder / c.file) == source]
    record = record.model_copy(update={"text_digest": text_digest(source)})
    shared = f"{place}{suffix}"
    if same and all(each.file != shared or each in same for each in kept):
        record = record.model_copy(update={"file": shared})
        kept = [each.model_copy(update={"file": shared}) if each in same else each for each in kept]
    folder.mkdir(exist_ok=True)
    _replace(folder / record.file, source)
    write_records(operator, [*kept, record])
    left = {each.file for each in (*kept, record)}
    for file in dict.fromkeys(each.file for each in known if each.file not in left):
        (folder / file).unlink(missing_ok=True)
    return record


def write_records(operator: Operator, records: Iterable[Champion]) -> None:
    """Write all records of an operator's champions anew, their files as they are. It raises OSError."""
    path = operator.folder / CHAMPIONS / RECORDS
    _replace(path, records_text(records, head=_head(path)))


def records_text(records: Iterable[Champion], *, head: str = HEAD) -> str:
    """Return the records as TOML, what is not known left out; `champions` reads them again."""
    return head + "".join(f"\n{_entry(each.model_dump(exclude_defaults=True))}\n" for each in records)


def _entry(record: dict[str, Any]) -> str:
    """One record; what is by workload has a table of its own, a line for each."""
    by_size = {key: value for key, value in record.items() if key.endswith("_by_size")}
    lines = ["[[champion]]", *(f"{key} = {_toml(value)}" for key, value in record.items() if key not in by_size)]
    for key, sizes in by_size.items():
        lines += [f"[champion.{key}]", *(f"{_toml(size)} = {_toml(value)}" for size, value in sizes.items())]
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(name)} = {_toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):  # JSON escapes what TOML does, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return value.isoformat() if isinstance(value, date) else repr(value)


def _head(path: Path) -> str:
    """The text in front of the records of a file."""
    text = read_text(path) if path.exists() else HEAD
    return text.partition("[[champion]]")[0].rstrip("\n") + "\n"


def _replace(path: Path, text: str) -> None:
    """Write a whole file at once, so that a reader sees the old one or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", encoding="utf-8", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
