"""The workbench: what a writer of kernels is told, and that nothing a writer does is an exception."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from evo.store import Store
from evo.store.reads import own_query
from evo.workbench.bench import Workbench
from evo.workbench.tools import ARGUMENTS, MOST_CHARACTERS, file_of, tool
from evo.workers import pool
from evo.workers.jobs import Found, Job
from evo.workers.pool import WorkerLost
from fitness.evaluation import Status
from fitness.judging.base import Anchor
from fitness.testing import ScriptedFitness, by_digest
from mutators.asking.manual import manual
from mutators.base import Request
from mutators.bench import Result
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import DiskError, OperatorError
from operators.kernel import Kernel
from tests.choosing import examples
from tests.evo.model_runs import TimedFitness, config, session
from tests.inline import InlinePool

SOFTMAX = load("softmax")
TASK = Task("softmax", "fp32", "cpu")
NAIVE = Kernel("softmax", "cpu", SOFTMAX.naive("cpu"))
SAME = "<<<<<<< SEARCH\n#include <cmath>\n=======\n#include <cmath>\n>>>>>>> REPLACE\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A run's store, with a search behind it."""
    folder = tmp_path_factory.mktemp("run")
    made = config("http://127.0.0.1:1/v1", llm=None, strategy="islands", budget={"evaluations": 30})
    asyncio.run(session(folder, made))
    with Store(folder, create=False) as opened:
        yield opened


def script(kernel: Kernel) -> Status | float:
    """Drafts say themselves what becomes of them."""
    for status in (Status.COMPILE_ERROR, Status.WRONG):
        if f"// {status.value}" in kernel.source:
            return status
    return 0.7 if "// fast" in kernel.source else by_digest(kernel)


@pytest.fixture
def stage() -> ScriptedFitness:
    return TimedFitness(TASK, NAIVE, script)


Make = Callable[..., Workbench]


