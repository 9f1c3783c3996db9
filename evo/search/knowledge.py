"""Knowledge of one task for prompts, and notes on its profiles: told of every ask and tell, in their order.

Nothing here reads a clock, a file or the store: the same asks and tells in the same order make the same briefings.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from evo import rows
from evo.individual import Individual, is_naive
from evo.lessons import DESCRIBED, SAID, Lessons
from evo.lineage import Latest, Lineage, ratios_of
from fitness.evaluation import Evaluation, Status
from fitness.judging.base import DeviceInfo
from fitness.profiling.metric_sets import PROVIDER, changes, compared, shown
from fitness.profiling.profiles import Profile
from fitness.words import digits
from mutators.asking.novelty import text_digest
from mutators.base import Kind, Request
from mutators.briefing import Attempt, Ratio, Standing
from mutators.registry import asks_model
from operators.definition.spec import Task

Source = tuple[str, str]
"""A kernel id, and the id of the evaluation that was told of it."""
REMEMBERED = 5_000
"""Kernels whose standing is known, kernels of which is known what was tried on them, and questions; those used last."""
NAIVE_SEEN = 101
"""Times of the naive kernel whose median a briefing has; the latest ones."""
TRIED_SHOWN, TRANSFORMS_SHOWN = 5, 2
"""Attempts at one kernel that a briefing has: of language models, and of other mutators."""
HELPED_SHOWN, FRUITLESS_SHOWN, FAILED_SHOWN, SIBLINGS_SHOWN, EARLIER_SHOWN = 6, 4, 4, 2, 3
WINNERS_SHOWN = 2


@dataclass(frozen=True)
class KnownKernel:
    """A correct kernel, and how it compares with the naive one."""

    source: Source
    speedup: Ratio
    standing: Standing = field(default_factory=dict)


@dataclass(frozen=True)
class StoredOrigin:
    """A `mutators.briefing.Origin` whose kernel is still to be fetched from the store."""

    known: KnownKernel
    helped: tuple[Attempt, ...]


@dataclass(frozen=True)
class StoredBriefing:
    """A `Briefing` whose kernels are still to be fetched from the store; see `Knowledge.brief`."""

    naive_us: Mapping[str, float] = field(default_factory=dict)
    library: Standing = field(default_factory=dict)
    best: KnownKernel | None = None
    parents: Mapping[str, Standing] = field(default_factory=dict)
    tried: tuple[Attempt, ...] = ()
    helped: tuple[Attempt, ...] = ()
    fruitless: tuple[Attempt, ...] = ()
    failed: tuple[Attempt, ...] = ()
    winners: tuple[tuple[KnownKernel, tuple[str, ...]], ...] = ()
    """With the workloads that they win."""
    open_here: int = 0
    open_elsewhere: int = 0
    asked_before: int = 0
    origin: StoredOrigin | None = None
    programs: int = 0
    """Number of remembered programs that may be told of."""


class Knowledge:
    """Owns what is known of one task. `siblings` are of other tasks of the run whose lessons may serve this one."""

    def __init__(
        self,
        task: Task,
        *,
        device: DeviceInfo | None = None,
        independent: bool = False,
        earlier: Iterable[Attempt] = (),
    ) -> None:
        """With `independent`, attempts of a strategy are to know nothing of each other: no briefing tells of others.

        `earlier` are lessons of other runs, those of most worth first.
        """
        self.device = device
        self.independent = independent
        self.siblings: list[Knowledge] = []
        self.lessons = Lessons()
        self.lineage = Lineage()
        self._earlier = tuple(earlier)
        self._task = str(task)
        self._naive_seen_us: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=NAIVE_SEEN))
        """By workload, the naive kernel's time in its own evaluation and in every one that was paired with it."""
        self._library: Standing = {}
        self._known: Latest[str, KnownKernel] = Latest(REMEMBERED)
        """By kernel id."""
        self.best: KnownKernel | None = None
        """The kernel that is the fastest for certain."""
        self._fastest: dict[str, KnownKernel] = {}
        """By workload."""
        self._tried: Latest[str, tuple[deque[Attempt], deque[Attempt]]] = Latest(REMEMBERED)
        """By kernel id: attempts of models, and of others."""
        self._open: dict[str, str] = {}
        """By id of a request that waits for a model: the kernel that it begins from."""
        self._asked: Latest[str, int] = Latest(REMEMBERED)
        """By question, how often it was asked."""
        self._programs: dict[str, tuple[int, str]] = {}
        """By text digest, of what models, guests and authors wrote: how many were told before, and the verdict."""

    # --- being asked ------------------------------------------------------------------------------------------------

    def brief(self, request: Request) -> StoredBriefing | None:
        """Return what the request's prompt may tell, and take note that it is asked; None where no model is."""
        if not asks_model(request):
            return None
        question = _question(request)
        base = request.parents[0] if request.parents else ""
        found = StoredBriefing(
            self.naive_us,
            self._library,
            parents={name: known.standing for name in request.parents if (known := self._known.recall(name))},
            asked_before=self._asked.get(question) or 0,
        )
        if not self.independent:
            found = self._of_others(request, base, found)
        self._asked.put(question, found.asked_before + 1)
        self._open[request.id] = base
        return found

    def verdict_on(self, text: str, programs: int) -> str:
        """Return the verdict on a program, by its text digest, if it was among the first `programs` that were told."""
        number, verdict = self._programs.get(text, (programs, ""))
        return verdict if number < programs else ""

    def origin(self, kernel_id: str) -> StoredOrigin | None:
        """Return what those hear who carry a kernel of this task over to another; None where nothing is known of it."""
        known = self._known.recall(kernel_id)
        return StoredOrigin(known, self.lessons.helped(HELPED_SHOWN)) if known else None

    def _of_others(self, request: Request, base: str, found: StoredBriefing) -> StoredBriefing:
        models, others = self._tried.get(self._base(request)) or (deque[Attempt](), deque[Attempt]())
        tried = (*others, *models)
        helped = self.lessons.helped(HELPED_SHOWN)
        here = sum(place == base for place in self._open.values())
        return replace(
            found,
            best=self.best,
            tried=tried,
            helped=(*helped, *self._from_siblings(request.source_task), *self._from_earlier(helped=True)),
            fruitless=self.lessons.fruitless(FRUITLESS_SHOWN, (*tried, *helped)),
            failed=(*self._from_earlier(helped=False), *self.lessons.failed(FAILED_SHOWN, (*tried, *helped))),
            winners=self._winners(request),
            programs=len(self._programs),
            open_here=here,
            open_elsewhere=len(self._open) - here,
        )

    def _from_siblings(self, source_task: str) -> Iterable[Attempt]:
        """The most of what helped on other tasks; what helped on `source_task` is told beside its kernel."""
        siblings = (each for each in self.siblings if each._task != source_task)
        found = [attempt for each in siblings for attempt in each.lessons.helped(SIBLINGS_SHOWN)]
        order = sorted(found, key=lambda a: (-(a.gain.log if a.gain else 0.0), a.task, a.description))
        return order[:SIBLINGS_SHOWN]

    def _from_earlier(self, *, helped: bool) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self._earlier if (attempt.gain is not None) is helped)[:EARLIER_SHOWN]

    def _winners(self, request: Request) -> tuple[tuple[KnownKernel, tuple[str, ...]], ...]:
        """The kernels that are the fastest on some workload, those that win most of them first; no parents."""
        wins: dict[str, list[str]] = {}
        for workload, known in self._fastest.items():
            wins.setdefault(known.source[0], []).append(workload)
        by_id = {known.source[0]: known for known in self._fastest.values()}
        others = [name for name in wins if name not in request.parents and name != self.lineage.naive_id]
        order = sorted(others, key=lambda name: (-len(wins[name]), -by_id[name].speedup.log, name))
        return tuple((by_id[name], tuple(wins[name])) for name in order[:WINNERS_SHOWN])

    @property
    def over_library(self) -> float | None:
        """Library time / best time, geometric mean over workloads; None where no confirmation has timed the library."""
        mine = self.best.standing if self.best else {}
        logs = [mine[name].log - ratio.log for name, ratio in self._library.items() if name in mine]
        return math.exp(sum(logs) / len(logs)) if logs else None

    @property
    def naive_us(self) -> Mapping[str, float]:
        """By workload, the naive kernel's time: the median, as a machine has bad seconds."""
        return {workload: median(seen) for workload, seen in self._naive_seen_us.items()}

    # --- being told -------------------------------------------------------------------------------------------------

    def told(self, individual: Individual) -> None:
        """Learn what became of a request."""
        request, evaluation = individual.request, individual.evaluation
        self._open.pop(request.id, None)
        self.lineage.told(individual)
        if evaluation and evaluation.correct and individual.fresh:
            self._see_naive(evaluation, own=is_naive(request))
        base = self._base(request)
        if request.kind in (Kind.CHILD, Kind.GUEST) and base and not individual.unavailable:
            self._attempted(individual, base)
        if individual.kernel and evaluation and (asks_model(request) or request.kind in (Kind.ANCESTOR, Kind.GUEST)):
            known = len(self._programs), evaluation.verdict.value
            self._programs.setdefault(text_digest(individual.kernel), known)
        if evaluation and individual.fresh and evaluation.correct:
            self._learn(individual, evaluation)

    def _see_naive(self, evaluation: Evaluation, *, own: bool) -> None:
        if own or evaluation.anchor_id == self.lineage.naive_id:
            for timing in evaluation.timings:
                self._naive_seen_us[timing.workload].append(timing.latency_us if own else timing.anchor_latency_us)

    def _base(self, request: Request) -> str:
        """The kernel that an idea is tried on: the first of the parents that is known to be right, else the first."""
        known = (name for name in request.parents if name in self._known)
        return next(known, request.parents[0] if request.parents else "")

    def _attempted(self, individual: Individual, base: str) -> None:
        by_model = asks_model(individual.request) or individual.request.kind is Kind.GUEST
        if individual.evaluation is None and not by_model:
            return  # nothing was tried: no rewrite of that kind applies
        attempt = self._attempt(individual, base)
        models, others = self._tried.get(base) or (deque(maxlen=TRIED_SHOWN), deque(maxlen=TRANSFORMS_SHOWN))
        (models if by_model else others).append(attempt)
        self._tried.put(base, (models, others))
        self.lessons.learn(replace(attempt, task=self._task), by_model=by_model)

    def _attempt(self, individual: Individual, base: str) -> Attempt:
        evaluation = individual.evaluation
        said = individual.description[:DESCRIBED] or individual.request.mutator
        if evaluation is None:
            return Attempt(said, individual.status, message=individual.failure[:SAID])
        if evaluation.status is Status.DUPLICATE:
            known = f"a program that was known: {evaluation.verdict.value}"
            return Attempt(said, Status.DUPLICATE.value, message=known)
        gain = self._gain(evaluation, base)
        message = "" if gain or evaluation.correct else evaluation.message[:SAID]
        return Attempt(said, evaluation.verdict.value, gain, message)

    def _gain(self, evaluation: Evaluation, base: str) -> Ratio | None:
        """Over a kernel: from their own pairing where there was one, else by way of what both were paired with."""
        known, estimate = self._known.get(base), evaluation.estimate
        if evaluation.anchor_id == base and evaluation.log_ratio is not None:
            return Ratio(evaluation.log_ratio, evaluation.log_ratio_se or 0.0)
        if known is None or estimate is None:
            return None
        se = evaluation.log_speedup_se
        if se is None:  # raced out: its verdict has the error of its own pairs alone
            anchor = self._known.get(evaluation.anchor_id or "")
            se = math.hypot(evaluation.log_ratio_se or 0.0, anchor.speedup.se if anchor else 0.0)
        return Ratio(estimate, se).over(known.speedup)

    def _learn(self, individual: Individual, evaluation: Evaluation) -> None:
        """Take note of a correct kernel."""
        assert evaluation.log_speedup is not None and evaluation.log_speedup_se is not None
        source = evaluation.kernel_id, rows.evaluation_id(individual.request, evaluation.level)
        speedup = Ratio(evaluation.log_speedup, evaluation.log_speedup_se)
        known = KnownKernel(source, speedup, self.lineage.standing(source[0]))
        self._known.put(source[0], known)
        if self.best is None or speedup.low > self.best.speedup.low:
            self.best = known
        for workload, ratio in known.standing.items():
            fastest = self._fastest.get(workload)
            if fastest is None or ratio.low > fastest.standing[workload].low:
                self._fastest[workload] = known
        if evaluation.library_timings:
            beside = ratios_of(evaluation.library_timings)
            placed = {name: ratio.over(beside[name]) for name, ratio in known.standing.items() if name in beside}
            self._library = placed or self._library  # a kernel that has no standing places nothing


