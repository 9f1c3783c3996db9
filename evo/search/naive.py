"""Messages to the user on a naive kernel that nothing can be compared with."""

from __future__ import annotations

import shlex
from pathlib import Path

from fitness.evaluation import Evaluation, Status
from operators.catalog import folders
from operators.definition.spec import Operator, Task

MESSAGE_LENGTH = 300
WORDS = {
    Status.INVALID: "is refused before it is compiled",
    Status.COMPILE_ERROR: "does not compile",
    Status.UNSUPPORTED: "does not support what it must",
    Status.RUNTIME_ERROR: "does not run",
    Status.TIMEOUT: "takes too long",
    Status.WRONG: "is wrong",
    Status.QUARANTINED: "is quarantined",
}


def naive_fault(operator: Operator, task: Task, evaluation: Evaluation, *, workload_set: str) -> str:
    """Which kernel, its verdict, the message and what to do, in one line."""
    file = operator.ancestor("naive", task.target)
    message = " ".join(evaluation.message.split())
    if len(message) > MESSAGE_LENGTH:
        message = f"{message[:MESSAGE_LENGTH]}..."
    command = f"evo evaluate {_name(operator)} {shlex.quote(_shown(file))} --dtype {task.dtype}"
    if workload_set:
        command += f" --workloads {workload_set}"
    return (
        f"the naive kernel {WORDS[evaluation.verdict]}, and all others are compared with it: {message}; mend "
        f"{_shown(file)}, see its whole verdict with `{command}`, then start a new run"
    )


def _name(operator: Operator) -> str:
    """The operator's name, or its folder, in the form that the command line takes."""
    if folders().get(operator.name) == operator.folder:
        return operator.name
    shown = _shown(operator.folder)
    return shlex.quote(shown if "/" in shown else f"./{shown}")


def _shown(path: Path) -> str:
    """Relative to where we are, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
