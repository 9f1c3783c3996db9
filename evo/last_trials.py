"""The end of a search whose strategies tune their best kernels after all else."""

from __future__ import annotations

from collections.abc import Iterable

from evo import records
from evo.history import History
from evo.in_flight import Errand
from evo.records import Rows
from evo.strategies.tuned import LAST_TRIALS
from evo.task_state import TaskState


def ask_last_trials(states: Iterable[TaskState], history: History) -> tuple[list[Errand], Rows]:
    """Ask each strategy that has nothing under way for its next trial; return what is to be committed too."""
    asked: list[Errand] = []
    rows: list[Rows] = []
    for state in states:
        if not state.fault and not state.in_flight:
            found, written = history.ask(state, LAST_TRIALS)
            asked += [Errand(state, *each) for each in found]
            rows.append(written)
    return asked, records.join(*rows)
