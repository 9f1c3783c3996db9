"""The check `hermetic`: no cell of a comparison was told anything of another one, or of kernels that it did not make.

It reads the stores alone: what was asked for, and every prompt in the order in which they were sent. Code in a prompt
must come from what the cell had by then: its operator, its naive kernel, the engine's templates, and what its own
requests were answered before. What it answered later does not count, or else a model that copies what it was wrongly
shown would make it its own. A passage of another kernel that is none of that is a leak. What is not covered: a hint in
other words, and passages of fewer than PASSAGE characters.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import mutators
from evo.api import Run
from evo.compare.cells import stored
from evo.compare.config import Cell
from evo.folders import DATABASE
from fitness.words import counted
from mutators.llm.tools import content_of
from operators.catalog import folders, load
from operators.definition.spec import Operator
from operators.plan.defaults import with_defaults

PASSAGE = 32
"""Characters from the beginning of a kernel's line on, blanks left out, over as many lines as it takes, that say whose
they are, wherever they stand in a prompt."""
QUOTING = "0123456789 \t>|+-:.*`"
"""Characters before a line that is quoted."""
LEAST_IDEA = 32
"""Characters of an idea that is no chance."""


@dataclass(frozen=True)
class Leak:
    """Something that a cell should not have known."""

    run: str
    request_id: str
    what: str


@dataclass(frozen=True)
class Hermetic:
    """Findings of the check."""

    cells: int
    prompts: int
    kernels: int
    """Files that no prompt of another cell may show."""
    leaks: list[Leak]

    def __str__(self) -> str:
        """One line."""
        others = f"{counted(self.kernels, 'kernel')} of others"
        looked = f"{counted(self.prompts, 'prompt')} of {counted(self.cells, 'cell')} beside {others}"
        if not self.leaks:
            return f"check hermetic: passed; {looked}"
        first, found = self.leaks[0], counted(len(self.leaks), "leak")
        return f"check hermetic: FAILED, {found}; {looked}; the first: {first.run} {first.what}"


def hermetic(folder: Path) -> Hermetic:
    """Check the comparison in `folder`, as far as it has come. It raises UserError."""
    cells = [cell for cell in stored(folder).cells() if (folder / cell.name / DATABASE).exists()]
    sources, ideas = _Sources(), {}
    for operator in {cell.path for cell in cells} | {*folders()}:
        sources.add_operator(load(operator))
    for cell in cells:
        with Run(folder / cell.name) as run:
            for text in _texts(run, "leaks.made"):
                sources.add(text, cell.name)
            ideas[cell] = _texts(run, "leaks.ideas", least=LEAST_IDEA)
    prompts, leaks = 0, []
    for cell in cells:
        others = {idea for each, said in ideas.items() if each.operator == cell.operator for idea in said}
        found, count = _leaks(cell, folder / cell.name, sources, others)
        prompts += count
        leaks += found
    return Hermetic(len(cells), prompts, sources.count, leaks)


class _Sources:
    """Passages of all kernels that there are, and where each is from."""

    def __init__(self) -> None:
        self.count = 0
        self.passages: dict[str, set[str]] = {}
        """Names of origins by passage: of a cell its name, of a file of an operator its path there."""

    def add_operator(self, operator: Operator) -> None:
        """Take in all kernel files of an operator."""
        for path in operator.folder.rglob("*.c[up]*"):
            self.add(_text(path), f"{operator.name}/{path.relative_to(operator.folder)}")

    def add(self, text: str, origin: str) -> None:
        """Take in one kernel."""
        self.count += 1
        lines = _lines(text)
        joined = "".join(lines)
        for start in accumulate(map(len, lines[:-1]), initial=0):
            if len(passage := joined[start : start + PASSAGE]) == PASSAGE:
                self.passages.setdefault(passage, set()).add(origin)

    def shown(self, lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
        """The passages of these kernels within a text of these lines, and what each of them has of every line."""
        joined, ends = "".join(lines), [*accumulate(map(len, lines))]
        for start in range(len(joined) - PASSAGE + 1):
            if (passage := joined[start : start + PASSAGE]) in self.passages:
                within = ends[bisect_right(ends, start) : bisect_left(ends, start + PASSAGE)]
                yield passage, [joined[a:b] for a, b in pairwise((start, *within, start + PASSAGE))]


class _Known:
    """Texts that are known."""

    def __init__(self, texts: Iterable[str], base: _Known | None = None) -> None:
        """`base` is known besides."""
        self._base = base
        self._texts: list[str] = []
        self._found: set[str] = set()
        """Texts that were looked for and are known: they stay so."""
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Take in another text."""
        self._texts.append("".join(_lines(text)))

    def has(self, text: str) -> bool:
        """Whether a text without blanks stands in one that is known."""
        if text not in self._found and any(text in each for each in self._texts):
            self._found.add(text)
        return text in self._found or (self._base is not None and self._base.has(text))