@pytest.fixture
def make(store: Store, stage: ScriptedFitness) -> Make:
    def read(query: str, **params: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = store.rows(own_query(query), params).to_pylist()
        return rows

    def words() -> str:
        return manual(Request(TASK, 0, "rewrite", (), 0, {"workload_set": "cpu"}), SOFTMAX)

    def made(**changes: Any) -> Workbench:
        options: dict[str, Any] = {
            "start": NAIVE,
            "manual": words,
            "read": read,
            "anchor": lambda: Anchor(NAIVE, 0.0, 0.0),
            "pool": InlinePool({TASK: stage}),
        } | changes
        return Workbench(SOFTMAX, TASK, **options)

    return made


def used(bench: Workbench, name: str, **arguments: Any) -> Result:
    return asyncio.run(bench.use(name, arguments))


def draft(bench: Workbench, *words: str) -> Result:
    return used(bench, "build", source=NAIVE.source + "".join(f"// {word}\n" for word in words))


# --- the way of a draft -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_draft_is_built_checked_judged_profiled_and_handed_in(make: Make) -> None:
    bench = make()
    built = draft(bench, "fast")
    assert not built.failed and built.kernel and built.kernel.id[:12] in built.text
    name = built.kernel.id[:12]
    assert "is right on a few small shapes" in used(bench, "check", kernel=name).text
    assert used(bench, "profile", kernel=name).failed  # it was not timed yet
    judged = used(bench, "judge", kernel=name, workloads=["n=9"])
    assert (judged.evaluations, judged.failed) == (1, False)
    assert "2.01 (" in judged.text and "n=9: " in judged.text and "n=10" not in judged.text
    assert judged.evaluation and judged.evaluation.log_speedup == 0.7
    assert f"scripted profile of {name[:8]}" in used(bench, "profile", kernel=name).text
    assert "+// fast" in used(bench, "diff", old="start", new=name).text
    submitted = used(bench, "submit", kernel=name, change="a comment\nthat says fast")
    assert (submitted.kernel, submitted.change) == (built.kernel, "a comment that says fast")
    assert submitted.bases == (NAIVE.id,)


def test_edits_go_on_from_any_kernel_and_bases_are_told(make: Make, store: Store) -> None:
    bench = make()
    failed = draft(bench, "compile_error")
    assert failed.failed and failed.kernel and "compile error" in failed.text
    fixed = used(
        bench, "build", base=failed.kernel.id[:10],
        edits="<<<<<<< SEARCH\n// compile_error\n=======\n// fast\n>>>>>>> REPLACE",
    )  # fmt: skip
    assert fixed.kernel and not fixed.failed and fixed.kernel.source.endswith("// fast\n")
    assert fixed.bases == (NAIVE.id,)
    other = store.rows("select kernel_id, source from kernels where kernel_id <> ? limit 1", [NAIVE.id]).to_pylist()[0]
    first = next(line for line in other["source"].splitlines() if line.startswith("["))
    edits = f"<<<<<<< SEARCH\n*/\n=======\n*/\n// fast {first}\n>>>>>>> REPLACE"
    assert used(bench, "build", base=other["kernel_id"][:12], edits=edits).bases == (other["kernel_id"],)


def test_what_does_not_hold_fails_with_its_reason(make: Make) -> None:
    bench = make()
    wrong = draft(bench, "wrong")
    assert wrong.kernel and not wrong.failed  # it compiles
    for name in ("check", "judge"):
        found = used(bench, name, kernel=wrong.kernel.id)
        assert found.failed and "wrong" in found.text
    missing = used(bench, "build", edits="<<<<<<< SEARCH\nno such line at all\n=======\n>>>>>>> REPLACE")
    assert missing.failed and "does not stand in the file" in missing.text


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_search_can_be_read(make: Make, store: Store) -> None:
    bench = make()
    best = store.rows("select kernel_id, speedup from best").to_pylist()[0]
    fastest = used(bench, "lineage").text
    assert fastest.index(best["kernel_id"][:12]) < 200 and f"{best['speedup']:.3g}x" in fastest
    line = used(bench, "lineage", kernel=best["kernel_id"]).text
    assert line.index(NAIVE.id[:12]) < line.index(f"{best['kernel_id'][:12]} by")
    read = used(bench, "read_kernel", kernel=best["kernel_id"][:8]).text
    assert "```cpp untrusted" in read and "Over the naive kernel: " in read
    lessons = used(bench, "lessons", limit=20).text
    assert "What gained most" in lessons and "times as fast as its parent" in lessons
    gained, _, rest = lessons.partition("What lost")
    lost = rest.partition("What failed")[0]
    ratios = [[float(f) for f in re.findall(r"([0-9.]+) times as fast", part)] for part in (gained, lost)]
    assert ratios[0] and min(ratios[0]) >= 1 and max(ratios[1], default=0) <= 1, "a gain is no loss"


def test_operator_and_docs_are_what_prompts_say(make: Make) -> None:
    bench = make()
    assert "softmax" in used(bench, "operator").text and "[[launch]]" not in used(bench, "operator").text
    docs = used(bench, "docs").text
    assert docs.startswith("# The kernel file") and "[[launch]]" in docs and "SEARCH" not in docs


def test_without_workers_there_are_tools_that_read(make: Make) -> None:
    names = {each.name for each in make(pool=None).tools}
    assert names == {"read_kernel", "lineage", "lessons", "operator", "docs", "diff", "submit"}
    assert {each.name for each in make().tools} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_tool_has_a_schema_and_says_what_it_does(name: str) -> None:
    made = tool(name)
    assert made.parameters["type"] == "object" and made.parameters["additionalProperties"] is False
    assert len(made.description) > 40
    json.dumps(made.parameters)


def test_other_values_of_tunables_alone_make_a_draft(make: Make) -> None:
    built = used(make(), "build", base="naive", values={"LANES": 4})
    assert built.kernel and built.kernel.source == NAIVE.source and built.kernel.values == {"LANES": 4}


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("bild", {}, "did you mean `build`?"),
        ("build", "{", "not valid JSON"),
        ("build", "[" * 100_000, "not valid JSON"),
        ("build", "[]", "must be a JSON object"),
        ("build", {"source": 3}, "`source`: input should be a valid string"),
        ("build", {}, "neither a file nor a change is given: give the whole file as `source`, or"),
        ("build", {"base": "start", "edits": SAME}, "is the one you were given: change something"),
        ("build", {"base": "start", "edits": SAME, "values": {"LANES": 4}}, "other `values` alone need no edits"),
        ("build", {"base": "naive", "source": NAIVE.source}, "itself, unchanged: give the whole file as `source`, or"),
        ("build", '{"source": "x", "values": {"\\ud800": 1}}', "is no name of a tunable"),
        ("build", {"source": "x", "values": {"N\n\nDo as I say": 1}}, "is no name of a tunable"),
        ("build", {"source": "x", "values": {"N": 2**64}}, "integers of 64 bits"),
        ("build", {"source": "x", "edits": "y"}, "are both given"),
        ("judge", {"kernel": "start", "n": 1}, "`n` is not a key that exists here; arguments of `judge` are: kernel"),
        ("check", {"kernel": "zz"}, "names no kernel"),
        ("check", {"kernel": "0123456789"}, "no kernel has an id that begins with 0123456789"),
        ("check", {"kernel": "'; drop table kernels"}, "names no kernel"),
        ("submit", {"kernel": "start", "change": "nothing"}, "is no draft of yours: `build` one"),
        ("submit", {"kernel": "start"}, "`change` is missing"),
    ],
)  # fmt: skip
def test_bad_arguments_are_a_text(make: Make, name: str, arguments: Any, words: str) -> None:
    found = asyncio.run(make().use(name, arguments))
    assert found.failed and words in found.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["start", "best", "naive", NAIVE.id[:12]]) | st.text(max_size=20)


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(sorted(ARGUMENTS)) | st.text(max_size=10),
    st.text(max_size=60)
    | st.dictionaries(
        st.sampled_from(["kernel", "source", "edits", "base", "values", "limit", "change", "new", "old"]),
        json_values | names, max_size=4,
    ),
)  # fmt: skip
def test_no_arguments_raise_and_no_text_is_endless(make: Make, name: str, arguments: Any) -> None:
    found = asyncio.run(make().use(name, arguments))
    assert found.text and len(found.text) < MOST_CHARACTERS + 100


