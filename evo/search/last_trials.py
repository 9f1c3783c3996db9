"""The end of a search whose strategies tune their best kernels after all else."""

from __future__ import annotations

from collections.abc import Iterable

from evo import rows as records
from evo.rows import Rows
from evo.search.history import History
from evo.search.in_flight import Errand
from evo.search.task import TaskState
from evo.strategies.tuned import LAST_TRIALS


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