def _leaks(cell: Cell, folder: Path, sources: _Sources, ideas: Iterable[str]) -> tuple[list[Leak], int]:
    """The leaks of one cell, and how many prompts it sent; `ideas` are of cells of its operator."""
    with Run(folder) as run:
        told, prompts, learnt = run.rows("leaks.told"), run.rows("leaks.prompts"), run.rows("leaks.learnt")
    leaks = [Leak(cell.name, row["request_id"] or "", row["what"]) for row in told]
    others = [("".join(_lines(idea)), idea) for idea in sorted(ideas)]
    operator, place, seen = load(cell.path), 0, set[str]()
    known = _Known((operator.naive(cell.target), *_definition(operator)), _engine())
    for row in prompts:
        while place < len(learnt) and learnt[place]["moment"] <= row["moment"]:
            known.add(learnt[place]["text"])
            if values := learnt[place]["values_json"]:
                known.add(with_defaults(learnt[place]["text"], json.loads(values)))
            place += 1
        lines = _lines(_prompt(row["messages_json"]))
        shown = {passage: sources.passages[passage] - {cell.name} for passage, pieces in sources.shown(lines)
                 if not known.has(passage) and not all(map(known.has, pieces))}  # fmt: skip
        origins = Counter(origin for names in shown.values() for origin in names)
        what = []
        if most := min(origins, key=lambda origin: (-origins[origin], origin), default=""):
            first = next(passage for passage, names in shown.items() if most in names)
            what.append(f"was shown {origins[most]} passages of a kernel of {most}: {first}")
        text = "".join(lines)
        told_of = (idea for plain, idea in others if plain in text and not known.has(plain))
        what += [f"was told what another cell did: {idea[:80]}" for idea in islice(told_of, 1)]
        leaks += [Leak(cell.name, row["request_id"], each) for each in what if each not in seen]
        seen |= {*what}
    return leaks, len(prompts)


def _prompt(messages_json: str) -> str:
    """The text that a model was told, without what it said itself."""
    messages: Iterable[Mapping[str, Any]] = json.loads(messages_json)
    return "\n".join(content_of(message) for message in messages if message.get("role") != "assistant")


def _texts(run: Run, query: str, **values: int) -> list[str]:
    """The texts that answer a query."""
    return [row["text"] for row in run.rows(query, **values) if row["text"]]


def _lines(text: str) -> list[str]:
    """The lines of a text without blanks, nor what is put before a line that is quoted; empty ones left out.

    Backslashes are left out too: texts may be quoted as JSON, and that again.
    """
    plain = text.replace("\\n", "\n").replace("\\t", "\t").replace("\\", "")
    stripped = ("".join(line.lstrip(QUOTING).split()) for line in plain.split("\n"))
    return [line for line in stripped if line]


@cache
def _engine() -> _Known:
    """All that the engine itself may say in prompts: its templates, examples and manuals."""
    root = Path(mutators.__file__).parent
    return _Known(_text(path) for path in root.rglob("*") if path.suffix in (".j2", ".py", ".md", ".cu", ".cpp"))


def _definition(operator: Operator) -> list[str]:
    return [_text(path) for path in operator.folder.iterdir() if path.suffix in (".toml", ".py")]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
