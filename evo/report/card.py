"""The claims card of a run or a comparison: the fields by which lists of systems compare them.

What was evaluated and how, against which rival, whether kernels ship, and for what budget; then hardware and versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from evo.api import Run
from evo.compare.cells import CellState, cell_results, stored
from evo.folders import DATABASE
from evo.report.amounts import listed, usd, versions_in_words
from evo.report.health import limits, spent, state_of, used
from evo.report.status import TaskSummary, model_costs, summary
from fitness.words import counted, ratio
from operators.libraries import UNTRIED

Card = list[tuple[str, str]]
"""Fields and what is said in each, in their order."""
PROTOCOL = (
    "hidden shapes and several families of inputs against an fp64 reference, a bound for each element and one for all; "
    "times in pairs with the rival, interleaved, from cold caches; a best kernel is confirmed in fresh processes on "
    "new inputs by an independent measurement, and only that is claimed"
)
NAMED = 6
"""Tasks that are named; of more the number."""


def run_card(run: Run) -> Card:
    """The card of a run."""
    tasks, host = summary(run), json.loads(run.row["host_json"])
    sure = [task for task in tasks if task.confirmed and not task.flagged]
    return [
        ("Evaluation", f"{counted(len(tasks), 'task')} ({listed([task.task for task in tasks], NAMED)}): {PROTOCOL}"),
        ("Claim vs", _claim(tasks, sure)),
        ("Ships", _ships(run, sure)),
        ("Budget", _budget(run)),
        ("Hardware", _hardware(host)),
        ("Versions", _versions(run.row, host)),
        ("State", " ".join(filter(None, (state_of(run)[0], f"(seed {run.row['seed']})")))),
    ]


def _claim(tasks: Sequence[TaskSummary], sure: Sequence[TaskSummary]) -> str:
    """Speedups that are certain, of confirmed kernels alone."""
    if not sure:
        return "nothing: no best kernel is confirmed (evo resume RUN --confirm)"
    certain = [task.best_speedup for task in sure if task.best_speedup]
    said = f"the naive kernel: {ratio(geometric_mean(certain) if certain else None)}, "
    said += f"confirmed in {len(sure)} of {counted(len(tasks), 'task')}"
    beside = [task for task in sure if task.against_library]
    if beside:
        faster = sum((task.against_library_low or 0.0) > 1 for task in beside)
        libraries = listed([*dict.fromkeys(task.library or "the library" for task in beside)], NAMED)
        mean = geometric_mean([task.against_library for task in beside if task.against_library])
        said += (
            f"; the vendor's fastest call ({libraries}): {ratio(mean)} over {counted(len(beside), 'task')}, "
            f"certainly faster in {faster}"
        )
        if untried := sum(bool(task.untried) for task in beside):
            said += f", {UNTRIED} in {untried}"
    return f"{said}. Geometric means."


def _ships(run: Run, sure: Sequence[TaskSummary]) -> str:
    (row,) = run.rows("card.holds")
    parts = [
        f"{counted(len(sure), 'confirmed kernel')} as source (evo best --package)",
        f"{counted(row['kernels'], 'candidate')} with all verdicts",
    ]
    if row["calls"]:
        parts.append(f"{counted(row['calls'], 'prompt')} with all answers")
    return f"{', '.join(parts)} in one file (evo export)"


def _budget(run: Run) -> str:
    (row,) = run.rows("health.use")
    said, costs = used(spent(row), limits(row)), model_costs(run)
    answered = _models(row["model"] for row in run.rows("card.models"))
    lost = f", {usd(costs.likely_lost_usd)} more likely lost" if costs and costs.likely_lost_usd else ""
    return f"{said}{lost}; {answered}"


def _cores(host: dict[str, Any]) -> str:
    return counted(host["cpus"], "core") if "cpus" in host else "? cores"


def _hardware(host: dict[str, Any]) -> str:
    gpus = host.get("gpus") or []
    shown = [f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)]
    return ", ".join([*shown, f"{_cores(host)} of {host.get('processor') or 'an unknown processor'}"])


def _versions(row: dict[str, Any], host: dict[str, Any]) -> str:
    parts = [f"kernel-evo {row['engine_version']}", f"Python {host.get('python', '?')}", str(host.get("system", "?"))]
    return ", ".join(part for part in (*parts, versions_in_words(host)) if part)


def comparison_card(folder: Path) -> Card:
    """The card of a comparison; its conclusions are for its report. It raises UserError."""
    made, cells = stored(folder).config, cell_results(folder)
    done = [cell for cell in cells if cell.standing is CellState.DONE]
    runs = [Run(place.parent) for place in sorted(folder.glob(f"*/{DATABASE}"))]
    known = [(run.row, json.loads(run.row["host_json"])) for run in runs if run.row]
    (kind, amount), *_ = made.budget.items()
    models = dict.fromkeys(model for arm in made.arms for model in made.models_of(arm))
    tested = ", ".join(made.tested) or "none: it describes, and concludes nothing"
    size = ", ".join((
        f"{counted(len(made.operators), 'operator')} ({listed(made.operators, NAMED)})",
        counted(len(made.seeds), "seed"), f"{len(done)} of {counted(len(cells), 'cell')} done",
    ))  # fmt: skip
    return [
        ("Evaluation", f"{size}: {PROTOCOL}; winners of all arms are judged anew, together"),
        ("Claim vs", f"the arm {made.reference_arm}, with verdicts of: {tested} (registered before it began)"),
        ("Ships", "every cell as a run: kernels, verdicts, prompts (evo export); the report with its data"),
        ("Budget", f"{amount:g} {kind} for each cell, alike in all arms; {_models(models)}"),
        ("Hardware", "; ".join(dict.fromkeys(_hardware(host) for _, host in known)) or "none yet"),
        ("Versions", "; ".join(dict.fromkeys(_versions(row, host) for row, host in known)) or "none yet"),
    ]


def _models(names: Iterable[str]) -> str:
    known = list(names)
    return f"models: {listed(known, NAMED)}" if known else "no language model"
