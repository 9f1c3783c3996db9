"""The configuration of a comparison: strategies x tasks x seeds under one kind of budget, as cells that are runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from evo.config import MOST_TRIALS, PROFILERS, Amount, CellSettings, RunConfig, read_setting, read_toml
from fitness.judging.base import DeviceInfo
from fitness.profiling.metric_sets import PROVIDER
from fitness.words import counted
from mutators.llm.settings import LlmSettings
from operators.catalog import load
from operators.definition.reading import first_problem
from operators.errors import UserError
from operators.identity import digest

USED = {
    "evaluations": "evaluations", "trials": "trials of tunables", "calls": "answers of models", "tokens": "tokens",
    "cost_usd": "US dollars", "evaluator_s": "seconds of evaluators", "elapsed_s": "seconds since the cell began",
}  # fmt: skip
"""Names of what cells use: curves are drawn against all of it."""
BUDGETS = ("evaluations", "calls", "tokens", "cost_usd", "evaluator_s")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}"
Name = Annotated[str, Field(pattern=rf"^{NAME}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
MOST_CELLS = 100_000
OWN = "own"
"""The family of operators that belong to none, as new ones of a user's are begun with."""


class ArmSettings(BaseModel):
    """One strategy with all that is set for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: str = ""
    """The strategy, by the names that a run takes; empty: the arm's own name."""
    settings: dict[str, Any] = {}
    """The strategy's settings."""
    profile: Literal[PROFILERS] = PROVIDER  # type: ignore[valid-type]
    """Part of a profile that language models are shown, as for a run."""
    tuning: Literal["none", "own", "last"] = "none"
    """Who tries settings of tunables: none does; the strategy when it likes, within the comparison's `trials`; or, when
    it has asked for all else, the engine with as many trials of its best kernel."""
    models: list[str] | None = None
    """Instead of those of `[llm]`; an empty list: no language model."""


