"""Agent loops driven by a scripted model through stories, and traces of what was asked and what became of it.

Each story is a task of its own, so that one run tells five of them. As a program, `python -m tests.evo.stories`, it
writes the golden traces anew.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evo.store import query
from fitness.evaluation import Status
from operators.catalog import load
from operators.kernel import Kernel
from tests.evo import model_runs
from tests.evo.model_runs import FENCE, TimedFitness
from tests.mutators.llm_server import LlmServer, Reply

FOLDER = Path(__file__).parent / "golden" / "loops"
FATES: Mapping[str, Status | float] = {"broken": Status.COMPILE_ERROR, "wrong": Status.WRONG, "slow": -0.5}
"""Fate of kernels by their last mark; others are fast, later ones faster."""
MARK = re.compile(r"// (k(\d+)) (\w+)")


@dataclass(frozen=True)
class Story:
    """A model's answers on one task: fates of its kernels, and of its words, in their order; then all goes well."""

    operator: str
    kernels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


STORIES: Mapping[str, Story] = {
    "success": Story("relu"),
    "compile error": Story("sigmoid", ("fast", "broken", "broken", "broken")),
    "wrong result": Story("elu", ("wrong", "wrong", "fast", "wrong")),
    "slower kernel": Story("selu", ("fast", "slow")),
    "refusal": Story("gelu", ("fast", "refused"), ("well", "refused")),
}
BUDGET_END = "end of the budget"
LOOPS: Mapping[str, Mapping[str, Any]] = {
    "one_shot": {},
    "best_of_n": {"n": 3},
    "refine": {"n": 1, "turns": 4},
    "astra": {"n": 1, "rounds": 3, "builds": 2},
    "astra repaired": {"n": 1, "rounds": 3, "builds": 2, "variant": "repaired"},
    "cudamaster": {"n": 1, "rounds": 2, "debugs": 2},
    "cutegen": {"n": 1, "depth": 2, "tries": 2, "fixes": 2, "profile_after": 1},
    "cutegen repaired": {"n": 1, "depth": 2, "tries": 1, "fixes": 2, "profile_after": 0, "variant": "repaired"},
    "cudaforge": {"n": 1, "rounds": 5},
    "cudaforge repaired": {"n": 1, "rounds": 5, "variant": "repaired"},
    "agent": {"n": 1, "sessions": 2, "kernels": 3},
}
"""By strategy and variant, settings that make it short."""


@dataclass
class Model:
    """A script for `LlmServer` that plays the stories."""

    stories: Sequence[Story]
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of times that each story's kernels and words were asked for."""
    replies: dict[str, Reply] = field(default_factory=dict)

    def __call__(self, request: Mapping[str, Any], number: int) -> Reply:
        """Answer what was asked before as it was then: a stop may have cut the first answer off."""
        said = json.dumps(request["messages"])
        if said not in self.replies:
            self.replies[said] = self._reply(request)
        return self.replies[said]

    def _reply(self, request: Mapping[str, Any]) -> Reply:
        system, last = request["messages"][0]["content"], request["messages"][-1]
        story = next(each for each in self.stories if f"# The operator `{each.operator}`" in system)
        if "tools" in request and last["role"] == "tool":
            return Reply(None, tools=(("submit", {"kernel": self._draft(last["content"]), "change": "a draft"}),))
        kind = "kernels" if "tools" in request or "# Your answer" in system else "words"
        self.asked[story.operator, kind] += 1
        count = self.asked[story.operator, kind]
        fates = getattr(story, kind)
        fate = fates[count - 1] if count <= len(fates) else "fast"
        if fate == "refused":
            return Reply("", finish="content_filter")
        if kind == "words":
            return Reply(f"Advice {count}.")
        mark = f"// k{count} {fate}"
        source = load(story.operator).naive("cpu").rstrip()
        if "tools" in request:
            return Reply(None, tools=(("build", {"source": f"{source}\n{mark}\n"}),))
        if lines := re.findall(r"^ *(\d+)\| ", last["content"], re.MULTILINE):
            edit = {"op": "insert", "after": int(lines[-1]), "text": mark}
            return Reply(f"CHANGE: {mark}\n\n{json.dumps({'edits': [edit]})}")
        return Reply(f"CHANGE: {mark}\n\n{FENCE}{source}\n{mark}\n```")

    @staticmethod
    def _draft(said: str) -> str:
        found = re.search(r"Draft ([0-9a-f]{12})", said)
        assert found, said
        return found[1]


def fate(kernel: Kernel) -> Status | float:
    """The fate that the mark of a kernel tells."""
    marks = MARK.findall(kernel.source)
    return FATES.get(marks[-1][2], 0.25 * int(marks[-1][1])) if marks else 0.0


