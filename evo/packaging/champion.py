"""Promotion of a run's kernels to champions of their operators: only if confirmed, and faster beyond doubt."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from evo.api import Ancestor, Run, StoredKernel, Verdict
from evo.charts.roofline import placed, stored_peaks
from evo.compatibility import ACCELERATOR, KERNEL_FILES
from evo.session import DEFINITIONS
from fitness.evaluation import Z95, Level, Status, interval95
from fitness.install import evo_command
from fitness.judging.timing import LogRatio, mean
from fitness.words import speedup
from operators.catalog import load_among
from operators.champions import Around, Champion, champions, standing, write_champion
from operators.definition.fingerprint import fingerprint
from operators.definition.spec import CHAMPIONS, Operator, Task, sets_of
from operators.errors import PlanError, UserError
from operators.identity import short
from operators.kernel import Kernel
from operators.libraries import called
from operators.plan.reading import parse_plan

NO_NAME = re.compile(
    r"\(.*?\)|\b(?:NVIDIA|GeForce|Tesla|Quadro|Intel|AMD|Processor|CPU|SXM\d*|HBM\w*|\d+[GT]i?B|\d+-Core)\b|@.*",
    re.IGNORECASE,
)
"""The parts of a device's name that its kernels do not depend on."""

MOST_SLOWER = 0.02
"""Log ratio by which a champion may be slower than what it replaces, and than the naive kernel, on a workload."""


@dataclass(frozen=True)
class Choice:
    """Decision on one task's champion."""

    task: str
    kernel: str
    """The id of the run's best confirmed kernel; empty where there is none."""
    words: str
    """Why the champion stays, or what the new one is better by."""
    record: Champion | None = None
    """The new champion's; None: the old one stays."""
    source: str = ""
    """Its file."""

    @property
    def line(self) -> str:
        """The decision in one line."""
        return f"{self.task}: {f'{CHAMPIONS}/{self.record.file}' if self.record else 'kept'}: {self.words}"


class _Stays(Exception):
    """The champion stays; why, in words."""


def choices(run: Run, tasks: Sequence[str] = (), *, today: date | None = None) -> list[Choice]:
    """Return, for each of a run's tasks that begins with one of `tasks`, what is to become of its champion.

    It raises UserError for a beginning that no task has, and for an operator that is not there.
    """
    with Run(run.folder) as held:  # one state of it, which may be changing
        known = held.tasks
        for wanted in tasks:
            if not any(task.startswith(wanted) for task in known):
                raise UserError(f"run {run.id} has no task {wanted}...; it has {', '.join(known) or 'none yet'}")
        judge = _Judge(held, today or date.today()) if known else None
        chosen = [task for task in known if not tasks or task.startswith(tuple(tasks))]
        return [judge.choice(Task.parse(task)) for task in chosen] if judge else []


def take(run: Run, chosen: Sequence[Choice]) -> list[Choice]:
    """Write the new champions into their operators' folders; return the choices with their records as written.

    It raises UserError where they cannot be written.
    """
    places = run.config["operators"]
    taken = []
    for choice in chosen:
        if choice.record is None:
            taken.append(choice)
            continue
        task = Task.parse(choice.task)
        operator = load_among(task.operator, places)
        place = choice.record.stem.removesuffix(f"-{task.dtype}")
        try:
            taken.append(replace(choice, record=write_champion(operator, place, choice.record, choice.source)))
        except OSError as error:
            raise UserError(
                f"{operator.folder / CHAMPIONS}: cannot be written: {error.strerror}; champions are kept with their "
                "operators: work in a checkout, or search in a copy of the operator's folder"
            ) from None
    return taken


def place_of(device: str) -> str:
    """Return what files of champions for a device are called by, such as `h200` for an NVIDIA H200."""
    words = re.findall(r"[a-z0-9]+", NO_NAME.sub(" ", device.removeprefix(ACCELERATOR)).lower())
    return "-".join(words) or "any"


