"""News of a run: the rows of its store since the last look, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evo.api import Row, Run
from evo.report.health import State, settings, state_of
from evo.report.output import Scrubber
from evo.report.status import summary
from evo.store import StoreError

STREAMS = ("track.points", "track.requests", "track.calls", "track.verdicts", "track.events")
"""Queries whose rows are taken once each."""
MOST_ROWS = 1000
"""Rows of a stream in one look."""
BESTS = "bests"
FIGURES = ("best_speedup", "leader_speedup", "evaluations", "calls", "tokens", "cost_usd", "evaluator_s")
"""Columns of a point that are figures of its task over time."""
CONFIRMED = (
    "speedup", "speedup_low", "speedup_high", "best_us", "baseline_us", "library_us", "against_library",
    "against_library_low", "against_library_high",
)  # fmt: skip
"""Columns of a confirmed best kernel that are figures of its task, told whenever it is another one."""
Seen = dict[str, Any]
"""By stream the place of the last row that was taken, and by task the best kernel."""


@dataclass(frozen=True)
class NewsPoint:
    """Figures of one task at one moment."""

    seq: int
    """Steps of the whole run until then, which only grow."""
    at_s: float
    """Seconds since 1970."""
    task: str
    figures: Mapping[str, float]


@dataclass(frozen=True)
class News:
    """Everything that is new."""

    run: Run
    about: Row
    """The row of the table `runs`."""
    state: State
    reason: str
    rows: Mapping[str, list[Row]]
    """By stream, without `track.`."""
    bests: list[Row]
    """Confirmed best kernels that are other ones than before."""
    is_all: bool
    """Whether the store holds no more now."""
    is_over: bool
    """Whether it is the last look: the session has ended, and this is the rest."""

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.about["run_id"])

    @property
    def settings(self) -> dict[str, Any]:
        """The run's settings and what it ran on, flat: `budget.wall_s`."""
        known = {"seed": self.about["seed"], "version": self.about["engine_version"]}
        return dict(_flat("", {**settings(self.about["config_json"]), **known})) | dict(
            _flat("host.", settings(self.about["host_json"]))
        )

    @property
    def points(self) -> list[NewsPoint]:
        """Figures over time, in the order of their steps."""
        found = [_point(row, FIGURES, "") for row in self.rows["points"]]
        return found + [_point(row, CONFIRMED, "confirmed_") for row in self.bests]


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in _flat(f"{prefix}{key}.", item)]
    return [(prefix.removesuffix("."), value)]


def _point(row: Row, names: tuple[str, ...], prefix: str) -> NewsPoint:
    figures = {f"{prefix}{name}": float(row[name]) for name in names if row[name] is not None}
    return NewsPoint(int(row["place"]), row["created_at"].timestamp(), row["task"], figures)


def look(folder: Path, seen: Seen, *, has_ended: bool) -> tuple[News, Seen]:
    """Return the news, without secrets, and what was seen with them; `has_ended`: the session had, before.

    It raises StoreError, also for a run whose store another process is about to make.
    """
    run, scrub = Run(folder), Scrubber().secrets
    state, reason = state_of(run)

    def told(query: str, **bound: Any) -> list[Row]:
        found = run.rows(query, **bound)
        return [{name: scrub(v) if isinstance(v, str) else v for name, v in row.items()} for row in found]

    with run:
        abouts = told("runs.run")
        rows = {
            stream.partition(".")[2]: told(stream, since=seen.get(stream, -1), most=MOST_ROWS) for stream in STREAMS
        }
        bests = run.rows("track.bests")
    if not abouts:
        raise StoreError(f"{folder}: it has not begun yet")
    known: Mapping[str, str] = seen.get(BESTS, {})
    places = {
        stream: found[-1]["place"] if (found := rows[stream.partition(".")[2]]) else seen.get(stream, -1)
        for stream in STREAMS
    }
    is_all = all(len(found) < MOST_ROWS for found in rows.values())
    # Their step is the last one there is: figures of earlier steps come first.
    fresh = [row for row in bests if is_all and known.get(row["task"]) != row["kernel_id"]]
    news = News(run, abouts[0], state, scrub(reason), rows, fresh, is_all, has_ended and is_all)
    return news, {**places, BESTS: {**known, **{row["task"]: row["kernel_id"] for row in fresh}}}


def artifacts(news: News) -> dict[str, str]:
    """Texts that a run leaves, by the name of a file: its report, its verdicts, what it may claim, its best kernels."""
    from evo.report.card import run_card
    from evo.report.output import as_json
    from evo.report.run import report_page

    run, scrub = news.run, Scrubber().secrets
    found = {"report.html": report_page(run.folder), "verdicts.json": as_json([asdict(t) for t in summary(run)])}
    found["card.json"] = as_json(dict(run_card(run)))
    for kernel in run.best():
        found[f"kernels/{kernel.task}.{'cu' if kernel.target == 'cuda' else 'cpp'}"] = kernel.text
    return {name: scrub(text) for name, text in found.items()}