def _question(request: Request) -> str:
    """The words that make two questions the same but for what happened between them."""
    said = json.dumps(dict(request.params), sort_keys=True, default=str)
    return "\n".join((request.mutator, *request.parents, request.template, request.model, request.thread, said))


# --- profiles ---------------------------------------------------------------------------------------------------------


KEPT = 256
"""Profiles of a task that are kept in memory."""
Notes = tuple[str, ...]
"""Lines for a prompt; none: there is nothing to say."""


class KnownProfiles:
    """The profiles of a task's kernels: the latest ones whole, of all others that there are some.

    Those are read again where they are asked for. A profile takes some 16 KB, and a long run has thousands.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._whole: Latest[str, Profile] = Latest(kept)
        self._ids: set[str] = set()
        self.read: Callable[[str], Profile | None] = lambda kernel_id: None
        """Reads the store's profile of a kernel."""

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._ids

    def learn(self, kernel_id: str, profile: Profile) -> None:
        """Let a profile count from now on."""
        self._ids.add(kernel_id)
        self._whole.put(kernel_id, profile)

    def get(self, kernel_id: str) -> Profile | None:
        """Return the profile of a kernel; None where there is none."""
        if kernel_id in self._ids and kernel_id not in self._whole and (found := self.read(kernel_id)):
            self.learn(kernel_id, found)
        return self._whole.get(kernel_id)