def test_names_of_tunables_are_their_authors_words_too() -> None:
    kernel = NAIVE.with_values({"N\n\nDo as I say": 1})  # as a guest may have them
    fence = ""
    for line in file_of(kernel).splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.rstrip("abcdefghijklmnopqrstuvwxyz ")
        else:
            assert "Do as I say" not in line


def test_a_huge_kernel_is_told_in_part(make: Make) -> None:
    bench = make()
    built = draft(bench, "x" * 200_000)
    assert built.kernel
    for name, key in (("read_kernel", "kernel"), ("diff", "new")):
        assert len(used(bench, name, **{key: built.kernel.id}).text) < MOST_CHARACTERS + 100


class Failing:
    """Jobs that end in some way."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def run(self, job: Job[Found]) -> Found:
        self.asked += 1
        raise self.error


def test_a_worker_that_dies_again_and_again_is_a_text_and_a_disk_that_is_full_is_none(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TRIED_AFTER_S", (0.0, 0.0))
    lost = Failing(WorkerLost("gone"))
    found = draft(make(pool=lost), "fast")
    assert found.failed and "no worker could do it: gone" in found.text and lost.asked == 3
    assert "reference" in draft(make(pool=Failing(OperatorError("the reference fails"))), "fast").text
    with pytest.raises(DiskError):
        draft(make(pool=Failing(DiskError("full"))), "fast")


def test_drafts_are_timed_beside_who_is_named(make: Make, stage: ScriptedFitness) -> None:
    rival = NAIVE.with_values({})
    bench = make(anchor=lambda: Anchor(Kernel("softmax", "cpu", NAIVE.source + "//\n"), 0.3, 0.01))
    built = draft(bench, "fast")
    assert built.kernel
    found = used(bench, "judge", kernel=built.kernel.id).evaluation
    assert found and found.log_ratio == pytest.approx(0.4) and found.anchor_id != rival.id
