"""Published agent loops: whom they ask for what, what prompts show, which parent, when they stop; and replay equal."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evo.config import STRATEGIES, RunConfig
from evo.replay import replay
from evo.strategies.base import StrategyContext
from evo.strategies.cutegen import CLASSES, STEPS_BEFORE_PROFILE, class_of
from fitness.evaluation import Status
from fitness.profiling.metric_sets import PROVIDER
from mutators.base import Earlier, Kind, Parent, Request
from mutators.prompts import FOLDER, conversation
from operators.catalog import folders, load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.extension import named_class
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.evo import stories
from tests.evo.worlds import World
from tests.mutators import informed_cases
from tests.mutators.prompt_cases import AXPB, failed, parents

LLM = {"models": ["openai/scripted"], "api_base": "http://127.0.0.1:1/v1"}
ROLES = ("astra", "cudamaster", "cutegen", "cudaforge")


@pytest.mark.parametrize("loop", some_slow(stories.LOOPS, 1))
def test_a_loop_goes_as_published_also_in_pieces_and_its_replay_is_equal(loop: str, tmp_path: Path) -> None:
    found = stories.told(loop, tmp_path, stops=(7,))
    assert found == stories.golden(loop).read_text(encoding="utf-8")
    if loop in ROLES or loop == "agent":  # others have but one role, and are replayed elsewhere
        done = replay(tmp_path / "stories")
        assert done.equal, done.difference


def make(
    name: str, operator: Operator, *, models: tuple[str, ...] = ("large",), profiler: str = PROVIDER, **settings: Any
) -> Any:
    kind = named_class("strategy", name, STRATEGIES)
    return kind(StrategyContext(operator, Task("axpb", "fp32", "cpu"), 1, "cpu", models, profiler=profiler), settings)


TEMPLATES = [
    f"{path.parent.name}/{path.name.split('.')[0]}"
    for name in ROLES
    for path in sorted((FOLDER / name).glob("*.md.j2"))
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_role_has_a_prompt_for_kernels_that_are_right_and_for_those_that_fail(template: str, target: str) -> None:
    operator = load(str(AXPB))
    good, naive = parents(operator, target)
    bad = failed(good, operator, target)
    task = Task("axpb", "fp32", target)
    advice = Earlier(Request(task, 3, "say", (), 1, kind=Kind.SAY, role="planner"), text="Use fewer passes.")
    lost = Earlier(Request(task, 4, "rewrite", (), 1, role="coder"), description="fewer passes", failure="no answer")
    for shown in ((naive,), (good, naive), (bad, good), (bad,)):
        ids = tuple(parent.kernel.id for parent in shown)
        context = (advice.request.id, lost.request.id)
        request = Request(task, 7, "rewrite", ids, 1, {"workload_set": "cpu"}, template=template, context=context)
        told = str(conversation("rewrite", request, shown, operator, (advice, lost))[1]["content"])
        assert "# What to do" in told and shown[0].kernel.source.strip().splitlines()[-1] in told
        assert not re.search(r"\n{3}|[{}]%|Undefined|None", told.replace(shown[0].kernel.source, ""))


WORDS = (
    "astra/planner",
    "cudamaster/planner",
    "cutegen/diagnoser",
    "cudaforge/judge_optimise",
    "cudaforge/judge_repair",
)
CHOOSE = ("", "astra/planner", "cudamaster/planner", "cutegen/optimiser", "cudaforge/judge_optimise", "cudaforge/seed")
"""Templates of those that choose what to change, that of the mutator `rewrite` among them."""


def asked_of(template: str, *, target: str = "cuda") -> tuple[str, str]:
    """The messages of a role about a kernel of which much is known."""
    operator, kind = load("softmax"), Kind.SAY if template in WORDS else Kind.CHILD
    task = Task("softmax", "fp32", target)
    first = informed_cases.kernels(operator, target)[0]
    known = informed_cases.briefing(operator, task)
    shown = Parent(first, informed_cases.verdict(first, task, 0.7, known.parents[first.id]), briefing=known)
    params = {"workload_set": informed_cases.SETS[target]}
    request = Request(task, 1, "rewrite", (first.id,), 1, params, kind=kind, template=template)
    system, user = conversation("rewrite", request, (shown,), operator)
    return str(system["content"]), str(user["content"])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("template", WORDS)
def test_who_writes_words_is_spared_the_manual_of_kernel_files(template: str, target: str) -> None:
    """It was 4,100 of the 4,600 tokens of such a question."""
    system, _ = asked_of(template, target=target)
    whole, _ = asked_of("", target=target)
    assert "[[launch]]" not in system and "# A worked example" not in system and "# Your answer" not in system
    assert "# How it is verified" in system and len(system) < 0.4 * len(whole)


@pytest.mark.parametrize("template", CHOOSE)
def test_whoever_chooses_a_change_is_told_how_far_the_kernel_is_from_what_the_machine_allows(template: str) -> None:
    _, user = asked_of(template)
    assert "% of what the machine allows" in user


@pytest.mark.parametrize(
    "template",
    ["cutegen/optimiser", "cutegen/diagnoser", "cutegen/patcher", "cudaforge/judge_optimise", "cudaforge/judge_repair"],
)
def test_roles_see_the_reference_where_their_source_shows_it(template: str) -> None:
    _, user = asked_of(template)
    naive = load("softmax").naive("cuda").strip()
    assert f"# The reference\n\nThe operator in its plainest form, which is right:\n\n```cpp untrusted\n{naive}" in user


# --- calibration ----------------------------------------------------------------------------------------------------


def told_of(name: str, axpb: Operator, world: World) -> Counter[str]:
    """The number of requests of each kind, and of each role, in one loop."""
    strategy = make(name, axpb, n=1)
    strategy.tell(world.answer(strategy.ask(1)[0]))
    found: Counter[str] = Counter()
    while asked := strategy.ask(1):
        (request,) = asked
        found[request.kind.value] += 1
        found[request.role] += 1
        strategy.tell(world.answer(request))
    return found


def right(request: Request, kernel: Kernel) -> float:
    return 0.01 * request.number


def broken(request: Request, kernel: Kernel) -> Status:
    return Status.COMPILE_ERROR


PUBLISHED = [
    # Algorithm 1 with R = 5: five kernels beside the one that is given, each after a plan.
    ("astra", right, {"child": 5, "say": 5}),
    ("astra", broken, {"child": 5, "say": 5}),  # a round that leads to nothing is followed by the next one
    # R = 3 rounds, D = 3 attempts of the debugger in each.
    ("cudamaster", right, {"child": 3, "say": 3, "debugger": 0}),
    ("cudamaster", broken, {"child": 12, "say": 3, "debugger": 9}),
    # MAX_DEPTH 10, MAX_RETRY_ATTEMPTS 3, MAX_FIX_ATTEMPTS 5, the last patch never tested.
    ("cutegen", right, {"child": 11, "say": 0, "generator": 1, "optimiser": 10}),
    ("cutegen", broken, {"child": 13, "generator": 1, "diagnoser": 15, "patcher": 15, "optimiser": 0}),
    # N = 10 rounds, the seed included; a judgement before each of the others.
    ("cudaforge", right, {"child": 10, "say": 9}),
    ("cudaforge", broken, {"child": 10, "say": 9}),
    # KernelBench's iterative refinement: 10 turns.
    ("refine", right, {"child": 10, "say": 0}),
    ("refine", broken, {"child": 10, "say": 0}),
]


@pytest.mark.parametrize(("name", "fate", "counts"), PUBLISHED)
def test_a_loop_asks_as_often_as_its_source_does(name: str, fate: Any, counts: dict[str, int], axpb: Operator) -> None:
    found = told_of(name, axpb, World(axpb, Task("axpb", "fp32", "cpu"), fate=fate))
    assert {kind: found[kind] for kind in counts} == counts


@dataclass
class LastMoment(World):
    """Kernels are right at the last moment at which their node can still pass, and each is another one."""

    judged: int = 0
    """Kernels of the node under way."""
    nodes: int = 0

    def _kernel(self, request: Request) -> Kernel | None:
        found = super()._kernel(request)
        assert found
        return Kernel(found.operator, found.target, f"{found.source}// {request.number}\n", found.values)

    def __post_init__(self) -> None:
        self.fate = self._late
        super().__post_init__()

    def _late(self, request: Request, kernel: Kernel) -> Status | float:
        self.judged += 1
        # The kernels of three attempts and four patches of each; the first node has one kernel for all of them.
        if self.judged < (13 if self.nodes == 0 else 15):
            return Status.WRONG
        self.judged, self.nodes = 0, self.nodes + 1
        return 0.01


def test_the_longest_chain_of_cutegen_is_within_the_published_bound(axpb: Operator) -> None:
    """11 nodes x 3 attempts x (a kernel and 5 times two calls): 363, less what a chain that goes on can do without."""
    world = LastMoment(axpb, Task("axpb", "fp32", "cpu"))
    found = told_of("cutegen", axpb, world)
    assert (world.nodes, found["generator"], found["optimiser"]) == (11, 1, 30)
    # Of each node the last diagnosis and patch; of the first one two kernels, as it is never written anew.
    assert found["say"] + found["child"] == 363 - 11 * 2 - 2


# --- ablations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profiler", "kinds", "shows"), [
    (PROVIDER, ["profile", "say"], "cudamaster"), ("unfiltered", ["profile", "say"], "unfiltered"),
    ("none", ["say"], "none"),
])  # fmt: skip
def test_a_run_may_want_other_metrics_or_no_profile(
    axpb: Operator, profiler: str, kinds: list[str], shows: str
) -> None:
    world, strategy = World(axpb, Task("axpb", "fp32", "cpu")), make("cudamaster", axpb, profiler=profiler)
    strategy.tell(world.answer(strategy.ask(1)[0]))
    asked = []
    for _ in kinds:
        (request,) = strategy.ask(4)
        asked.append(request)
        strategy.tell(world.answer(request))
    assert [request.kind for request in asked] == kinds and asked[-1].params["profiler"] == shows
    assert strategy.ask(1)[0].params["profiler"] == "none"  # the coder is shown none


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "changes", "words"),
    [
        *((name, {}, "asks language models") for name in ("one_shot", "refine", "agent", *ROLES)),
        ("best_of_n", {"llm": {**LLM, "temperature": 0}}, "set llm.temperature above 0, or llm.seeds=true"),
        ("one_shot", {"llm": LLM, "settings": {"n": 2}}, "`n`: input should be less than or equal to 1"),
        ("astra", {"llm": LLM, "settings": {"roles": {"plannr": "openai/scripted"}}}, "did you mean `planner`"),
        ("cudaforge", {"llm": LLM, "settings": {"roles": {"judge": "openai/other"}}}, "none of the run's models"),
        ("agent", {"llm": {"models": ["outside"]}}, "answers from outside cannot"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(strategy: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        RunConfig(operators=["softmax"], strategy=strategy, **changes).resolved()
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("llm", [{"temperature": 0, "seeds": True}, {"temperature": 0.7}, {}])
def test_samples_that_may_differ_are_taken(llm: dict[str, Any], axpb: Operator) -> None:
    made = RunConfig(operators=["softmax"], strategy="best_of_n", llm={**LLM, **llm})
    ((operator, task),) = made.tasks()
    assert made.make_strategy(operator, task).ask(1)


# --- loops side by side, roles, and models that answer one question at a time ---------------------------------------


@pytest.mark.parametrize(("width", "open_"), [(1, 1), (3, 3)])
def test_so_many_loops_go_on_side_by_side(axpb: Operator, width: int, open_: int) -> None:
    world = World(axpb, Task("axpb", "fp32", "cpu"), fate=lambda *_: 0.1)
    strategy = make("refine", axpb, n=5, turns=2, width=width)
    strategy.tell(world.answer(strategy.ask(1)[0]))
    begun, asked = 0, strategy.ask(9)
    assert len(asked) == open_
    while asked:
        begun += sum(not request.thread for request in asked)
        for request in asked:
            strategy.tell(world.answer(request))
        asked = strategy.ask(9)
        assert len(asked) <= open_
    assert begun == 5


def test_roles_may_be_played_by_other_models_and_others_take_turns_by_loop(axpb: Operator) -> None:
    strategy = make("cudamaster", axpb, models=("large", "small"), width=2, roles={"planner": "small"})
    world = World(axpb, Task("axpb", "fp32", "cpu"))
    strategy.tell(world.answer(strategy.ask(1)[0]))
    profiles = strategy.ask(2)
    for request in profiles:
        strategy.tell(world.answer(request))
    plans = strategy.ask(2)
    assert [(plan.role, plan.model) for plan in plans] == [("planner", "small")] * 2
    for request in plans:
        strategy.tell(world.answer(request))
    assert [(coder.role, coder.model) for coder in strategy.ask(2)] == [("coder", "large"), ("coder", "small")]


def test_a_coder_outside_hears_of_what_does_not_compile_in_its_conversation(axpb: Operator) -> None:
    world = World(axpb, Task("axpb", "fp32", "cpu"), fate=lambda *_: Status.COMPILE_ERROR)
    strategy = make("astra", axpb, models=("outside/me",), n=1, builds=3)
    strategy.tell(world.answer(strategy.ask(1)[0]))
    (plan,) = strategy.ask(4)
    strategy.tell(world.answer(plan))
    (coder,) = strategy.ask(4)
    assert coder.context == (plan.id,) and coder.params["drafts"] == "build" and not coder.thread
    for _ in range(2):
        failed = world.answer(coder)
        strategy.tell(failed)
        before, (coder,) = coder, strategy.ask(4)
        assert failed.kernel and coder.thread == before.id and coder.parents == (failed.kernel.id,)
    last = world.answer(coder)
    strategy.tell(last)
    (plan,) = strategy.ask(4)  # the next round goes on from what is there
    assert last.kernel and plan.role == "planner" and plan.parents[0] == last.kernel.id


# --- cutegen --------------------------------------------------------------------------------------------------------


def test_every_operator_has_a_class_that_says_when_profiles_help() -> None:
    found = {class_of(load(name)) for name in folders()}
    assert found == set(STEPS_BEFORE_PROFILE) == set(CLASSES.values())


def test_kernels_in_cute_are_asked_for_with_two_worked_examples_and_the_menu_of_gpus() -> None:
    operator = load("softmax")
    task = Task("softmax", "bf16", "cuda")
    naive = Parent(Kernel("softmax", "cuda", operator.naive("cuda")))
    said = {}
    for template in ("generator", "optimiser"):
        params = {"workload_set": "realistic", "dialect": "cute", "form": "lines"}
        request = Request(task, 1, "rewrite", (naive.kernel.id,), 1, params, template=f"cutegen/{template}")
        system, user = (str(message["content"]) for message in conversation("rewrite", request, (naive,), operator))
        assert system.count("# A worked example") == 3 and system.count("cute/tensor.hpp") > 2
        assert "wgmma" in system  # of what Hopper has, no loop is told less
        said[template] = user
    assert "no device-level templates" in said["generator"] and "cp.async" not in said["generator"]
    assert "cp.async" in said["optimiser"] and " 1| /*! evo" in said["optimiser"]
    assert '"op": "replace"' in system and "<<<<<<< SEARCH" not in system