def play(folder: Path, loop: str, stories: Sequence[Story], *, stops: tuple[int, ...] = (), **changes: Any) -> str:
    """Run a loop through stories, in as many sessions as there are stops, and a last one; return why that ended."""
    strategy = loop.split()[0]
    profile = "filtered" if strategy.startswith(("cu", "astra")) else "none"  # others do not wait for profiles
    settings = {"strategy": strategy, "settings": dict(LOOPS[loop]), "profile": profile, "budget": {"tokens": 1e9}}

    async def everything() -> str:
        async with LlmServer(Model(stories)) as server:
            llm = {"models": [model_runs.MODEL], "api_base": server.url, "concurrency": 1}
            tasks = {"operators": [story.operator for story in stories], "ancestors": "naive", "llm": llm}
            wanted = {**tasks, **settings, **changes}
            made = model_runs.config(server.url, **wanted)
            stages = {
                task: TimedFitness(task, Kernel(o.name, "cpu", o.naive("cpu")), fate, operator=o)
                for o, task in made.tasks()
            }
            go_on = partial(model_runs.session, folder, made, fitness=stages)
            for stop in stops:
                assert await go_on(stop_after=stop) == "stopped"
            return await go_on()

    return asyncio.run(everything())


TOLD = """
    select a.request_json, t.status, p.kernel_id, p.text, k.source,
        (select list({'role': role, 'messages': messages_json} order by c.rowid)
            from llm_calls c where c.request_id = a.request_id and c.heard) as calls
    from asks a join tells t using (request_id) join proposals p using (request_id)
    left join kernels k on k.kernel_id = p.kernel_id order by a.number
"""


def trace(rows: Sequence[Mapping[str, Any]], operator: str) -> Iterator[str]:
    """A line for each request of a task that was told, and one for each of its calls, with what the prompt had."""
    names: dict[str, str] = {}
    for row in rows:
        request = json.loads(row["request_json"])
        if not request["task"].startswith(f"{operator}/"):
            continue
        if row["kernel_id"]:
            names.setdefault(row["kernel_id"], _name(row["source"]))
        if request["kind"] == "ancestor":
            continue
        parents = ", ".join(names[parent] for parent in request["parents"])
        who = request.get("role") or request["mutator"] or "profile"
        about = f", after {' '.join(_of(request['context']))}" if "context" in request else ""
        goes_on = f", going on with {_of([request['thread']])[0]}" if "thread" in request else ""
        came = row["text"] or " ".join(filter(None, (names.get(row["kernel_id"], ""), row["status"])))
        yield f"{request['number']} {who} of {parents}{about}{goes_on} -> {came}"
        yield from (f"    {_prompt(call, names)}" for call in row["calls"] or ())


def _of(ids: Sequence[str]) -> list[str]:
    return [f"#{name.partition('#')[2]}" for name in ids]


def _name(source: str) -> str:
    marks = MARK.findall(source)
    return str(marks[-1][0]) if marks else "naive"


def _prompt(call: Mapping[str, str], names: Mapping[str, str]) -> str:
    """A call's role, the titles of its last message, and whose marks, advice and profiles stand below them."""
    text = str(json.loads(call["messages"])[-1]["content"])
    for kernel_id, name in names.items():
        text = text.replace(f"scripted profile of {kernel_id[:8]}", f"scripted profile of {name}")
    before, *sections = re.split(r"^# (.+)$", text, flags=re.MULTILINE)
    told = [f"{title}{_told(body)}" for title, body in zip(sections[::2], sections[1::2], strict=True)]
    return f"{call['role']}: {'; '.join(filter(None, [_told(before).strip(), *told])) or 'no news'}"


def _told(text: str) -> str:
    kernels = [match[0] for match in MARK.findall(text)]
    found = [*kernels, *re.findall(r"Advice \d+|scripted (?:profile of \w+|\w+_error)|element \d+ is wrong", text)]
    return f" ({', '.join(dict.fromkeys(found))})" if found else ""


def told(loop: str, folder: Path, *, stops: tuple[int, ...] = ()) -> str:
    """Run a loop through all stories in folders below; return the traces."""
    stories = tuple(STORIES.values())
    if loop == "one_shot":  # the one answer that it hears is the one that goes wrong
        stories = tuple(
            replace(story, kernels=tuple(fate for fate in story.kernels if fate != "fast")) for story in stories
        )
    reason = play(folder / "stories", loop, stories, stops=stops)
    rows = query(folder / "stories", TOLD).to_pylist()
    parts = [(name, [*trace(rows, story.operator)]) for name, story in STORIES.items()]
    parts[-1][1].append(f"ends: {reason}")
    end = play(folder / "end", loop, stories[:1], budget={"evaluations": 2})
    ended = query(folder / "end", TOLD).to_pylist()
    parts.append((BUDGET_END, [*trace(ended, stories[0].operator), f"ends: {end}"]))
    return "".join(f"== {name}\n{''.join(f'{line}{chr(10)}' for line in lines)}\n" for name, lines in parts)


def golden(loop: str) -> Path:
    """Where the traces of a loop are kept."""
    return FOLDER / f"{loop.replace(' ', '_')}.txt"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in LOOPS:
        with TemporaryDirectory() as place:
            golden(each).write_text(told(each, Path(place)), encoding="utf-8")
