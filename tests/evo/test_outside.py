"""Answers from outside: questions that wait, answers told at whatever time, guests, and what is kept of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from evo.api import Run
from evo.budget import Budget
from evo.config import RunConfig
from evo.inbox import Inbox
from evo.outside.questions import InboxCheck, open_questions, take
from evo.replay import replay
from evo.report.status import model_costs, summary
from evo.report.terminal import costs_line
from evo.search.history import History
from evo.search.models import NOT_TAKEN, restore_spending
from evo.search.task import task_states
from evo.session import run_row
from evo.store import Store, query
from evo.strategies.base import StrategyContext
from evo.strategies.islands import Islands
from fitness.testing import ScriptedFitness
from mutators.asking.answers import NO_GUESTS, Answer, Invitation, LineError, parsed
from mutators.base import CallStatus, Kind
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import UserError
from operators.kernel import Kernel
from tests.choosing import examples, some_slow
from tests.evo import model_runs
from tests.evo.outside_runs import MODEL, USAGE, answer, answer_all, config, session, tell
from tests.evo.test_cli import evo

ROOT = Path(__file__).parents[2]
WAITS = "waits for 7 answers from outside"
"""Three questions at once, and one for each place at which a search without other requests has nothing to do."""
PATIENCE_S = 120.0
"""Longest wait; what takes so long never comes."""


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query(folder, sql).to_pylist()
    return found


def played(folder: Path, made: RunConfig) -> tuple[str, int]:
    """Sessions and answers in turn until the run waits for nothing; why it ended, and how many answers were told."""
    count, reason = 0, ""
    for _ in range(60):
        reason = session(folder, made)
        if not reason.startswith("waits for"):
            break
        count += answer_all(folder)
    return reason, count


def unspoilt(folder: Path) -> None:
    """Every question was asked once and answered once at most, and the run replays."""
    asked = rows(folder, "select cache_key from llm_sent")
    answered = rows(folder, "select cache_key from llm_calls")
    assert len(asked) == len({row["cache_key"] for row in asked})
    assert len(answered) == len({row["cache_key"] for row in answered})
    assert not Inbox(folder).files()
    done = replay(folder)
    assert done.equal, done.difference


def test_a_run_is_played_from_outside_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert session(folder, config()) == WAITS
    (first, *others) = open_questions(folder)
    assert len(others) == 6 and first.model == MODEL
    line = first.to_batch({"max_tokens": 99, "temperature": 0.5})
    assert (line["custom_id"], line["method"], line["url"]) == (first.cache_key, "POST", "/v1/chat/completions")
    assert line["body"]["model"] == "ann" and line["body"]["max_completion_tokens"] == 99
    assert [message["role"] for message in line["body"]["messages"]] == ["system", "user"]

    reason, count = played(folder, config(budget={"evaluations": 6}))
    assert reason == "evaluations 6 of 6"
    spent = model_costs(Run(folder))
    assert spent
    assert (spent.calls, spent.failed, spent.doubted, spent.lost_tokens) == (count, 0, 0, 0)
    assert (spent.tokens_in, spent.tokens_out) == (count * USAGE["prompt_tokens"], count * USAGE["completion_tokens"])
    assert {row["author"] for row in rows(folder, "select author from lineage where model is not null")} == {"ann-1"}
    unspoilt(folder)


@pytest.mark.slow
def test_tasks_are_asked_for_in_turn(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config(operators=["softmax", "relu"], llm={"concurrency": 8})
    session(folder, made)
    tasks = [question.request_id.partition("/")[0] for question in open_questions(folder)]
    turns = [tasks[:place].count(task) for place, task in enumerate(tasks)]
    assert set(tasks) == {"relu", "softmax"} and turns == sorted(turns)


@pytest.mark.slow
def test_what_was_told_while_no_search_runs_counts_in_the_next_session(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config()
    session(folder, made)
    keys = {question.cache_key for question in open_questions(folder)}
    assert tell(folder, answer(open_questions(folder)[0])).answers == 1
    assert len(open_questions(folder)) == 6  # one is answered, though no search has read it
    session(folder, made, stop_after=2)
    assert len(rows(folder, "select * from llm_calls")) == 1
    session(folder, made)
    assert len(keys & {question.cache_key for question in open_questions(folder)}) == 6
    unspoilt(folder)


@pytest.mark.slow
def test_answers_and_guests_are_taken_while_the_search_runs(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config()

    async def running() -> str:
        search = asyncio.ensure_future(asyncio.to_thread(session, folder, made, wait_s=PATIENCE_S))
        guests = 0
        while not search.done():
            await asyncio.sleep(0.05)
            begun = (folder / "evo.sock").exists() and rows(folder, "select 1 from runs")
            if begun and not Inbox(folder).files():
                told = await asyncio.to_thread(answer_all, folder)
                if told and guests < 2:
                    guests += 1
                    source = model_runs.source_in(str(rows(folder, "select messages_json from llm_sent")[0]))
                    await asyncio.to_thread(tell, folder, json.dumps({"source": f"// guest {guests}\n{source}"}))
        return search.result()

    assert asyncio.run(asyncio.wait_for(running(), PATIENCE_S)) == "evaluations 20 of 20"
    assert len(rows(folder, "select * from asks where mutator = 'guest'")) == 2
    session(folder, made)  # which hears what was told when the search had ended
    unspoilt(folder)


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_told(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tests.evo.outside_runs", str(folder), "12"]
    told: list[str] = []
    kills = 0
    process = subprocess.Popen(command, cwd=ROOT)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.05)
        if not (folder / "evo.sock").exists() or Inbox(folder).files():
            continue
        if found := open_questions(folder):
            told += (json.loads(line)["custom_id"] for line in tell(folder, *map(answer, found)).lines)
            if kills < 4:  # the file has just come to lie there, or is being taken
                kills += 1
                time.sleep(0.3 * kills)
                process.send_signal(signal.SIGKILL)
                process.wait()
                process = subprocess.Popen(command, cwd=ROOT)
    assert process.wait() == 0 and kills
    assert len(told) == len(set(told))  # what is answered looks open to nobody
    spent = model_costs(Run(folder))
    # One that was withdrawn between the look at it and its answer is refused, and the event says so.
    refused = rows(folder, "select distinct detail_json from events where kind = 'not_taken'")
    assert all("withdrawn" in row["detail_json"] for row in refused)
    assert spent and spent.calls == len(told) - len(refused) - len(rows(folder, "from questions"))
    assert spent.tokens_in == spent.calls * USAGE["prompt_tokens"] and not spent.lost_tokens
    unspoilt(folder)


@pytest.mark.slow
def test_a_file_that_was_taken_before_a_kill_is_taken_again_and_nothing_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = tmp_path / "run", config()
    session(folder, made)
    guest = {"source": "int x;", "author": "bob"}
    tell(folder, *map(answer, open_questions(folder)), json.dumps(guest))
    (file,) = Inbox(folder).files()
    kept = file.read_bytes()
    session(folder, made)
    before = rows(folder, "select count(*) as n, sum(tokens_in) as t from llm_calls")
    file.write_bytes(kept)
    session(folder, made)
    assert rows(folder, "select count(*) as n, sum(tokens_in) as t from llm_calls") == before
    assert len(rows(folder, "select * from asks where mutator = 'guest'")) == 1
    unspoilt(folder)


@pytest.mark.slow
def test_what_cannot_be_taken_is_said_line_by_line(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config()
    session(folder, made)
    first, second, third, *_ = open_questions(folder)
    failed = {"custom_id": third.cache_key, "response": None, "error": {"code": "expired", "message": "too late"}}
    cut = json.loads(answer(second))
    cut["response"]["body"]["choices"][0]["finish_reason"] = "length"
    found = tell(
        folder, "[1]", '{"custom_id": "nobody", "content": "x"}', answer(first), answer(first), json.dumps(cut),
        json.dumps(failed), '{"source": "x", "task": "gelu"}', '{"source": "x", "parents": ["f00"]}', "{",
    )  # fmt: skip
    assert found.answers == 2
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "a JSON object was expected, not list",
        "nobody: the run has no such question; give the id of one that is open",
        f"{first.cache_key}: it is answered already, and the first answer counts",
        f"{third.cache_key}: its provider gave no answer, so the question stays open: too late",
        "there is no task `gelu`; this run has softmax/fp32/cpu",
        "parent `f00`: no kernels of softmax/fp32/cpu have such an id",
        "no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]
    # What another program leaves in the inbox is looked at as well.
    Inbox(folder).put([answer(first).replace("comment", "other"), "nonsense"])
    session(folder, made)
    assert third.cache_key in {question.cache_key for question in open_questions(folder)}
    said = [json.loads(row["detail_json"]) for row in rows(folder, f"from events where kind = '{NOT_TAKEN}'")]
    assert "no JSON" in said[-1]["problem"]
    calls = {row["cache_key"]: row for row in rows(folder, "select * from llm_calls")}
    assert calls[second.cache_key]["status"] == "cut"
    again = tell(folder, answer(first))
    assert again.problems == [f"line 1: {first.cache_key}: it is answered already, and the first answer counts"]
    unspoilt(folder)


@pytest.mark.slow
def test_tokens_and_money_are_counted_as_told_or_estimated_and_marked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = config(llm={"prices": {MODEL: {"input": 1.0, "output": 2.0}}}, budget={"evaluations": 20, "cost_usd": 9.0})
    session(folder, made)
    told_cost, by_price, unknown, *_ = open_questions(folder)
    lines = (
        {"custom_id": told_cost.cache_key, "content": "no", "cost_usd": 0.25, "usage": USAGE, "author": "eve"},
        {"custom_id": by_price.cache_key, "content": "no", "usage": {"input_tokens": 2000, "output_tokens": 3}},
        {"custom_id": unknown.cache_key, "refused": "I had rather not", "usage": {"prompt_tokens": -1}},
    )
    tell(folder, *map(json.dumps, lines))
    session(folder, made)
    calls = {row["cache_key"]: row for row in rows(folder, "select * from llm_calls")}
    first, second, third = (calls[question.cache_key] for question in (told_cost, by_price, unknown))
    assert (first["tokens_in"], first["tokens_out"], first["cost_usd"], first["author"]) == (1000, 10, 0.25, "eve")
    assert (second["tokens_in"], second["cost_usd"]) == (2000, pytest.approx(2006e-6))
    size = sum(len(message["content"].encode()) for message in unknown.messages)
    assert third["status"] == "refused" and third["tokens_in"] == -(-size // 4)
    assert third["usage_doubt"] == "no usage that can be was told: estimated" and not first["usage_doubt"]
    with Store(folder, create=False) as store:
        again = Budget({})
        restore_spending(again.spending, store)
    (total,) = rows(folder, "select sum(tokens_in) as tokens_in, sum(cost_usd) as cost_usd from cost")
    assert (again.spending.tokens_in, again.spending.cost_usd) == (total["tokens_in"], pytest.approx(total["cost_usd"]))


@pytest.mark.slow
def test_a_budget_that_answers_have_used_up_ends_the_run(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config(budget={"tokens": 2500})
    session(folder, made)
    answer_all(folder)
    assert session(folder, made) == "tokens 7070 of 2500"
    unspoilt(folder)


GUEST = """/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
// {}
"""


@pytest.mark.parametrize("strategy", some_slow(["islands", "best_of_n", "random", "tune_only"], 1))
def test_guests_are_individuals_of_every_strategy(strategy: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def searched(evaluations: int) -> None:
        session(folder, model_runs.config("", strategy=strategy, llm=None, budget={"evaluations": evaluations}))

    searched(3)
    (naive,) = rows(folder, "select kernel_id from individuals where mutator = 'ancestor' limit 1")
    tell(folder, json.dumps({"source": GUEST.format(1), "author": "bob", "parents": [naive["kernel_id"][:9]]}))
    searched(5)
    tell(folder, json.dumps({"source": GUEST.format(2), "note": "nothing new"}))
    again = json.dumps({"source": GUEST.format(2), "note": "told again", "task": "softmax"})
    (problem,) = tell(folder, again).problems
    assert problem.endswith("is handed in already, and waits for its verdict: do not hand it in again")
    Inbox(folder).put([again])  # at the same moment from elsewhere
    searched(8)
    found = rows(folder, "select * from lineage where mutator = 'guest' order by number desc")
    assert [(row["number"], row["author"], row["description"]) for row in found] == [
        (-1, "bob", "a guest of bob"),
        (-2, "ann", "nothing new"),
    ]
    assert found[0]["parents"] == [naive["kernel_id"]] and found[0]["generation"] == 1
    assert found[1]["parents"] == [] and all(row["status"] for row in found)
    (said,) = rows(folder, f"from events where kind = '{NOT_TAKEN}'")
    assert "is handed in already, and waits for its verdict" in said["detail_json"]
    unspoilt(folder)


@pytest.mark.slow
def test_a_population_far_away_is_rebuilt_with_its_guests(tmp_path: Path) -> None:
    from evo.cluster.populations import Populations, _Past, _steps  # with Ray

    folder = tmp_path / "run"
    made = model_runs.config("", strategy="islands", llm=None, budget={"evaluations": 12})
    session(folder, made, stop_after=3)
    tell(folder, json.dumps({"source": GUEST.format(6)}))
    session(folder, made)
    ((operator, task),) = made.tasks()
    states = task_states(made)
    far = Populations(made.to_json(), str(operator.folder))
    with Store(folder, create=False) as store:
        (row,) = store.rows(
            "select (select count(distinct seq) from asks where wanted > 0) + (select count(*) from tells)"
            " + (select count(*) from profiles) as steps"
        ).to_pylist()
        for steps in _steps(store, task, _Past(row["steps"])):
            far.learn(steps)
        history = History(states, store, Budget({}), workload_set="cpu", now=time.time)
        history.restore(lambda individual: None)
    here = states[task].strategy
    assert far.best(task) == here.best
    assert [request.digest for request in far.ask(task, 5)] == [request.digest for request in here.ask(5)]


@pytest.mark.slow
def test_a_guest_that_is_there_early_is_judged_right_after_the_naive_kernel(axpb: Operator, tmp_path: Path) -> None:
    run, folder, source = tmp_path / "run", tmp_path / "axpb", axpb.naive("cpu")
    copytree(axpb.folder, folder)
    for name in "abcdefgh":
        (folder / f"{name}.cpp").write_text(f"{source}// {name}\n", encoding="utf-8")

    def searched(evaluations: int) -> None:
        made = {"strategy": "islands", "operators": [str(folder)], "ancestors": "all"}
        session(run, model_runs.config("", llm=None, budget={"evaluations": evaluations}, **made))

    searched(1)
    tell(run, json.dumps({"source": f"{source}// guest\n"}))
    searched(16)
    told = rows(run, "select mutator from lineage join tells using (task, number) order by seq")
    order = [row["mutator"] for row in told if row["mutator"] in ("ancestor", "guest")]
    assert order == ["ancestor", "guest", *["ancestor"] * 8]


@pytest.mark.slow
def test_a_champion_that_a_guest_beats_is_confirmed_too(axpb: Operator, tmp_path: Path) -> None:
    """`evo champion` holds the two against each other at every size, not by the few of a screening."""
    run, folder, source = tmp_path / "run", tmp_path / "axpb", axpb.naive("cpu")
    copytree(axpb.folder, folder)
    (folder / "champions").mkdir()
    (folder / "champions" / "here.cpp").write_text(f"{source}// champion\n", encoding="utf-8")
    made = {"strategy": "islands", "operators": [str(folder)], "ancestors": "all"}
    gains = {"// champion": 1.0, "// guest": 2.0}

    def searched(evaluations: int) -> None:
        found = model_runs.config("", llm=None, budget={"evaluations": evaluations}, **made)
        ((operator, task),) = found.tasks()
        naive = Kernel(operator.name, "cpu", source)
        stage = ScriptedFitness(
            task, naive, lambda kernel: gains.get(kernel.source.splitlines()[-1], 0.0), operator=operator
        )
        session(run, found, fitness={task: stage})

    searched(1)
    tell(run, json.dumps({"source": f"{source}// guest\n"}))
    searched(3)
    confirmed = rows(run, "select source from evaluations join kernels using (kernel_id) where level = 'confirmed'")
    assert {row["source"].splitlines()[-1] for row in confirmed} >= {"// champion", "// guest"}
    (champion,) = rows(run, "select level from best join kernels using (kernel_id) where source like '%// guest%'")
    assert champion["level"] == "confirmed"


@pytest.mark.slow
def test_a_guest_that_no_evaluation_is_left_for_waits_for_a_larger_budget(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = model_runs.config("", strategy="random", llm=None, budget={"evaluations": 4})
    session(folder, made)
    tell(folder, json.dumps({"source": GUEST.format(3)}))
    assert session(folder, made) == "evaluations 4 of 4"
    assert not rows(folder, "from lineage where mutator = 'guest'") and not Inbox(folder).files()
    session(folder, made.model_copy(update={"budget": {"evaluations": 6}}))
    assert rows(folder, "from lineage where mutator = 'guest'")
    unspoilt(folder)


@pytest.mark.slow
def test_a_guest_is_judged_before_evaluations_are_kept_for_answers(tmp_path: Path) -> None:
    folder, made = tmp_path / "run", config(budget={"evaluations": 5})
    session(folder, made)
    assert len(open_questions(folder)) == 4  # all that the naive kernel left
    tell(folder, json.dumps({"source": GUEST.format(5)}))
    assert session(folder, made) == "waits for 4 answers from outside"
    assert rows(folder, "from lineage where mutator = 'guest'")
    assert answer_all(folder) == 4
    assert played(folder, made)[0] == "evaluations 5 of 5"
    unspoilt(folder)


def test_answers_from_outside_keep_no_other_model_waiting() -> None:
    operator = load("softmax")
    context = StrategyContext(
        operator, Task("softmax", "fp32", "cpu"), 1, models=("outside", "openai/x"), questions=2, ancestors=("naive",)
    )
    strategy = Islands(context, {"least_share": 1.0})
    asked = strategy.ask(3)
    from tests.evo.worlds import World

    world = World(operator, context.task)
    world.rivals = strategy.rival
    strategy.tell(world.answer(asked[0]))
    for _ in range(200):
        for request in strategy.ask(1):
            if request.model != "outside":  # whose answer never comes
                strategy.tell(world.answer(request))
                asked.append(request)
    models = [request.model for request in asked if request.kind is Kind.CHILD]
    assert models.count("openai/x") > 20


# --- lines of whatever kind -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("custom_id", "content", "refused", "response", "error", "usage", "cost_usd", "author", "source", "task",
        "parents", "values", "note", "finish_reason", "status_code", "body", "choices", "message", "model")  # fmt: skip
LINES = st.text(max_size=60) | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6).map(json.dumps)


@st.composite
def nearly_right(draw: st.DrawFn) -> str:
    """A right answer in which one value, at whatever depth, is something else."""
    message = {"content": draw(JSON)}
    choice = {"message": draw(st.just(message) | JSON), "finish_reason": draw(st.just("stop") | JSON)}
    body = {"choices": draw(st.just([choice]) | JSON), "usage": draw(JSON), "model": draw(st.just("m") | JSON)}
    response = {"status_code": draw(st.just(200) | JSON), "body": draw(st.just(body) | JSON)}
    return json.dumps({"custom_id": draw(st.just("k") | JSON), "response": response, "error": draw(st.none() | JSON)})


@given(LINES | nearly_right())
@examples(300)
def test_a_line_is_taken_or_refused_in_one_line(line: str) -> None:
    try:
        item = parsed(line)
    except LineError as error:
        assert str(error) and "\n" not in str(error)
        return
    if isinstance(item, Answer):
        assert item.custom_id and item.status in (CallStatus.ANSWERED, CallStatus.CUT, CallStatus.REFUSED)
        item.text.encode()
    else:
        assert isinstance(item, Invitation)
        assert parsed(item.to_line()) == item


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u2028", "x" * 10_000])
def test_what_is_wrong_with_a_line_is_shown_in_one_line(name: str) -> None:
    with pytest.raises(LineError) as caught:
        parsed(json.dumps({"custom_id": name, "error": f"late {name}"}))
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 2_000


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "run"
    session(folder, config())
    return folder


@pytest.mark.slow
@given(st.lists(LINES | nearly_right(), max_size=4))
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_in_the_inbox_stops_a_search(waiting: Path, lines: list[str]) -> None:
    InboxCheck(waiting).look_at((f"{number}", line) for number, line in enumerate(lines))
    Inbox(waiting).put([line.replace("\n", " ") for line in lines])
    assert session(waiting, config()) == WAITS
    assert not Inbox(waiting).files()


@pytest.mark.parametrize("depth", some_slow([300, 600, 900, 960, 980, 990, 5_000], 2))
def test_what_is_nested_deeply_is_taken_or_refused(waiting: Path, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    key = json.dumps(open_questions(waiting)[0].cache_key)
    used = f'{{"custom_id": {key}, "content": "I do not know.", "usage": {{"x": {nested}}}}}'
    InboxCheck(waiting).look_at([("1", used)])
    Inbox(waiting).put([f'{{"custom_id": {key}, "error": {nested}}}', f'{{"source": {nested}}}', used])
    assert session(waiting, config()) == WAITS
    assert not Inbox(waiting).files()


@pytest.mark.slow
def test_what_cannot_be_read_or_removed_keeps_no_search_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    session(folder, config())
    os.mkfifo(Inbox(folder).put(["{}"]).with_name("0.jsonl"))  # to read it would never end
    (folder / "inbox" / "1.jsonl").mkdir()
    assert len(open_questions(folder)) == 7
    assert tell(folder, answer(open_questions(folder)[0])).answers == 1

    def refuse(file: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "discard", staticmethod(refuse))
        session(folder, config())
    session(folder, config())
    assert len(rows(folder, "from llm_calls")) == 1
    unspoilt(folder)


def test_a_file_may_do_nothing_that_is_refused_when_it_is_told(tmp_path: Path) -> None:
    folder, secret = tmp_path / "run", tmp_path / "secret.jsonl"
    secret.write_text('{"password": "of another program"}\n')
    made = config(cell={"comparison": "c", "arm": "a", "under_way": 3})
    session(folder, made)
    question = open_questions(folder)[0]
    guest = json.dumps({"source": "int x;", "author": "ann"})
    assert tell(folder, guest).problems == [f"line 1: {NO_GUESTS}"]
    Inbox(folder).put([guest, answer(question)])
    (folder / "inbox" / "0.jsonl").symlink_to(secret)
    os.link(secret, folder / "inbox" / ".1.jsonl")
    session(folder, made)
    assert not rows(folder, "from asks where mutator = 'guest'")
    (said,) = [json.loads(row["detail_json"]) for row in rows(folder, f"from events where kind = '{NOT_TAKEN}'")]
    assert said["problem"] == NO_GUESTS
    assert [row["cache_key"] for row in rows(folder, "from llm_calls")] == [question.cache_key]
    with pytest.raises(OSError, match="symbolic"):
        Inbox.lines(folder / "inbox" / "0.jsonl")
    assert secret.exists() and not Inbox(folder).files()


def test_an_inbox_that_takes_no_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("")
    assert Inbox(tmp_path).files() == []
    with pytest.raises(UserError, match="inbox: nothing can be told there: "):
        Inbox(tmp_path).put(["{}"])


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ask_and_tell_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, made, out = tmp_path / "run", config(), tmp_path / "prompts.jsonl"
    session(folder, made)
    code, _, said = evo(monkeypatch, capsys, "ask", str(folder), "-n", "2", "--out", str(out), "--model", "gpt-x")
    assert code == 0 and f"2 of 7 open questions written to {out}" in said
    asked = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["body"]["model"] for line in asked] == ["gpt-x", "gpt-x"]
    code, text, said = evo(monkeypatch, capsys, "ask", str(folder), "-n", "1", "--text")
    assert said.endswith("FILE --to ID\n")
    assert text.startswith(f"=== {asked[0]['custom_id']} (rewrite for softmax/fp32/cpu#1)\n\n--- system\n")

    (tmp_path / "answer.md").write_text("I have no idea.")
    to = ("--to", asked[0]["custom_id"][:10], "--author", "eve")
    code, shown, said = evo(monkeypatch, capsys, "tell", str(folder), str(tmp_path / "answer.md"), *to)
    assert code == 0 and "1 answer, 0 kernels" in shown and "take them in with: evo resume" in said
    (tmp_path / "kernel.cpp").write_text(GUEST.format(4))
    (tmp_path / "answers.jsonl").write_text('{"custom_id": "x", "content": "y"}\n\n')
    files = (str(tmp_path / "kernel.cpp"), str(tmp_path / "answers.jsonl"))
    code, shown, said = evo(monkeypatch, capsys, "tell", str(folder), *files, "--author", "bob", "--json")
    assert code == 1 and json.loads(shown) == {
        "answers": 0, "guests": 1,
        "problems": [f"{files[1]}:1: x: the run has no such question; give the id of one that is open"],
    }  # fmt: skip
    session(folder, made)
    assert rows(folder, "select author from llm_calls") == [{"author": "eve"}]
    assert rows(folder, "select author from lineage where mutator = 'guest'") == [{"author": "bob"}]
    code, shown, _ = evo(monkeypatch, capsys, "status", str(folder))
    assert " questions wait for answers from outside: evo ask" in shown


def test_who_cannot_be_asked_or_told_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    made = model_runs.config("", strategy="random", llm=None)
    with Store(folder, create=True) as store:
        store.commit({"runs": [run_row(made, folder)]}).result()
    code, _, said = evo(monkeypatch, capsys, "ask", str(folder))
    assert code == 2 and "asks no language model; questions for outside come of a run with --llm outside" in said
    code, _, said = evo(monkeypatch, capsys, "tell", str(folder), str(tmp_path / "nowhere.cpp"))
    assert code == 2 and "nowhere.cpp: cannot be read: No such file" in said
    code, _, said = evo(monkeypatch, capsys, "tell", str(folder), str(tmp_path), "--to", "abc")
    assert code == 2 and "--to abc: no questions have such an id" in said
    (tmp_path / "answer.md").write_text("CHANGE: rows in parallel\n")
    code, _, said = evo(monkeypatch, capsys, "tell", str(folder), str(tmp_path / "answer.md"))
    assert code == 2 and "there is no header" in said and "the text of an answer is told with --to ID" in said


def test_what_was_told_before_is_taken_in_where_it_is_told_again(
    waiting_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first time without --go, which the second adds; its line is an answer by then."""
    folder = Path(shutil.copytree(waiting_folder, tmp_path / waiting_folder.name))
    (question,) = open_questions(folder)
    (tmp_path / "answer.jsonl").write_text(json.dumps({"custom_id": question.cache_key, "refused": "I know none."}))
    began: list[Path] = []
    monkeypatch.setattr("evo.session.resume", lambda folder, *_: began.append(folder))
    monkeypatch.setattr("evo.cli.outside.show_search", lambda folder, search, **_: search(None))
    for go in ((), ("--go",)):
        assert not began
        evo(monkeypatch, capsys, "tell", str(folder), str(tmp_path / "answer.jsonl"), *go)
    assert began == [folder]


