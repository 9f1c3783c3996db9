"""The mutator that chooses values for a kernel's tunables, by a study of Optuna's."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random

from mutators.base import Parent, Proposal, Request, Trial, worked
from mutators.tuning.space import MAX_LISTED, MAX_SAMPLES, Setting, Space, bad_params, space_of, with_setting
from operators.definition.spec import Operator
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan

Known = Mapping[Setting, float | None]
"""Known settings: their log speedup, None for failed and running ones."""


class Tune:
    """Proposes the principal parent's file with tunable values that were not tried yet.

    A study of Optuna's is rebuilt for each request from what the request knows, so that the same request makes the
    same child, whatever was asked before. First come the trials that are enqueued as likely to be good: the author's
    default, then what proved best in similar files. After that the sampler says what is worth a trial. A setting that
    the plan rules out for one of the workloads is never proposed.

    Params: `workload_set` names the workloads that a setting must fit (all of the operator's otherwise), `facts` gives
    the device's facts (`operators.plan.reading.FACTS`), `siblings` the best values of similar files (a list of tables,
    the most similar first), `under_way` the seeds of requests for the same file that are not told yet: what those would
    propose by what is known now is not proposed again. That is what they did propose unless something was told since.
    """

    name = "tune"

    def __init__(self, sampler: str = "surrogate") -> None:
        """`sampler` is one of `mutators.tuning.samplers.SAMPLERS`; `tests.bench.tuning` says why it is this one."""
        self._sampler = sampler

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
        made = lambda: _child(request, parents, operator, self._sampler)  # noqa: E731
        return worked(self.name, made, refused="the parent cannot be tuned")


def _child(
    request: Request, parents: tuple[Parent, ...], operator: Operator, sampler: str
) -> tuple[Kernel | None, str]:
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
    known = _known(request, parents[0], space)
    if len(known) == space.size:
        return None, f"all {space.size} settings are tried"
    chosen = _chosen(request, space, known, sampler)
    if chosen is None:
        return None, _exhausted(space, set(known))
    return with_setting(parent, space, chosen)


def _chosen(request: Request, space: Space, known: Known, sampler: str) -> Setting | None:
    """The setting that the study says to try after all that requests under way will have tried; None where nothing is
    left."""
    from optuna import create_study  # slow to import: only who tunes needs it
    from optuna.trial import TrialState

    from mutators.tuning.samplers import SAMPLERS, distributions, positions, setting_of, trial_of

    study = create_study(direction="maximize")
    for setting, log_speedup in known.items():
        state = TrialState.FAIL if log_speedup is None else TrialState.COMPLETE
        study.add_trial(trial_of(setting, space, state, log_speedup))
    for setting in dict.fromkeys([space.default, *map(space.like, request.params.get("siblings", ()))]):
        if setting not in known and not space.problem(setting):
            study.enqueue_trial(positions(setting, space))
    tried = set(known)
    wanted = None
    for seed in (*request.params.get("under_way", ()), request.seed):
        study.sampler = SAMPLERS[sampler](space, seed % 2**32)  # numpy takes no larger seeds
        asked = study.ask(distributions(space))
        wanted = setting_of(asked, space)
        if wanted in tried or space.problem(wanted):
            study.tell(asked, state=TrialState.FAIL)
            wanted = space.nearest(wanted, tried, Random(seed))
            if wanted is None:
                return None
            study.add_trial(trial_of(wanted, space, TrialState.RUNNING))
        tried.add(wanted)
    return wanted


def _exhausted(space: Space, tried: set[Setting]) -> str:
    if space.size > MAX_LISTED:
        return f"no setting that fits was found among {MAX_SAMPLES} samples; {len(tried)} of {space.size} are tried"
    why = next((w for s in product(*map(range, space.sizes)) if s not in tried and (w := space.problem(s))), "")
    left = space.size - len(tried)
    return f"{len(tried)} settings are tried, none of the other {left} fits every workload: {why}"


def _known(request: Request, parent: Parent, space: Space) -> dict[Setting, float | None]:
    """The parent's own setting, which is not proposed, and what the request's trials tell, oldest first."""
    own = Trial(parent.kernel.values, parent.evaluation.estimate if parent.evaluation else None)
    found: dict[Setting, float | None] = {}
    for trial in (*request.trials, own):
        setting = space.setting(trial.values)
        if setting is not None and found.get(setting) is None:
            found[setting] = trial.log_speedup
    return found
