"""Kernel files of a user that a run starts from: looked at before anything is spent, then told to the run as guests."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from evo.config import RunConfig
from evo.inbox import Inbox
from fitness.cpu import build as cpu
from fitness.evaluation import Rejection
from mutators.asking.answers import Invitation
from operators.definition.spec import Operator, Task
from operators.errors import PlanError, UserError
from operators.files import read_text
from operators.kernel import Kernel
from operators.plan.header import MAX_SOURCE_BYTES
from operators.plan.reading import Plan, parse_plan

SUFFIXES = {"cpu": (".cpp", ".cc"), "cuda": (".cu",)}


def invitations(config: RunConfig, files: Sequence[Path], author: str) -> list[str]:
    """Return the lines that tell a run of these files.

    It raises UserError, one line, for a file that the run cannot start from: it cannot be read, is for another target,
    has no plan that fits, or does not compile. Whether it is right and how fast it is, the search finds out.
    """
    if not files:
        return []
    if config.cell is not None:
        raise UserError("--from: a run of a comparison starts from its naive kernel alone")
    tasks = config.tasks()
    if len(tasks) > 1:
        said = ", ".join(str(task) for _, task in tasks)
        raise UserError(f"--from: the run has several tasks ({said}); name one operator, and one --dtype")
    ((operator, task),) = tasks
    lines: dict[str, str] = {}
    for file in files:
        source = _source(file, task)
        kernel = Kernel(operator.name, task.target, source)
        _check(file, kernel, operator, task)
        note = f"started from {file.name}"
        lines.setdefault(kernel.id, Invitation(source, author=author, task=str(task), note=note).to_line())
    return list(lines.values())


def put(folder: Path, lines: Sequence[str]) -> None:
    """Leave the lines where a new run finds them at its beginning. It raises UserError."""
    if lines:
        Inbox(folder).put(lines)


def _source(file: Path, task: Task) -> str:
    if file.suffix not in SUFFIXES[task.target]:
        wanted = " or ".join(SUFFIXES[task.target])
        raise UserError(f"--from {file}: a kernel for {task.target} ends in {wanted}; --target names another target")
    try:
        if file.exists() and not file.is_file():
            raise UserError(f"--from {file}: is not a regular file; name a kernel file")
        return read_text(file, MAX_SOURCE_BYTES)
    except OSError as error:
        raise UserError(f"--from {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"--from {file}: is not UTF-8 text (byte {error.start + 1})") from None


def _check(file: Path, kernel: Kernel, operator: Operator, task: Task) -> None:
    try:
        plan = parse_plan(kernel.source, operator, task.target, name=str(file)).for_dtype(task.dtype)
    except PlanError as error:
        raise UserError(f"--from {error}") from None
    built = _built(kernel, plan, operator, task)
    if isinstance(built, Rejection):
        lines = [line.strip() for line in built.message.splitlines()]
        first = next((line for line in lines if "error" in line), lines[0])
        raise UserError(f"--from {file}: does not compile: {first}")


def _built(kernel: Kernel, plan: Plan, operator: Operator, task: Task) -> object:
    if task.target == "cuda":
        from fitness.cuda.build import ARCH, compile_cuda
        from fitness.cuda.driver import present_arch

        return compile_cuda(kernel, operator, task.dtype, arch=present_arch(ARCH))
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        return cpu.build(kernel, plan, operator, dtype=task.dtype, folder=Path(folder), resolved="")
