"""The configuration of a run: TOML files and command-line settings, checked, frozen, and kept with the run."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from evo.budget import KINDS, OF_MODELS
from evo.strategies.base import StrategyContext
from evo.strategies.tuning import Tuned
from fitness.judging.base import DeviceInfo
from fitness.profiling.metric_sets import PROVIDER, PROVIDERS
from fitness.targets import check_target, device_info, measured_device
from fitness.words import counted
from mutators.briefing import Attempt
from mutators.llm.settings import LlmSettings
from operators.catalog import check_reference, load, same_family
from operators.champions import offered
from operators.definition.reading import first_problem
from operators.definition.spec import Operator, Task
from operators.errors import UserError, unknown
from operators.extension import named_class
from operators.files import read_text
from operators.plan.reading import left_to_write

MOST_TRIALS = 10_000


class CellSettings(BaseModel):
    """Limits of a run as a cell of a comparison (`evo compare`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    comparison: str = Field(min_length=1)
    """Its name."""
    arm: str = Field(min_length=1)
    """The name of the strategy with all that is set for it."""
    under_way: int = Field(1, ge=1, le=64)
    """Requests under way at most, profiles included, whatever the pool and its other users. With 1, each is asked
    for with the knowledge of all that came before it, in every arm alike."""
    trials: int = Field(0, ge=0, le=MOST_TRIALS)
    """Settings of tunables that are asked for, at most."""
    tune: bool = False
    """Whether they are those of the best kernel, after all that the strategy asks for by itself."""
    registration: str = ""
    """The digest of what the comparison was begun with."""


ASKED = ("ask", "tell")
"""Methods by which a class shows itself to be a strategy."""
STRATEGIES: Mapping[str, str] = {
    "islands": "evo.strategies.islands:Islands",
    "agent": "evo.strategies.agent:AgentAlone",
    "astra": "evo.strategies.astra:Astra",
    "best_of_n": "evo.strategies.controls:BestOfN",
    "cudaforge": "evo.strategies.cudaforge:CudaForge",
    "cudamaster": "evo.strategies.cudamaster:CudaMaster",
    "cutegen": "evo.strategies.cutegen:CuTeGen",
    "one_shot": "evo.strategies.controls:OneShot",
    "random": "evo.strategies.controls:RandomSearch",
    "refine": "evo.strategies.refine:Refinement",
    "tune_only": "evo.strategies.controls:TuneOnly",
}
"""Name and `module:Class`; imported late. A user's own is named as `module:Class`."""
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PROFILERS = tuple(PROVIDERS)
DEFAULT_SETS = {"cpu": "cpu", "cuda": "realistic"}


class RunConfig(BaseModel):
    """Everything that decides a run. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, ser_json_inf_nan="strings")

    operators: list[str] = Field(min_length=1)
    """Names, or folders of a user's own operators."""
    target: str = "cpu"
    """`cpu` or `cuda`."""
    dtypes: list[str] = []
    """Empty: the operator's first for the target."""
    workload_set: str = ""
    """Empty: `cpu` on the cpu target, else `realistic`. Several are joined with `+`, such as `published+realistic`."""
    ancestors: Literal["naive", "all"] = "all"
    """Which of an operator's kernel files the search starts from; the best known for its dtype (`champions`) are among
    them. Comparisons with published systems take `naive`."""
    ancestor_files: dict[str, tuple[str, ...]] = {}
    """By task, the names of these files; filled in when the run begins with all of them, which may be others later."""
    strategy: str = "islands"
    """`islands`; a published agent loop, `agent`, `astra`, `cudaforge`, `cudamaster`, `cutegen` or `refine`; a control,
    `best_of_n`, `one_shot`, `random` or `tune_only`; or your own class, as `module:Class`."""
    settings: dict[str, Any] = {}
    """The strategy's settings, as listed for each below."""
    budget: dict[Literal[KINDS], Amount] = {"wall_s": 60.0}  # type: ignore[valid-type]
    """Limits by kind of spending; none: until Ctrl-C, or until nothing new turns up."""
    llm: LlmSettings | None = None
    """Language models and how they are called; None: no mutator that asks one."""
    profile: Literal[PROFILERS] = PROVIDER  # type: ignore[valid-type]
    """Part of a profile that language models are shown: `filtered` (lines that say what it means), `unfiltered` (all
    metrics besides), `delayed` (`filtered`, of kernels with three steps of lineage behind them), `none`, or the metrics
    that published systems show: `cudamaster`, `cudaforge`, `cutegen`. `true` is `filtered`, `false` is `none`."""
    lessons: list[str] = []
    """Folders of runs whose ideas and their gains prompts tell from the start, of operators of the same families."""
    learnt: tuple[Attempt, ...] = ()
    """Attempts that were learnt of there; filled in when the run begins."""
    check: bool = True
    """Whether drafts of language models are compiled and run on a few small shapes before they are judged, so that the
    model can mend them in the same dialogue; strategies with a setting `drafts` have their own way."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Everything random in the search comes from it; inputs of checks do not."""
    device: DeviceInfo | None = None
    """The device that kernels run on, as prompts and tuning have it; filled in when the run begins, and measured for
    models."""
    cell: CellSettings | None = None
    """Limits that hold it equal to the others of a comparison; none: it is a run of its own."""
    stall_s: Amount = 120.0
    """Seconds in which nothing moves until the search says so; what is stuck is restarted after three times as many."""
    workers: int = Field(0, ge=0, le=256)
    """Evaluation workers; 0: two for every group of cores, as long as there are cores.

    On the cuda target: those that compile, beside the one of each GPU that judges; 0: up to three for every GPU.
    """
    threads: int = Field(0, ge=0, le=4096)
    """Cores that a kernel on the cpu target runs on; groups of as many are timed side by side. 0: all in one group."""

    def resolved(self, *, elsewhere: bool = False) -> RunConfig:
        """Defaults filled in and names checked against what there is. Raises UserError.

        A run that is to take place `elsewhere`, on a device that is given, needs none here.
        """
        if self.target not in DEFAULT_SETS:
            raise UserError(unknown("target", self.target, DEFAULT_SETS))
        if not elsewhere:
            check_target(self.target)
            cores = len(os.sched_getaffinity(0))
            if self.target == "cpu" and self.threads > cores:
                most = counted(cores, "core")
                raise UserError(f"threads = {self.threads}: this process may use {most}; name as many at most")
        if len(set(self.operators)) < len(self.operators):
            raise UserError("an operator is named twice; name each once")
        self.check_budget()
        filled: dict[str, Any] = {"workload_set": self.workload_set or DEFAULT_SETS[self.target]}
        if self.device is None:
            filled["device"] = (measured_device if self.llm else device_info)(self.target, threads=self.threads)
        config = self.model_copy(update=filled)
        if self.lessons and not self.learnt:
            config = config.model_copy(update={"learnt": config._learnt()})
        tasks = config.tasks()
        if self.ancestors == "all" and not self.ancestor_files:
            files = {str(task): config.ancestor_names(operator, task) for operator, task in tasks}
            config = config.model_copy(update={"ancestor_files": files})
        for operator, task in tasks:
            operator.workload_set(config.workload_set)
            operator.naive(task.target)
            check_reference(operator)
            config.make_strategy(operator, task)
        left = (left_to_write(op.ancestor("naive", task.target), op, task.target) for op, task in tasks)
        # Of several tasks the others are searched, so files are read up to the first that has its kernel.
        if (first := next(left, "")) and all(left):
            raise UserError(first)
        return config

    def check_budget(self) -> None:
        """Raise UserError for a limit that nothing in this run can reach; arms of a comparison share theirs."""
        if self.cell is not None:
            return
        if self.llm is None and (idle := next((kind for kind in OF_MODELS if kind in self.budget), "")):
            raise UserError(f"a budget of {idle} limits nothing where no model is asked; leave it out, or add --llm")
        if self.target != "cuda" and "gpu_s" in self.budget:
            raise UserError(f"a budget of gpu_s limits nothing on {self.target}; leave it out, or add --target cuda")

    def _learnt(self) -> tuple[Attempt, ...]:
        from evo.lessons import earlier

        tasks = self.tasks()
        names = {name for operator, _ in tasks for name in (operator.name, *same_family(operator))}
        return tuple(each for run in self.lessons for each in earlier(Path(run), names, target=self.target))

    def tasks(self) -> list[tuple[Operator, Task]]:
        """Every operator with every dtype asked for."""
        return [(operator, task) for operator in map(load, self.operators) for task in self.tasks_of(operator)]

    def tasks_of(self, operator: Operator) -> list[Task]:
        """The tasks of one of the run's operators."""
        offered = operator.dtypes.get(self.target, ())
        if not offered:
            raise UserError(f"operator {operator.name} has no dtype for target {self.target}")
        wanted = self.dtypes or offered[:1]
        if lacking := next((dtype for dtype in wanted if dtype not in offered), None):
            raise UserError(f"operator {operator.name} has no {lacking} on {self.target}; it has {', '.join(offered)}")
        return [Task(operator.name, dtype, self.target) for dtype in wanted]

    def ancestor_names(self, operator: Operator, task: Task) -> tuple[str, ...]:
        """Return the names of the kernel files that a search for one task starts from, `naive` first.

        A run that has begun keeps those that there were then.
        """
        if self.ancestors == "naive":
            return ("naive",)
        if begun := self.ancestor_files.get(str(task)):
            return begun
        return (*operator.ancestors(task.target), *offered(operator, task.target, task.dtype))

    def make_strategy(self, operator: Operator, task: Task) -> Any:
        """Return a fresh strategy for one task. It raises UserError for settings that the strategy does not have."""
        made = named_class("strategy", self.strategy, STRATEGIES)
        if lacking := sorted(getattr(made, "__abstractmethods__", ())) or [n for n in ASKED if not hasattr(made, n)]:
            raise UserError(
                f"strategy {self.strategy}: the class has no {', '.join(lacking)}; begin with one of "
                "evo.strategies.loop.LoopStrategy"
            )
        tasks, cell = len(self.operators) * max(len(self.dtypes), 1), self.cell
        questions = max(self.llm.concurrency // tasks, 1) if self.llm else 1
        context = StrategyContext(
            operator, task, self.seed, self.workload_set,
            models=tuple(self.llm.models) if self.llm else (),
            ancestors=self.ancestor_names(operator, task),
            device=self.device,
            questions=min(questions, cell.under_way) if cell else questions,
            greedy=self.llm.greedy if self.llm else False,
            profiler=self.profile,
            trials=None if cell is None else 0 if cell.tune else cell.trials,
        )  # fmt: skip
        try:
            strategy = made(context, dict(self.settings))
        except ValidationError as error:
            raise UserError(f"settings of strategy {self.strategy}: {first_problem(error)}") from None
        return Tuned(strategy, replace(context, trials=cell.trials)) if cell and cell.tune else strategy

    @property
    def renews(self) -> bool:
        """Whether a question to the outside that is not taken is asked anew once much faster kernels are known.

        That is for strategies that ask about fast kernels; what a comparison's cell asks stays as it is.
        """
        made = named_class("strategy", self.strategy, STRATEGIES)
        return self.cell is None and bool(getattr(made, "renews", False))

    @property
    def independent(self) -> bool:
        """Whether the strategy's attempts are to know nothing of each other, so that no prompt tells of others."""
        return bool(getattr(named_class("strategy", self.strategy, STRATEGIES), "independent", False))

    def to_json(self) -> str:
        """The inverse of `from_json`."""
        return self.model_dump_json()

    @field_validator("profile", mode="before")
    @classmethod
    def _profile_named(cls, value: object) -> object:
        """Return the name that true and false stand for."""
        return {True: PROVIDER, False: "none"}[value] if isinstance(value, bool) else value

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """The configuration that a run has stored. Raises UserError."""
        try:
            return cls.model_validate_json(text)
        except (ValueError, TypeError) as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise UserError(f"the run's stored configuration cannot be used: {reason}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds. It raises UserError, one line."""
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


def read_setting(text: str, *, such_as: str) -> tuple[str, Any]:
    """Return key and value of a text of `--set`, for which `such_as` is an example. It raises UserError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {text}: write key=value, such as --set {such_as}")
    return key.strip(), setting_value(value.strip())


def read_config(path: Path | None, changes: Mapping[str, Any], settings: Sequence[str]) -> RunConfig:
    """A config file (or none) with command-line values over it; `settings` are `key=value` texts.

    A key `llm.NAME` goes to the table `llm`, as does a change called `models`; any other that is no field of RunConfig
    goes to the strategy's settings. Raises UserError, one line.
    """
    raw = read_toml(path) if path else {}
    chosen = {key: value for key, value in changes.items() if value not in (None, [], ())}
    models = chosen.pop("models", None)
    raw |= chosen
    if models:
        _table(raw, "llm", path)["models"] = models
    for text in settings:
        key, value = read_setting(text, such_as="islands=4")
        if key in RunConfig.model_fields:
            raw[key] = value
        else:
            name, _, inner = key.partition(".") if key.startswith(("llm.", "settings.")) else ("settings", "", key)
            _table(raw, name, path)[inner] = value
    if isinstance(raw.get("llm"), dict) and not raw["llm"].get("models"):
        raise UserError("settings of language models (llm) need one: name it, such as --llm openai/gpt-5")
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        where = f"{path}: " if path else ""
        raise UserError(f"{where}{first_problem(error, RunConfig.model_fields)}") from None


def _table(raw: dict[str, Any], name: str, path: Path | None) -> dict[str, Any]:
    """The table called `name`, made where there is none."""
    found = raw.setdefault(name, {})
    if not isinstance(found, dict):
        example = "islands = 4" if name == "settings" else 'models = ["openai/gpt-5"]'
        raise UserError(f"{path or '--set'}: `{name}` is a table, such as {example}")
    return found


def setting_value(text: str) -> Any:
    """A value of the command line: JSON, or the text as it stands."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
