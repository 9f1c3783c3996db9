"""The charts of one run for notebooks and files: `evo.open("last").plot.progress()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evo.charts.drawing import Figure, Interactive
from evo.charts.figures import by_task, map_figure, progress_figure
from evo.charts.picture import AnswersQueries, individuals_picture, pictured
from evo.charts.roofline import rooflines
from operators.errors import UserError

ACROSS = {"evaluations": "evaluation", "time": "elapsed_s"}
Rows = list[dict[str, Any]]


class Plotted(AnswersQueries, Protocol):
    """A run with its settings, such as `evo.api.Run`."""

    @property
    def config(self) -> dict[str, Any]:
        """Every setting."""
        ...

    def query(self, name: str) -> Any:
        """The answer to a worked query, as an Arrow table."""
        ...

    def lineage(self, kernel: str, task: str = "", *, principal: bool = False) -> Sequence[Any]:
        """The ancestors of a kernel, itself last."""
        ...


class Plots:
    """Charts of a run as it is when they are asked for. A notebook shows each, and `save` writes it to a file.

    `task` is a task or its beginning; empty: all. What has nothing to show raises UserError.
    """

    def __init__(self, run: Plotted) -> None:
        """`run` is asked anew for every chart."""
        self._run = run

    def __repr__(self) -> str:
        return f"{self._run!r}.plot: progress(), individuals(), lineage(kernel), archive(), roofline()"

    def progress(self, task: str = "", *, over: str = "evaluations") -> Figure:
        """The certain speedup so far of each task, with leaders' estimates and intervals, over evaluations or time."""
        if over not in ACROSS:
            raise UserError(f"over: {over}: say evaluations or time")
        leaders = by_task(_of(task, self._run.query("leaders").to_pylist()))
        ends = {row["task"]: row for row in self._run.rows("report.ends")}
        return _joined([progress_figure(each, rows, ends[each], ACROSS[over]) for each, rows in leaders.items()])

    def individuals(self, task: str = "") -> Interactive:
        """Every individual by generation or time and certain speedup, with the paths to the best kernels."""
        return _pictured(self._run, task)

    def lineage(self, kernel: str, task: str = "") -> Interactive:
        """The same with the path of principal parents to one kernel, which is named by its id or its beginning."""
        found = self._run.lineage(kernel, task, principal=True)[-1]
        return _pictured(self._run, found.task, found.kernel_id)

    def archive(self, task: str = "") -> Figure:
        """The best kernel of each cell of the behaviour space, by its certain speedup."""
        cells = by_task(_of(task, self._run.rows("report.elites")))
        return _joined([map_figure(each, rows) for each, rows in cells.items()])

    def roofline(self, task: str = "") -> Figure:
        """The rates that best, naive and library kernels reach below the device's peaks."""
        return _joined(rooflines(self._run.config, _of(task, self._run.rows("report.roofline")))[2])


def _pictured(run: AnswersQueries, task: str, kernel: str = "") -> Interactive:
    found = pictured(run, task if kernel else "", kernel)
    rows = _of(task, found["individuals"])
    paths = [step for step in found["paths"] if step["champion"].startswith(task)]
    if not rows:
        raise _nothing()
    return individuals_picture(rows, paths, found["migrations"])


def _of(task: str, rows: Rows) -> Rows:
    """The rows of tasks that begin so."""
    return [row for row in rows if row["task"].startswith(task)]


def _joined(figures: Sequence[Figure]) -> Figure:
    """One figure of all, two beside each other."""
    if not figures:
        raise _nothing()
    if len(figures) == 1:
        return figures[0]
    titled: list[Mapping[str, Any]] = [{**each.spec, "title": each.title} for each in figures]
    spec = {"concat": titled, "columns": 2, "resolve": {"scale": {"x": "independent", "y": "independent"}}}
    return Figure(f"{figures[0].title} and {len(figures) - 1} more", " ".join(each.told for each in figures), spec)


def _nothing() -> UserError:
    return UserError("there is nothing to draw yet: no kernel of these tasks is correct, or none was timed")