class Comparison(BaseModel):
    """Everything that decides a comparison. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: Name
    """Its runs are in `runs/compare-NAME/`; a file that does not say is called as it is."""
    arms: dict[Name, ArmSettings] = Field(min_length=1)
    """The strategies, by the name that tables and reports give them."""
    operators: list[str] = Field(min_length=1)
    """Names, or folders of a user's own operators."""
    targets: list[Literal["cpu", "cuda"]] = Field(["cpu"], min_length=1)
    """Where kernels run."""
    dtypes: list[str] = []
    """Empty: each operator's first for the target."""
    seeds: list[Seed] = Field([1, 2, 3], min_length=1)
    """Every arm searches every task once with each of them."""
    budget: dict[Literal[BUDGETS], Amount]  # type: ignore[valid-type]
    """The budget of every cell, of exactly one kind."""
    reference: str = ""
    """The arm that all others are compared with; empty: the first one."""
    primary: list[str] | None = None
    """Arms that verdicts are given of, beside the reference; the others are described. They are registered with the
    comparison: the fewer they are, the fewer operators tell one from chance. None: all; an empty list: none, the
    comparison describes and concludes nothing."""
    difference: float = Field(0.1, gt=0, le=10)
    """The registered one: the share by which an arm's winners must be faster or slower for it to matter."""
    trials: int = Field(16, ge=0, le=MOST_TRIALS)
    """Settings of tunables in a cell at most, of arms that tune; no budget counts them."""
    workload_set: str = ""
    """The workloads that kernels are timed on, by the names that a run takes."""
    llm: LlmSettings | None = None
    """Language models of all arms, but for those that name others."""
    check: bool = True
    """Whether drafts are checked, in all arms alike; see the setting of runs."""
    under_way: int = Field(1, ge=1, le=64)
    """Requests of one cell under way at most; see `CellSettings`."""
    order_seed: Seed = 0
    """The seed of the order in which cells are begun."""
    workers: int = Field(0, ge=0, le=256)
    """Evaluation workers of the pool that all cells share, as for a run."""
    threads: int = Field(0, ge=0, le=4096)
    """Cores that a kernel on the cpu target runs on, as for a run."""
    at_once: int = Field(0, ge=0, le=1024)
    """Cells under way at most; 0: as many as keep the pool busy. It decides nothing but how long it takes."""

    @field_validator("operators", "targets", "dtypes", "seeds", "primary")
    @classmethod
    def _each_once(cls, value: list[Any] | None) -> list[Any] | None:
        if value and len(set(value)) < len(value):
            raise ValueError("something is named twice; name each once")
        return value

    @model_validator(mode="after")
    def _one_budget(self) -> Comparison:
        if len(self.budget) != 1:
            raise ValueError(f"budget: one kind of {', '.join(BUDGETS)}, not {len(self.budget)}")
        return self

    @model_validator(mode="after")
    def _known_reference(self) -> Comparison:
        if self.reference and self.reference not in self.arms:
            raise ValueError(f"reference: {self.reference} is no arm; there are {', '.join(self.arms)}")
        beside = [name for name in self.arms if name != self.reference_arm]
        if strange := [name for name in self.primary or () if name not in beside]:
            raise ValueError(
                f"primary: {strange[0]} is no arm beside {self.reference_arm}; there are {', '.join(beside)}"
            )
        return self

    @property
    def reference_arm(self) -> str:
        """The arm that all others are compared with."""
        return self.reference or next(iter(self.arms))

    def models_of(self, arm: str) -> Sequence[str]:
        """The language models that an arm asks."""
        own = self.arms[arm].models
        return own if own is not None else self.llm.models if self.llm else ()

    @property
    def tested(self) -> tuple[str, ...]:
        """The arms that verdicts are given of."""
        chosen = self.arms if self.primary is None else self.primary
        return tuple(name for name in self.arms if name in chosen and name != self.reference_arm)

    @property
    def limit(self) -> tuple[str, float]:
        """The kind of the budget and how much of it a cell has."""
        ((kind, amount),) = self.budget.items()
        return kind, amount

    def families(self) -> dict[str, str]:
        """The family of each operator; of the family OWN each is one by itself. It raises UserError."""
        loaded = [load(operator) for operator in self.operators]
        return {each.name: each.name if each.family == OWN else each.family for each in loaded}

    def cells(self, devices: Mapping[str, DeviceInfo] | None = None, registration: str = "") -> list[Cell]:
        """All cells in the order in which they are begun. It raises UserError for tasks that there are not.

        A block is a task with a seed. Blocks come in random order and the arms of a block in random order one after
        the other, so that the machine's drift favours none of them. `devices` are those that prompts tell of, by
        target; `registration` is the digest of what the comparison was begun with.
        """
        rng = Random(digest("order", self.name, self.order_seed))
        blocks = [(task, seed) for task in self._tasks() for seed in self.seeds]
        if len(blocks) * len(self.arms) > MOST_CELLS:
            raise UserError(f"{counted(len(blocks) * len(self.arms), 'cell')}: too many; {MOST_CELLS} are allowed")
        rng.shuffle(blocks)
        found = []
        for task, seed in blocks:
            arms = list(self.arms)
            rng.shuffle(arms)
            known = devices or {}
            found += [
                Cell(arm, *task[:3], seed, self._config(arm, task, seed, known, registration), task[3]) for arm in arms
            ]
        return found

    def _tasks(self) -> Iterator[_TaskKey]:
        names: set[str] = set()
        for operator in self.operators:
            name = load(operator).name
            if name in names:
                raise UserError(f"two operators are called {name}; name each once")
            names.add(name)
            for target in self.targets:
                asked = {"operators": [operator], "target": target, "dtypes": self.dtypes}
                for _, task in RunConfig.model_validate(asked).tasks():
                    yield name, task.dtype, target, operator

    def _config(
        self, name: str, task: _TaskKey, seed: int, devices: Mapping[str, DeviceInfo], registration: str
    ) -> RunConfig:
        arm, (_, dtype, target, operator) = self.arms[name], task
        tunes = arm.tuning != "none"
        cell = CellSettings(
            comparison=self.name, arm=name, under_way=self.under_way, trials=self.trials if tunes else 0,
            tune=arm.tuning == "last", registration=registration,
        )  # fmt: skip
        settings = {
            "operators": [operator], "target": target, "dtypes": [dtype], "workload_set": self.workload_set,
            "ancestors": "naive", "strategy": arm.strategy or name, "settings": arm.settings, "budget": self.budget,
            "llm": self._models(arm), "profile": arm.profile, "check": self.check, "seed": seed,
            "device": devices.get(target), "workers": self.workers, "threads": self.threads, "cell": cell,
        }  # fmt: skip
        return RunConfig.model_validate(settings)

    def _models(self, arm: ArmSettings) -> LlmSettings | None:
        if arm.models is None:
            return self.llm
        if not arm.models:
            return None
        return LlmSettings.model_validate({**(self.llm.model_dump() if self.llm else {}), "models": arm.models})


_TaskKey = tuple[str, str, str, str]
"""Operator, dtype, target, and what the configuration calls the operator."""


@dataclass(frozen=True)
class Cell:
    """One strategy at one task with one seed: a run of its own."""

    arm: str
    operator: str
    dtype: str
    target: str
    seed: int
    config: RunConfig = field(repr=False, compare=False)
    path: str = field(repr=False, compare=False)
    """The operator as the configuration names it."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.arm}-{self.operator}-{self.dtype}-{self.target}-s{self.seed}"

    @property
    def task(self) -> str:
        """`operator/dtype/target`."""
        return f"{self.operator}/{self.dtype}/{self.target}"


def read_comparison(path: Path, *, models: Sequence[str] = (), settings: Sequence[str] = ()) -> Comparison:
    """The comparison of a TOML file. It raises UserError, one line.

    `models` replace those of its table `llm`; `settings` are texts `KEY=VALUE` whose keys are dotted paths.
    """
    raw = read_toml(path)
    raw.setdefault("name", path.stem)
    if models:
        _put(raw, ("llm", "models"), list(models))
    for text in settings:
        key, value = read_setting(text, such_as="budget.tokens=100000")
        _put(raw, tuple(key.split(".")), value)
    try:
        return Comparison.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error, Comparison.model_fields)}") from None


def _put(raw: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for name in place[:-1]:
        raw = raw.setdefault(name, {})
        if not isinstance(raw, dict):
            raise UserError(f"--set {'.'.join(place)}: `{name}` is no table")
    raw[place[-1]] = value