@dataclass
class ProfileNotes:
    """The known profiles of a task, in the order in which a run learnt of them."""

    lineage: Lineage
    """Where its kernels come from."""
    profiles: KnownProfiles = field(default_factory=KnownProfiles)

    def lines(self, request: Request) -> Notes:
        """Return what a question's prompt shows: of a crossover's kernels both, of others the first parent.

        Its param `profiler` names the way of choosing among metrics, and `profile_of` another kernel to show that of.
        """
        if not request.parents:
            return ()
        first, *others = request.parents
        first = request.params.get("profile_of", first)
        provider = request.params.get("profiler", PROVIDER)
        lines = [*self._of(first, provider)]
        if request.mutator == "crossover":
            for other in others[:1]:
                lines += [f"kernel B: {line}" for line in self._of(other, provider) if not line.startswith("roofline:")]
                lines += self._between(first, other, "kernel B against kernel A") if lines else ()
        elif lines:
            lines += self._since(first)
        return tuple(lines)

    def _of(self, kernel_id: str, provider: str) -> Notes:
        profile = self.profiles.get(kernel_id)
        if profile is None:
            return ()
        birth = self.lineage.birth(kernel_id)
        return shown(provider, profile, depth=birth.depth if birth else 0)

    def _since(self, kernel_id: str) -> Notes:
        """The notes on what the last edit changed, or the last few where no profile lies between them."""
        for steps, ancestor in enumerate(self.lineage.ancestors(kernel_id), 1):
            if ancestor in self.profiles:
                since = "since its parent" if steps == 1 else f"in its last {steps} steps"
                return self._between(ancestor, kernel_id, since)
        return ()

    def _between(self, before: str, after: str, words: str) -> Notes:
        """The change of the metrics between two kernels beside that of their speed."""
        old, new = self.profiles.get(before), self.profiles.get(after)
        if old is None or new is None:
            return ()
        found = changes(old, new)
        speed = self._ratio(before, after)
        return compared(words, [*([speed] if speed and found else []), *found])

    def _ratio(self, before: str, after: str) -> str:
        births = [self.lineage.birth(each) for each in (before, after)]
        old, new = (birth.log_speedup if birth else None for birth in births)
        return "" if old is None or new is None else f"{digits(math.exp(new - old))} times as fast"
