"""What the report of a run says in sentences: what it is about, what to know first, and what needs a person."""

from __future__ import annotations

import json
from collections.abc import Iterator

from evo.report import run_sql as sql
from evo.report.document import quoted
from evo.report.run_data import Material

NAMED = 8
"""Tasks that a sentence names."""
OUTAGES = ("model_out", "worker_lost")


def told(seen: Material) -> str:
    """One sentence about the run."""
    rows = seen.rows(sql.STANDINGS)
    right, sure = len(seen.champions), sum(row["level"] == "confirmed" for row in rows)
    kernels = sum(row["kernels"] or 0 for row in rows)
    return (
        f"{kernels:,} kernels of {len(rows)} tasks were judged by strategy {seen.config.get('strategy', '?')}; {right} "
        f"tasks have a correct one, and {sure} of these a best one that is confirmed."
    )


def notices(seen: Material) -> Iterator[str]:
    """What must be known before a number is read."""
    if seen.is_running:
        yield "The search goes on: this is how it stood when the report was made, which is not its result."
    if not seen.row:
        yield "The run was stopped before it began."
    elif not seen.champions:
        yield "No kernel is correct: there is no result."
    if flagged := [f"{row['task']}, which {row['flagged']}" for row in seen.champions if row["flagged"]]:
        yield f"Flagged, which is allowed and wants a look at the code, are the leaders of {_named(flagged)}."
    if open_ := _unconfirmed(seen):
        yield (
            f"Unconfirmed are the leaders of {len(open_)} tasks ({_named(open_)}): until a confirmation in fresh "
            "processes a kernel may be lucky, or wrong."
        )
    if not seen.is_running and (ending := [*seen.rows(sql.ENDINGS)][-1:]) and ending[0]["kind"] != "finished":
        reason = json.loads(ending[0]["detail_json"]).get("reason", "")
        why = f" ({ending[0]['kind']}: {reason})" if ending[0]["kind"] == "failed" else ""
        yield f"The search did not end by itself{why}; it goes on with: evo resume {quoted(seen.run)}"


def attention(seen: Material) -> Iterator[str]:
    """What somebody should look at, each with the command that helps."""
    for row in seen.rows(sql.FAULTS):
        yield f"Operator at fault: {row['task']} could not go on: {json.loads(row['detail_json']).get('reason', '?')}"
    if held := seen.rows(sql.QUARANTINED):
        yield f"{len(held)} kernels are in quarantine; look at them below before anything of their kind is believed."
    if open_ := _unconfirmed(seen):
        again = f"confirm with: evo resume {quoted(seen.run)} --confirm"
        yield f"Unconfirmed leaders: {_named(open_)}; {again}"
    if seen.questions:
        yield f"{seen.questions} questions wait for answers from outside: evo ask {quoted(seen.run)}"
    for row in seen.rows(sql.EVENTS):
        if row["kind"] in OUTAGES:
            yield f"{row['kind'].replace('_', ' ')}, {row['times']} times, at last: {row['latest']}"


def _unconfirmed(seen: Material) -> list[str]:
    return [row["task"] for row in seen.champions if row["level"] != "confirmed"]


def _named(tasks: list[str]) -> str:
    more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
    return ", ".join(tasks[:NAMED]) + more
