"""The sessions of a run: when each began, how long it took, what it judged, bettered and paid, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evo.report.words import duration
from evo.store import has_writer, query

SHOWN = 5
"""Sessions that a status names, the latest."""
SQL = """
    with marks as (
        select rowid as place, kind, epoch(created_at) as moment, detail_json->>'reason' as reason
        from events where kind in ('session', 'finished', 'stopped', 'failed')
    ),
    sessions as (
        select place, moment as began, lead(place, 1, 9e18::bigint) over (order by place) as next_place,
            lead(moment, 1, 'infinity'::double) over (order by place) as next
        from marks where kind = 'session'
    ),
    signs as (
        select epoch(created_at) as moment from events
        union all select epoch(created_at) from asks union all select epoch(created_at) from tells
    )
    select
        strftime(to_timestamp(s.began) at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as began,
        -- None is within it where the machine's clock was set back.
        coalesce((select max(moment) from signs where moment >= s.began and moment < s.next) - s.began, 0) as took_s,
        (select arg_max(kind, place) from marks where place > s.place and place < s.next_place) as ended,
        coalesce((
            select arg_max(reason, place) from marks where place > s.place and place < s.next_place
        ), '') as reason,
        (select count(distinct (task, kernel_id)) from evaluations where status <> 'duplicate'
            and epoch(created_at) >= s.began and epoch(created_at) < s.next) as judged,
        (select count(*) from best join evaluations as e using (evaluation_id) where best.log_speedup > 0
            and epoch(e.created_at) >= s.began and epoch(e.created_at) < s.next) as leaders,
        (select coalesce(sum(cost_usd), 0) from llm_calls
            where epoch(created_at) >= s.began and epoch(created_at) < s.next) as cost_usd
    from sessions as s order by s.place
"""


@dataclass(frozen=True)
class Sitting:
    """One session of a run."""

    began: str
    took_s: float
    ended: str | None
    """`finished`, `stopped`, `failed`; None: it goes on, or its process ended without a word."""
    reason: str
    judged: int
    """Kernels."""
    leaders: int
    """Tasks whose best kernel of now got its verdict in this session."""
    cost_usd: float

    @property
    def line(self) -> str:
        """The session in one line."""
        ending = f"{self.ended}: {self.reason}" if self.reason and self.ended != self.reason else self.ended
        paid = f", {self.cost_usd:.4g} USD" if self.cost_usd else ""
        found = f"{self.judged} kernels judged, {self.leaders} of today's leaders{paid}"
        return f"{self.began}, {duration(self.took_s)}: {found}; {ending or 'its process ended without a word'}"


def sessions(folder: Path) -> list[Sitting]:
    """The sessions of the run in `folder`, the oldest first."""
    return [Sitting(**row) for row in query(folder, SQL).to_pylist()]


def session_lines(folder: Path) -> list[str]:
    """The latest sessions that have ended, as lines."""
    found = sessions(folder)
    ended = found[:-1] if found and found[-1].ended is None and has_writer(folder) else found
    return [sitting.line for sitting in ended[-SHOWN:]]
