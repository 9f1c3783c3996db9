"""What a package is made of: a kernel with its operator, and what is known of how it came to be and how fast it is."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evo.version import engine_version
from operators.catalog import load
from operators.champions import champions
from operators.definition.spec import CHAMPIONS, Operator, Task
from operators.errors import UserError, unknown
from operators.files import read_text
from operators.kernel import Kernel

if TYPE_CHECKING:
    from evo.api import Run

TARGET_OF = {".cpp": "cpu", ".cc": "cpu", ".cu": "cuda"}


@dataclass(frozen=True)
class Subject:
    """A kernel to take away."""

    operator: Operator
    task: Task
    kernel: Kernel
    origin: str
    """Where it is from, in words."""
    verdict: Mapping[str, Any] | None
    """As verdict.json has it; None: it was never judged there."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """What the verdict was given on: device, driver, versions."""
    lineage: Sequence[Mapping[str, Any]] = ()
    """Its ancestors and itself, parents before children."""


def from_run(run: Run, task: str = "") -> Subject:
    """Return the best kernel of a run's task. It raises UserError where there is none, or are several."""
    found = run.best(task)
    if not found:
        raise UserError(f"run {run.id} has no correct kernel{f' of a task {task}...' if task else ' yet'}")
    if len(found) > 1:
        raise UserError(f"--package takes one kernel; choose with --task among {', '.join(k.task for k in found)}")
    (best,) = found
    wanted = Task.parse(best.task)
    named = {load(name).name: name for name in run.config["operators"]}
    operator = load(named.get(wanted.operator, wanted.operator))
    (row,) = run.sql("select engine_version, host_json from runs limit 1").to_pylist()
    host = {"engine_version": row["engine_version"], **json.loads(row["host_json"])}
    if threads := run.config.get("threads"):
        host["threads"] = threads
    shown = {"run": run.id, "workload_set": run.config.get("workload_set", "")}
    return Subject(
        operator,
        wanted,
        Kernel(best.operator, best.target, best.source, best.values),
        f"run {run.id} of kernel-evo",
        {**shown, **_plain(best.verdict)} if best.verdict else None,
        host,
        [_plain(each) for each in run.lineage(best.id, best.task)],
    )


def from_file(operator_name: str, name: str, *, target: str = "", dtype: str = "") -> Subject:
    """Return a kernel file, or one of the operator's own by its name, such as `champions/h200`. It raises UserError."""
    operator = load(operator_name)
    file = Path(name)
    if not file.suffix:
        known = {f"{each}.cu": "cuda" for each in _names(operator, "cuda")}
        known |= {f"{each}.cpp": "cpu" for each in _names(operator, "cpu")}
        matches = [each for each in known if each.rpartition(".")[0] == name and target in ("", known[each])]
        if not matches:
            raise UserError(unknown("kernel", name, [each.rpartition(".")[0] for each in known]))
        file = operator.folder / matches[0]
    target = target or TARGET_OF.get(file.suffix, "")
    offered = operator.dtypes.get(target, ())
    if not offered or (dtype and dtype not in offered):
        raise UserError(
            f"operator {operator.name} has {', '.join(offered) or 'no dtype'} on {target or 'no target'}, not "
            f"{dtype or 'any'}; the target is told by the ending, .cu or .cpp, or by --target"
        )
    try:
        source = read_text(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text (byte {error.start + 1}); a kernel file is C++ source") from None
    wanted = dtype or offered[0]
    ours = file.resolve().is_relative_to(operator.folder.resolve())
    origin = f"{operator.name}'s own {file.name}" if ours else f"the file {file.name}"
    judged = champions(operator.folder) if ours and file.parent.name == CHAMPIONS else ()
    record = next((c for c in judged if c.file == file.name and c.dtype == wanted), None)
    kernel = Kernel(operator.name, target, source)
    author = record.author if record else None
    itself: dict[str, Any] = {
        "kernel_id": kernel.id,
        "parents": [],
        "mutator": "file",
        "author": author,
        "description": origin,
    }
    verdict = record.model_dump(mode="json") if record else None
    conditions = {"device": record.device} if record else {}
    return Subject(operator, Task(operator.name, wanted, target), kernel, origin, verdict, conditions, [itself])


def packed_by() -> dict[str, str]:
    """Return what made the package."""
    return {"engine_version": engine_version(), "python": platform.python_version()}


def _names(operator: Operator, target: str) -> list[str]:
    champions_of = {name for dtype in operator.dtypes.get(target, ()) for name in operator.champions(target, dtype)}
    return [*operator.ancestors(target), *sorted(champions_of)]


def _plain(value: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(asdict(value), default=str))
    return made
