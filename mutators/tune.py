"""The mutator that chooses values for a kernel's tunables. Owns optuna."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from random import Random
from typing import Any

from mutators.base import Parent, Proposal, Request, Trial
from operators.dtypes import ACCUMULATOR
from operators.errors import OperatorError, PlanError
from operators.kernel import Kernel
from operators.plan import Plan, parse_plan
from operators.spec import Operator, Workload

FACTS: Mapping[str, Mapping[str, int]] = {
    "cpu": {"cpu_count": 8, "l2_bytes": 2**20},
    "cuda": {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 * 2**20},
}
"""What plans are checked against where the request's params bring no `facts`: a desktop processor, an H100."""

MAX_LISTED = 2048
"""Spaces up to this size are searched exhaustively for what is left; larger ones are sampled."""
MAX_SAMPLES = 200
"""Settings looked at in a larger space before giving up."""

Setting = tuple[int, ...]
"""Positions in the sorted values of each tunable, in the plan's order."""


class Tune:
    """Proposes the principal parent's file with tunable values that were not tried yet.

    TPE (optuna) learns from the request's trials; failed and running ones count as bad. A setting that the plan rules
    out for one of the workloads is never proposed: where TPE wants one, or one that was tried, the nearest setting
    that is left takes its place.

    Params: `workload_set` names the workloads that a setting must fit (all of the operator's otherwise), `facts` gives
    the device's facts (`operators.plan.FACTS`).
    """

    name = "tune"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Whether there is anything to choose."""
        try:
            plan = parse_plan(kernel.source, operator, kernel.target)
        except PlanError:
            return False
        return math.prod(len(values) for values in plan.tune.values()) > 1

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """The first parent's file with other values. A failure says why there are none."""
        started = time.perf_counter()
        try:
            kernel, text = _child(request, parents, operator)
        except (PlanError, OperatorError) as error:
            kernel, text = None, f"the parent cannot be tuned: {error}"
        seconds = time.perf_counter() - started
        if kernel is None:
            return Proposal(None, "tune", text, seconds=seconds)
        return Proposal(kernel, text, seconds=seconds)


@dataclass(frozen=True)
class Space:
    """The settings of one file, and what rules them out."""

    plan: Plan
    operator: Operator
    dtype: str
    workloads: tuple[Workload, ...]
    facts: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The tunables, in the plan's order."""
        return tuple(self.plan.tune)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each tunable has."""
        return tuple(len(values) for values in self.plan.tune.values())

    @property
    def size(self) -> int:
        """How many settings there are, those that the plan rules out included."""
        return math.prod(self.sizes)

    def values(self, setting: Setting) -> dict[str, int]:
        """The value of each tunable in a setting."""
        return {name: sorted(self.plan.tune[name])[at] for name, at in zip(self.names, setting, strict=True)}

    def setting(self, values: Mapping[str, int]) -> Setting | None:
        """The setting that has these values; None for values that the plan does not declare."""
        try:
            known = self.plan.settings(values)
        except PlanError:
            return None
        return tuple(sorted(self.plan.tune[name]).index(known[name]) for name in self.names)

    def problem(self, setting: Setting) -> str:
        """Why the plan rules the setting out on some workload; empty if it does not."""
        values = self.values(setting)
        # How many blocks fit a multiprocessor is known on the device alone; one is the least that any grid relies on.
        occupancy = {launch.kernel: 1 for launch in self.plan.launches}
        for workload in self.workloads:
            dims = self.operator.environment(workload.dims) | dict.fromkeys(self.operator.data_dims, 1)
            try:
                if not self.plan.supports(self.operator, dims, values, self.facts, self.dtype):
                    return f"`requires` excludes {workload.name}"
                self.plan.resolve(
                    self.operator, dtype=self.dtype, dims=dims, values=values, facts=self.facts, occupancy=occupancy
                )
            except PlanError as error:
                return str(error)
        return ""

    def nearest(self, wanted: Setting, tried: set[Setting], random: Random) -> Setting | None:
        """The feasible setting nearest to `wanted` (in steps between neighbouring values) that was not tried."""
        left = [s for s in self._candidates(wanted, random) if s not in tried]
        random.shuffle(left)
        left.sort(key=lambda setting: sum(abs(a - b) for a, b in zip(setting, wanted, strict=True)))
        return next((setting for setting in left if not self.problem(setting)), None)

    def _candidates(self, wanted: Setting, random: Random) -> Iterable[Setting]:
        """Every setting of a small space; of a large one the neighbours of `wanted` and a sample."""
        if self.size <= MAX_LISTED:
            return product(*map(range, self.sizes))
        return dict.fromkeys((*self._neighbours(wanted), *islice(self.drawn(random), MAX_SAMPLES)))

    def _neighbours(self, wanted: Setting) -> Iterator[Setting]:
        for axis, size in enumerate(self.sizes):
            for at in range(size):
                yield (*wanted[:axis], at, *wanted[axis + 1 :])

    def drawn(self, random: Random) -> Iterator[Setting]:
        """Random settings, endlessly."""
        while True:
            yield tuple(random.randrange(size) for size in self.sizes)


def _child(request: Request, parents: tuple[Parent, ...], operator: Operator) -> tuple[Kernel | None, str]:
    """The child and what was set, or None and why there is none."""
    if not parents:
        return None, "tune needs a parent"
    parent = parents[0].kernel
    problem = bad_params(request, parent)
    if problem:
        return None, problem
    space = space_of(parent, request, operator)
    if space.size <= 1:
        return None, "the plan declares no tunable with more than one value"
    trials = _trials(request, parents[0], space)
    own = space.setting(parent.values)
    tried = {setting for setting, _ in trials} | ({own} if own else set())
    if len(tried) == space.size:
        return None, f"all {space.size} settings are tried"
    suggestion = _suggest(trials, space, request.seed)
    random = Random(request.seed)
    chosen: Setting | None = suggestion
    if suggestion in tried or space.problem(suggestion):
        chosen = space.nearest(suggestion, tried | {suggestion}, random)
    if chosen is None:
        return None, _exhausted(space, tried, suggestion)
    return with_setting(parent, space, chosen)


def space_of(kernel: Kernel, request: Request, operator: Operator) -> Space:
    """What can be chosen in a kernel's file, on the workloads and device of the request's params. Raises PlanError."""
    plan = parse_plan(kernel.source, operator, kernel.target)
    wanted = request.params.get("workload_set")
    workloads = operator.workload_set(wanted) if wanted else operator.workloads
    facts = dict(request.params.get("facts") or FACTS[kernel.target])
    return Space(plan, operator, request.task.dtype, workloads, facts)


def with_setting(kernel: Kernel, space: Space, setting: Setting) -> tuple[Kernel, str]:
    """The kernel with this setting, and what was set."""
    defaults = space.plan.settings({})
    values = space.values(setting)
    text = "set " + ", ".join(f"{name} = {value}" for name, value in values.items())
    return kernel.with_values({n: v for n, v in values.items() if v != defaults[n]}), text


def bad_params(request: Request, parent: Kernel) -> str:
    """What is wrong with the request's params for `space_of`; empty if nothing is."""
    facts = request.params.get("facts")
    if parent.target not in FACTS:
        return f"no such target {parent.target!r}"
    if request.task.dtype not in ACCUMULATOR:
        return f"no such dtype {request.task.dtype!r}"
    if not isinstance(request.params.get("workload_set"), str | None):
        return f"workload_set must be a name, not {request.params['workload_set']!r}"
    if facts is not None and not (isinstance(facts, Mapping) and all(type(v) is int for v in facts.values())):
        return "facts must be a table of integers"
    return ""


