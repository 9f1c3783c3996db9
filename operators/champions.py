"""The best kernels known of an operator, per device and dtype: where they come from, and what was measured of them.

They stand in the folder `champions` of an operator's own: `h200-fp32.cu` is one for fp32, `h200.cu` one for every dtype
that has no file of its own and that it was measured with. `champions.toml` beside them says of each file and dtype
what `Champion` holds. A search may start from them (`--ancestors all`); it judges them anew, whatever is written there.
"""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operators.definition import first_problem
from operators.errors import OperatorError
from operators.files import read_text
from operators.spec import CHAMPIONS, Operator

RECORDS = "champions.toml"


class Champion(BaseModel):
    """One kernel file with one dtype, as it was judged when it was taken in."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    file: str = Field(pattern=r"^[\w-]+\.(cu|cpp)$")
    """Its name in the folder."""
    dtype: str
    """What `T` was."""
    device: str
    """What it was measured on."""
    author: str
    """Who or what wrote it."""
    added: date
    """The day on which it was taken in."""
    level: Literal["screen", "full", "confirmed"]
    """How severely it was judged."""
    workloads: str
    """The set of workloads that it was timed on."""
    status: str
    """Its verdict, such as `correct`."""
    over_naive: float | None = Field(None, gt=0)
    """Speedup over the naive kernel; None: not measured, like those below."""
    over_library: float | None = Field(None, gt=0)
    """Speedup over the vendor's call."""
    of_roofline: float | None = Field(None, gt=0)
    """Share of what the roofline allows."""
    over_library_published: float | None = Field(None, gt=0)
    """Speedup over the vendor's call, a geometric mean over the published sizes, in a run of its own with cold caches
    that events timed."""
    note: str = ""
    """What a reader of the verdict should know."""

    @property
    def stem(self) -> str:
        """What `Operator.champions` calls it, the folder left out."""
        return self.file.rpartition(".")[0]


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


def offered(operator: Operator, target: str, dtype: str) -> tuple[str, ...]:
    """Return the names of the best kernels known for one dtype, as `Operator.champions` has them.

    A file that was measured with other dtypes alone is left out: its instructions may be theirs. It raises
    OperatorError, one line, for records that cannot be read.
    """
    measured: dict[str, set[str]] = {}
    for champion in champions(operator.folder):
        measured.setdefault(f"{CHAMPIONS}/{champion.stem}", set()).add(champion.dtype)
    return tuple(name for name in operator.champions(target, dtype) if dtype in measured.get(name, {dtype}))
