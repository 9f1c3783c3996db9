"""The mutator that chooses values for a kernel's tunables. Owns optuna."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from mutators.base import Parent, Proposal, Request, Trial
from mutators.space import MAX_LISTED, MAX_SAMPLES, Setting, Space, bad_params, space_of, with_setting
from mutators.surrogate import most_promising
from operators.errors import OperatorError, PlanError
from operators.kernel import Kernel
from operators.plan import parse_plan
from operators.spec import Operator

Known = Mapping[Setting, float | None]
"""What is known of settings: their log speedup, None for failed and running ones."""


class Tune:
    """Proposes the principal parent's file with tunable values that were not tried yet.

    First comes what is likely to be good: the author's default, then what proved best in similar files. After that a
    model of all tunables together (`mutators.surrogate`) says what is worth a trial; failed and running ones count as
    bad. A setting that the plan rules out for one of the workloads is never proposed. Requests of protocols before
    INFORMED go by optuna's TPE alone, with ten random trials and each tunable for itself; where it wants what is ruled
    out, or was tried, the nearest setting that is left takes its place.

    Params: `workload_set` names the workloads that a setting must fit (all of the operator's otherwise), `facts` gives
    the device's facts (`operators.plan.FACTS`), `siblings` the best values of similar files (a list of tables, the
    most similar first), `under_way` the seeds of requests for the same file that are not told yet: what those would
    propose by what is known now is not proposed again. That is what they did propose unless something was told since.
    """

    name = "tune"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Whether there is anything to choose."""
        try:
            plan = parse_plan(kernel.source, operator, kernel.target)
        except PlanError:
            return False
        tables = plan.tune, *plan.tune_by_dtype.values()
        return any(len(values) > 1 for tune in tables for values in tune.values())

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
    tried = set(trials) | ({own} if own else set())
    if len(tried) == space.size:
        return None, f"all {space.size} settings are tried"
    chosen = _informed(request, space, dict.fromkeys(tried) | trials, own)
    if chosen is None:
        return None, _exhausted(space, tried)
    return with_setting(parent, space, chosen)


def _informed(request: Request, space: Space, known: Known, own: Setting | None) -> Setting | None:
    """What to try after all that requests under way will have tried; None where nothing fits that was not tried.

    `own` is the parent's setting, if its file declares it.
    """
    likely = [space.default, *(space.like(values) for values in request.params.get("siblings", ()))]
    likely += [own] if own else []
    chosen: Setting | None = None
    for seed in (*request.params.get("under_way", ()), request.seed):
        if chosen:
            known = {**known, chosen: None}
        chosen = _next(space, known, likely, seed)
        if chosen is None:
            return None
    return chosen


def _next(space: Space, known: Known, likely: Sequence[Setting], seed: int) -> Setting | None:
    """What to try with this knowledge alone."""

    def fits(setting: Setting) -> bool:
        return setting not in known and not space.problem(setting)

    if first := next(filter(fits, likely), None):
        return first
    random = Random(seed)
    centre = max(likely, key=lambda setting: -math.inf if (found := known.get(setting)) is None else found)
    candidates = [setting for setting in space.candidates(centre, random) if setting not in known]
    random.shuffle(candidates)
    return next(filter(fits, most_promising(known, candidates)), None)


def _untried(wanted: Setting, tried: set[Setting], space: Space, seed: int) -> Setting | None:
    """The wanted setting, or the nearest one that fits and was not tried."""
    if wanted in tried or space.problem(wanted):
        return space.nearest(wanted, tried | {wanted}, Random(seed))
    return wanted


def _exhausted(space: Space, tried: set[Setting]) -> str:
    if space.size > MAX_LISTED:
        return f"no setting that fits was found among {MAX_SAMPLES} samples; {len(tried)} of {space.size} are tried"
    why = next((w for s in product(*map(range, space.sizes)) if s not in tried and (w := space.problem(s))), "")
    left = space.size - len(tried)
    return f"{len(tried)} settings are tried, none of the other {left} fits every workload: {why}"


def _trials(request: Request, parent: Parent, space: Space) -> dict[Setting, float | None]:
    """What is known, oldest first: the request's trials, and the parent's own evaluation."""
    known = list(request.trials)
    if parent.evaluation:
        known.append(Trial(parent.kernel.values, parent.evaluation.estimate))
    found: dict[Setting, float | None] = {}
    for trial in known:
        setting = space.setting(trial.values)
        if setting is not None and found.get(setting) is None:
            found[setting] = trial.log_speedup
    return found


def _suggest(trials: Known, space: Space, seed: int) -> Setting:
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
    for setting, log_speedup in trials.items():
        params = {name: at for name, at in zip(space.names, setting, strict=True) if name in axes}
        state = TrialState.PRUNED if log_speedup is None else TrialState.COMPLETE
        made.append(create_trial(state=state, value=log_speedup, params=params, distributions=axes))
    # A study of its own for each request: the same request must make the same child, whatever was asked before.
    study.add_trials(made)
    asked = study.ask(axes).params
    return tuple(int(asked.get(name, 0)) for name in space.names)
