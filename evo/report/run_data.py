"""The data of a run's report, read once and of one state of the run, by way of `evo.api`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evo.api import Ancestor, Run, StoredKernel, principal_chain
from evo.charts.picture import pictured
from evo.report.document import Query
from evo.report.health import Health, health
from evo.report.status import TaskSummary, open_questions, summary
from evo.store.reads import Value, filled

Row = dict[str, Any]
NAMED = (
    "leaders", "mutators", "rewrites", "models", "contributors", "outside", "tuning", "lost_time", "stagnation",
    "duplicates", "repeated_failures", "noise",
)  # fmt: skip
"""Worked queries that it shows whole."""
SHOWN = (
    "report.standings", "report.ends", "report.elites", "report.failures", "report.costs", "report.quarantined",
    "report.events", "report.roofline", "status.sessions", "health.use",
)  # fmt: skip
"""The engine's own queries whose answers it shows; see `evo.store.reads`."""
SIBLINGS = 12
"""Children of each parent on the way to a champion, the fastest first."""
MOST_KERNELS = 200
"""Kernels that a report has all about; champions come first, then their lineages, then elites."""
MOST_SIBLINGS = 30
"""Tasks whose siblings and whole ancestries are read: of more, commands say how."""


@dataclass(frozen=True)
class Descent:
    """Descent of the best kernel of one task."""

    task: str
    kernel_id: str
    path: Sequence[Ancestor]
    """Along principal parents, the first one first."""
    ancestors: Sequence[Row]
    """All ancestors, through both parents of crossovers."""
    siblings: Sequence[Row]


@dataclass(frozen=True)
class Material:
    """All that a report is made from."""

    run: str
    """The run, by the name that `evo sql` takes."""
    is_running: bool
    row: Row
    """The row of the table `runs`; empty where the run was stopped before it began."""
    config: Mapping[str, Any]
    questions: int
    """Number of questions that wait for answers from outside."""
    health: Health
    tasks: Sequence[TaskSummary]
    """All that were asked for."""
    answers: Mapping[str, Sequence[Row]]
    """Answers to queries, by their names."""
    lineages: Sequence[Descent]
    kernels: Mapping[tuple[str, str], StoredKernel]
    """By task and id, the most important ones first."""
    left_out: int
    """Kernels of lineages and elites that are not among these."""
    individuals: Sequence[Row] = ()
    """Individuals of the picture, in their order."""
    paths: Sequence[Row] = ()
    """The paths to the best kernels, see the query `picture.paths`."""
    migrations: Sequence[Row] = ()
    """Kernels that another island took over, in their order."""
    calls: Mapping[tuple[str, str], Sequence[Row]] = field(default_factory=dict)
    """Questions to models that led to a kernel, by its task and id."""
    timings: Mapping[tuple[str, str], Sequence[Row]] = field(default_factory=dict)
    """Timings of a kernel's verdict, workload by workload, by its task and id."""

    def rows(self, name: str) -> Sequence[Row]:
        """The answer to a query, a worked one or one of the engine's own."""
        return self.answers[name]

    def query(self, name: str, **values: Value) -> Query:
        """A query as the report prints it."""
        known = Query(self.run, "" if name in NAMED else filled(name, **values), len(self.answers.get(name, ())))
        return replace(known, name=name) if name in NAMED else known


def material(run: Run) -> Material:
    """Read what a report of the run says. It raises UserError."""
    is_running = run.is_running
    with run:
        answers = {name: run.rows(name) for name in SHOWN}
        answers |= {name: run.query(name).to_pylist() for name in NAMED}
        row = run.row
        lineages = [*_lineages(run, answers["report.standings"])]
        wanted = [*dict.fromkeys(_wanted(lineages, answers["report.elites"]))]
        kernels = run.kernels(wanted[:MOST_KERNELS])
        return Material(
            str(run.folder), is_running, row, json.loads(row["config_json"]) if row else {}, open_questions(run),
            health(run), summary(run), answers, lineages, kernels, len(wanted) - len(kernels), **pictured(run),
            calls=of_kernels(run, "report.calls", kernels), timings=of_kernels(run, "report.timings", kernels),
        )  # fmt: skip


def _lineages(run: Run, standings: Sequence[Row]) -> Iterator[Descent]:
    champions = [(row["task"], row["kernel_id"]) for row in standings if row["kernel_id"]]
    for place, (task, kernel_id) in enumerate(champions):
        found = run.lineage(kernel_id, task)
        path = principal_chain(found, (task, kernel_id))
        if place < MOST_SIBLINGS:
            siblings = run.rows("report.siblings", **siblings_of(task, path))
            yield Descent(task, kernel_id, path, [vars(each) for each in found], siblings)
        else:
            yield Descent(task, kernel_id, path, (), ())


def siblings_of(task: str, path: Sequence[Ancestor]) -> dict[str, Any]:
    """The parameters of the query for the children of a champion's ancestors; of a first ancestor its own."""
    parents = [each.kernel_id for each in path if each.task == task]
    return {"task": task, "parents": parents[:-1] or parents, "most": SIBLINGS}


def _wanted(lineages: Sequence[Descent], elites: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Champions, then what they come from, the nearest first, then the best of other cells."""
    yield from ((each.task, each.kernel_id) for each in lineages)
    longest = max((len(each.path) for each in lineages), default=0)
    for distance in range(1, longest):
        for each in lineages:
            if distance < len(each.path):
                ancestor = each.path[-1 - distance]
                yield ancestor.task, ancestor.kernel_id
    yield from ((row["task"], row["kernel_id"]) for row in elites)


def of_kernels(run: Run, query: str, kernels: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Row]]:
    """Return what a query tells of kernels, by the task and the id of each."""
    found: dict[tuple[str, str], list[Row]] = {key: [] for key in kernels}
    tasks, ids = {task for task, _ in found}, [kernel_id for _, kernel_id in found]
    for row in run.rows(query, tasks=[*tasks], kernels=ids) if found else ():
        if (key := (row["task"], row["kernel_id"])) in found:
            found[key].append(row)
    return found