@pytest.mark.slow
def test_the_real_engine_goes_on_when_it_is_told(
    waiting_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = ROOT / "tests" / "data" / "axpb"
    folder = Path(shutil.copytree(waiting_folder, tmp_path / waiting_folder.name))
    source = (operator / "naive.cpp").read_text()
    better = source[: source.index("void")] + (
        "void axpb(const T* x, const T* b, T* y, T alpha, int n) {\n"
        "    for (int i = 0; i < n; i++) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));\n}\n"
    )
    (tmp_path / "better.cpp").write_text(better)
    code, _, _ = evo(
        monkeypatch, capsys, "tell", str(folder), str(tmp_path / "better.cpp"), "--author", "bob", "--go",
        "--budget", "3evals", "--json",
    )  # fmt: skip
    assert code == 0
    (guest,) = rows(folder, "select author, status, speedup from lineage where mutator = 'guest'")
    assert guest["author"] == "bob" and guest["status"] == "correct"
    assert replay(folder).equal


@pytest.mark.slow
def test_a_question_that_is_not_taken_is_asked_anew_once_faster_kernels_are_known(tmp_path: Path) -> None:
    """No question is about the naive kernel any more once a guest is far faster, but for one that is worked on."""
    folder, made = tmp_path / "run", config(strategy="islands", budget={"evaluations": 4})
    (operator, task) = made.tasks()[0]
    naive = Kernel(operator.name, "cpu", operator.naive("cpu"))

    def searched(evaluations: int) -> None:
        stage = ScriptedFitness(task, naive, lambda kernel: 3.0 if "// guest" in kernel.source else -0.5)
        session(folder, made.model_copy(update={"budget": {"evaluations": evaluations}}), fitness={task: stage})

    searched(4)
    first = open_questions(folder)
    assert len(first) > 1
    take(folder, first[:1])
    tell(folder, json.dumps({"source": f"{naive.source}// guest\n", "author": "bob"}))
    searched(30)
    now = {question.cache_key: question for question in open_questions(folder)}
    assert now[first[0].cache_key].is_taken
    assert not {question.cache_key for question in first[1:]} & now.keys()
    assert all("// guest" in str(q.messages) for key, q in now.items() if key != first[0].cache_key) and len(now) > 1
    spent = model_costs(Run(folder))
    assert spent and spent.failed == 0 and spent.asked_anew >= len(first) - 1
    assert f"{spent.asked_anew} asked anew" in costs_line(spent) and "failed" not in costs_line(spent)
    assert [found.unavailable for found in summary(Run(folder))] == [0], "the machine and the model had time"
    late = tell(folder, answer(first[1]))
    assert not late.answers and "withdrawn" in late.problems[0]
    assert tell(folder, answer(first[0])).answers == 1
    searched(40)
    unspoilt(folder)