class _Judge:
    """Looks at the tasks of one run."""

    def __init__(self, run: Run, today: date) -> None:
        row, found = run.row, run.rows("runs.event", kind=DEFINITIONS)
        self.run = run
        self.config = run.config
        self.today = today
        self.engine = str(row["engine_version"])
        self.host: Mapping[str, Any] = json.loads(row["host_json"])
        self.definitions: Mapping[str, Mapping[str, str]] = json.loads(found[0]["detail_json"]) if found else {}

    def choice(self, task: Task) -> Choice:
        found = self.run.rows("kernels.confirmed", task=str(task))
        kernel = str(found[0]["kernel_id"]) if found else ""
        try:
            if not kernel:
                raise _Stays(f"no kernel of the run is confirmed: {evo_command('resume', self.run.folder)} --confirm")
            return self._replacing(task, self.run.kernel(kernel, str(task)))
        except _Stays as stays:
            return Choice(str(task), kernel, str(stays))

    def _replacing(self, task: Task, best: StoredKernel) -> Choice:
        operator, device = load_among(task.operator, self.config["operators"]), self._device(task)
        self._check_definition(operator, task)
        verdict, lineage = best.verdict, self.run.lineage(best.id, str(task), principal=True)
        if verdict is None or (verdict.status, verdict.level) != (Status.CORRECT, Level.CONFIRMED):
            raise _Stays("its best kernel is not confirmed any more")
        if best.origin and best.origin.mutator == "ancestor":
            raise _Stays(
                f"the best is {best.origin.description.removesuffix(' as it stands')}, which the run began with"
            )
        if (verdict.speedup_low or 0.0) <= 1.0:
            raise _Stays(f"the best is not faster than the naive kernel beyond doubt: {_said(_ratio(verdict))}")
        beside = self._beside_naive(operator, task, best.id)
        self._check_nowhere_slower(beside, dict.fromkeys(beside, LogRatio(0.0, 0.0)), "the naive kernel")
        place, source = place_of(device), self._frozen(operator, task, best)
        suffix = operator.ancestor("naive", task.target).suffix
        record = Champion(
            file=f"{place}-{task.dtype}{suffix}", dtype=task.dtype, device=device,
            author=_author(operator, lineage), added=self.today, level="confirmed", flagged=verdict.flagged or "",
            workloads=self.config["workload_set"], status=verdict.status,
            of_roofline=self._of_roofline(task, verdict), run=self.run.id, kernel=best.id, values=best.values,
            lineage=tuple(_steps(lineage)), engine=self.engine,
            versions=self.host.get("versions", {}), over_naive_by_size=_by_size(beside), **_measured(verdict),
        )  # fmt: skip
        current = standing(operator, place, task.target, task.dtype)
        if current is None:
            return Choice(
                str(task), best.id, f"{_said(_ratio(verdict))} over naive; the first one for {device}", record, source
            )
        compared, words = self._compared(operator, task, best, current)
        words = f"{words}; {_said(_ratio(verdict))} over naive"
        wrote = f"{current.file}, {current.author}" + (f", run {current.run}" if current.run else "")
        return Choice(str(task), best.id, words, record.model_copy(update={"previous": wrote, **compared}), source)

    def _device(self, task: Task) -> str:
        gpus = self.host.get("gpus") or []
        device = str(gpus[0] if gpus and task.target == "cuda" else self.host.get("processor") or "")
        if not device or (task.target == "cuda" and not gpus):
            raise _Stays("the run does not say which device it was measured on")
        return device

    def _check_definition(self, operator: Operator, task: Task) -> None:
        then = {k: v for k, v in self.definitions.get(operator.name, {}).items() if k != KERNEL_FILES}
        if not then:
            raise _Stays("the run does not say by which definition of the operator it judged")
        now = fingerprint(operator, target=task.target, workload_set=self.config["workload_set"])
        if changed := sorted(name for name in then if then[name] != now.get(name)):
            raise _Stays(f"the operator is another one by now: {', '.join(changed)}")

    def _frozen(self, operator: Operator, task: Task, best: StoredKernel) -> str:
        """The file whose defaults are the values that won."""
        try:
            won = parse_plan(best.source, operator, task.target, name="its file").for_dtype(task.dtype)
            frozen = parse_plan(best.text, operator, task.target, name="its file").for_dtype(task.dtype)
            if won.settings(best.values) != frozen.settings({}):
                raise _Stays("the values of its tunables cannot be written into its file as defaults")
        except PlanError as error:
            raise _Stays(f"its plan cannot be read by now: {error}") from None
        return best.text

    def _compared(
        self, operator: Operator, task: Task, best: StoredKernel, current: Champion
    ) -> tuple[dict[str, Any], str]:
        """The comparison that the record holds with the champion whose place is taken, and in words; or that one
        stays."""
        if (current.run, current.kernel) == (self.run.id, best.id):
            raise _Stays(f"{current.file} is the run's own best kernel already")
        if missing := set(sets_of(current.workloads)) - set(sets_of(self.config["workload_set"])):
            raise _Stays(
                f"{current.file} is for the workloads `{'+'.join(sorted(missing))}`, which this run did not time"
            )
        path = operator.folder / CHAMPIONS / current.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        standing_id = Kernel(operator.name, task.target, text).id
        if not any(row["task"] == str(task) for row in self.run.rows("kernels.born", kernels=[standing_id])):
            begun = self.config.get("ancestor_files", {}).get(str(task), ())
            raise _Stays(
                f"{current.file}, an ancestor, was not judged in its time: {evo_command('resume', self.run.folder)} "
                "--budget MORE"
                if f"{CHAMPIONS}/{current.stem}" in begun
                else f'{current.file} as it stands is no kernel of the run: start one from it (ancestors = "all")'
            )
        old = self.run.kernel(standing_id, str(task)).verdict
        if old is None or old.log_speedup is None:
            status = old.status if old else "not judged"
            if status == Status.WRONG:
                return {}, f"{current.file} is wrong in this run"
            raise _Stays(f"{current.file} has no time in this run: it is {status} there")
        assert best.verdict
        gain = _over(_ratio(best.verdict), _ratio(old))
        if gain.value - Z95 * gain.se <= 0.0:
            raise _Stays(f"the best is {_said(gain)} of {current.file} ({old.level}), which is not faster beyond doubt")
        ours, theirs = (self._beside_naive(operator, task, kernel) for kernel in (best.id, standing_id))
        if missing := ours.keys() - theirs.keys():
            raise _Stays(
                f"{current.file} was not timed at {len(missing)} of its {len(ours)} sizes in this run: "
                f"{evo_command('resume', self.run.folder)} --confirm"
            )
        self._check_nowhere_slower(ours, theirs, current.file)
        found = {"over_previous": _rounded(gain.value), "over_previous_interval": _interval(gain)}
        return found, f"{_said(gain)} of {current.file} ({old.level})"

    def _beside_naive(self, operator: Operator, task: Task, kernel: str) -> dict[str, LogRatio]:
        """Ratios of a kernel to the naive one, by workload; empty where they were not paired."""
        naive = Kernel(operator.name, task.target, operator.naive(task.target)).id
        rows = self.run.rows("kernels.beside", task=str(task), kernel=kernel, anchor=naive)
        return {row["workload"]: LogRatio(row["log_ratio"], row["log_ratio_se"]) for row in rows}

    def _check_nowhere_slower(self, best: Mapping[str, LogRatio], other: Mapping[str, LogRatio], name: str) -> None:
        """Let the champion stay where the best is slower than another kernel on a workload, by more than MOST_SLOWER
        beyond doubt; both are told by how they fared beside the naive kernel."""
        gains = {workload: _over(mine, other[workload]) for workload, mine in best.items() if workload in other}
        slower = {w: gain for w, gain in gains.items() if gain.value + Z95 * gain.se < -MOST_SLOWER}
        if slower:
            worst = min(slower, key=lambda workload: slower[workload].value)
            raise _Stays(
                f"the best is {_said(slower[worst])} of {name} on {worst}, and slower on {len(slower)} of {len(gains)} "
                f"workloads; search on for a route: {evo_command('resume', self.run.folder)} --budget MORE"
            )

    def _of_roofline(self, task: Task, verdict: Verdict) -> float | None:
        """The share of what the roofline allows, a geometric mean over workloads; None where peaks are not known."""
        rows = [
            {"task": str(task), "workload": each.workload, "latency_us": each.latency_us,
             "anchor_latency_us": each.anchor_latency_us, "beside_naive": True}
            for each in verdict.timings
        ]  # fmt: skip
        found = placed(str(task), rows, self.config["operators"], stored_peaks(self.config))
        shares = [row["efficiency"] for row in found]
        return _rounded(sum(map(math.log, shares)) / len(shares)) if shares and all(shares) else None