def _exhausted(space: Space, tried: set[Setting], suggestion: Setting) -> str:
    if space.size > MAX_LISTED:
        return f"no setting that fits was found among {MAX_SAMPLES} samples; {len(tried)} of {space.size} are tried"
    why = next((w for s in product(*map(range, space.sizes)) if s not in tried and (w := space.problem(s))), "")
    left = space.size - len(tried)
    return f"{len(tried)} settings are tried, none of the other {left} fits every workload: {why}"


def _trials(request: Request, parent: Parent, space: Space) -> list[tuple[Setting, float | None]]:
    """What is known, oldest first: the request's trials, and the parent's own evaluation."""
    known = list(request.trials)
    if parent.evaluation:
        known.append(Trial(parent.kernel.values, parent.evaluation.estimate))
    found: dict[Setting, float | None] = {}
    for trial in known:
        setting = space.setting(trial.values)
        if setting is not None and found.get(setting) is None:
            found[setting] = trial.log_speedup
    return list(found.items())


def drawn(space: Space, random: Random) -> Setting | None:
    """A random setting of those that the plan does not rule out; None where MAX_SAMPLES draws found none."""
    return next((s for s in islice(space.drawn(random), MAX_SAMPLES) if not space.problem(s)), None)


def _suggest(trials: list[tuple[Setting, float | None]], space: Space, seed: int) -> Setting:
    """What TPE would try next. Failed and running trials are pruned ones to it, which rank below all others."""
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes: dict[str, Any] = {
        name: optuna.distributions.IntDistribution(0, size - 1)
        for name, size in zip(space.names, space.sizes, strict=True)
        if size > 1
    }
    sampler = optuna.samplers.TPESampler(seed=seed % 2**32)  # numpy takes no larger seeds
    study = optuna.create_study(direction="maximize", sampler=sampler)
    made = []
    for setting, log_speedup in trials:
        params = {name: at for name, at in zip(space.names, setting, strict=True) if name in axes}
        state = TrialState.PRUNED if log_speedup is None else TrialState.COMPLETE
        made.append(create_trial(state=state, value=log_speedup, params=params, distributions=axes))
    # A study of its own for each request: the same request must make the same child, whatever was asked before.
    study.add_trials(made)
    asked = study.ask(axes).params
    return tuple(int(asked.get(name, 0)) for name in space.names)