def _author(operator: Operator, lineage: Sequence[Ancestor]) -> str:
    """Who and what made it: models, people and mutators in the order of their first step, and what they began with."""
    made = Counter(each.model or each.author or each.mutator for each in lineage if each.mutator != "ancestor")
    begun = [each.description.removesuffix(" as it stands") for each in lineage if each.mutator == "ancestor"]
    known = {f"{CHAMPIONS}/{each.file}": each.author for each in champions(operator.folder)}
    origin = "".join(f", from {file}" + (f" ({known[file]})" if file in known else "") for file in begun[:1])
    return ", ".join(f"{maker} x{count}" if count > 1 else maker for maker, count in made.items()) + origin


def _steps(lineage: Sequence[Ancestor]) -> Iterator[str]:
    for each in lineage:
        by = " by ".join(filter(None, (each.mutator, each.model, each.author)))
        yield f"{short(each.kernel_id)} {by}" + (
            f": {' '.join(each.description.split())[:120]}" if each.description else ""
        )


def _measured(verdict: Verdict) -> dict[str, Any]:
    """Speedups of a confirmed kernel, as its record has them."""
    found: dict[str, Any] = {
        "over_naive": _rounded(_ratio(verdict).value),
        "over_naive_interval": _interval(_ratio(verdict)),
    }
    if verdict.library_timings:
        library = mean([LogRatio(each.log_ratio, each.log_ratio_se) for each in verdict.library_timings])
        calls = dict.fromkeys(called(t.library, t.kind) for t in verdict.library_timings if t.library)
        found |= {
            "over_library": _rounded(library.value),
            "over_library_interval": _interval(library),
            "over_library_by_size": _by_size(
                {each.workload: LogRatio(each.log_ratio, each.log_ratio_se) for each in verdict.library_timings}
            ),
            "library": tuple(calls),
            "untried": tuple(dict.fromkeys(each.untried for each in verdict.library_timings if each.untried)),
        }
    return found


def _ratio(verdict: Verdict) -> LogRatio:
    assert verdict.log_speedup is not None
    return LogRatio(verdict.log_speedup, verdict.log_speedup_se or 0.0)


def _over(ratio: LogRatio, other: LogRatio) -> LogRatio:
    """The ratio of two kernels that were compared with the same one."""
    return LogRatio(ratio.value - other.value, math.hypot(ratio.se, other.se))


def _by_size(ratios: Mapping[str, LogRatio]) -> dict[str, Around]:
    return {workload: (_rounded(ratio.value), *_interval(ratio)) for workload, ratio in ratios.items()}


def _interval(ratio: LogRatio) -> tuple[float, float]:
    low, high = (_rounded(ratio.value + sign * Z95 * ratio.se) for sign in (-1, 1))
    return low, high


def _rounded(log: float) -> float:
    """The factor, to four digits."""
    return float(f"{math.exp(log):.4g}")


def _said(ratio: LogRatio) -> str:
    return speedup(*interval95(ratio.value, ratio.se))
