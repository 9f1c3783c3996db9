"""The check `hermetic`: no cell of a comparison was told anything of another one, or of kernels that it did not make.

It reads the stores alone: what was asked for, and every prompt that was sent. A line of a kernel's file that stands in
a prompt must come from what the cell itself had: its naive kernel, its own kernels and answers, the engine's templates,
the operator's definition. What is not covered: a hint in other words, or of a few short lines.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mutators
from evo.api import Run
from evo.compare.cells import begun
from evo.compare.config import Cell
from evo.folders import DATABASE
from mutators.llm.tools import content_of
from operators.catalog import folders, load
from operators.definition.spec import Operator

LEAST_LINE = 24
"""Characters of a line that says whose it is; shorter ones are everybody's."""
LEAST_LINES = 3
"""Lines of one origin in one prompt that are no chance."""


@dataclass(frozen=True)
class Leak:
    """Something that a cell should not have known."""

    run: str
    request_id: str
    what: str

    def as_row(self) -> dict[str, str]:
        """The same as plain values."""
        return asdict(self)


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
        looked = f"{self.prompts} prompts of {self.cells} cells beside {self.kernels} kernels of others"
        if not self.leaks:
            return f"check hermetic: passed; {looked}"
        first = self.leaks[0]
        return f"check hermetic: FAILED, {len(self.leaks)} leaks; {looked}; the first: {first.run} {first.what}"


def hermetic(folder: Path) -> Hermetic:
    """Check the comparison in `folder`, as far as it has come. It raises UserError."""
    cells = [cell for cell in begun(folder)[1] if (folder / cell.name / DATABASE).exists()]
    sources, ideas = _Sources(), {}
    for operator in {cell.path for cell in cells} | {*folders()}:
        sources.add_operator(load(operator))
    for cell in cells:
        with Run(folder / cell.name) as run:
            for text in _texts(run, "leaks.made"):
                sources.add(text, cell.name)
            ideas[cell] = _texts(run, "leaks.ideas")
    prompts, leaks = 0, []
    for cell in cells:
        others = {idea for each, said in ideas.items() if each.operator == cell.operator for idea in said}
        found, count = _leaks(cell, folder / cell.name, sources, others)
        prompts += count
        leaks += found
    return Hermetic(len(cells), prompts, sources.count, leaks)


class _Sources:
    """Lines of all kernels that there are, and where each is from."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: dict[str, set[str]] = {}
        """Names of origins by line: of a cell its name, of a file of an operator its path there."""

    def add_operator(self, operator: Operator) -> None:
        """Take in all kernel files of an operator."""
        for path in operator.folder.rglob("*.c[up]*"):
            self.add(_text(path), f"{operator.name}/{path.relative_to(operator.folder)}")

    def add(self, text: str, origin: str) -> None:
        """Take in one kernel."""
        self.count += 1
        for line in _lines(text):
            self.lines.setdefault(line, set()).add(origin)


def _leaks(cell: Cell, folder: Path, sources: _Sources, ideas: Iterable[str]) -> tuple[list[Leak], int]:
    """The leaks of one cell, and how many prompts it sent; `ideas` are of cells of its operator."""
    with Run(folder) as run:
        told, prompts = run.rows("leaks.told"), run.rows("leaks.prompts")
        made, said = _texts(run, "leaks.own"), _texts(run, "leaks.ideas")
    leaks = [Leak(cell.name, row["request_id"] or "", row["what"]) for row in told]
    operator = load(cell.path)
    known = {line for text in (*made, operator.naive(cell.target), *_definition(operator)) for line in _lines(text)}
    known |= _engine_lines()
    own = "\n".join((*made, *said))
    foreign = sorted(idea for idea in ideas if idea not in own)
    seen: set[str] = set()
    for row in prompts:
        text = _prompt(row["messages_json"])
        shown = [line for line in dict.fromkeys(_lines(text)) if line not in known and line in sources.lines]
        origins = Counter(origin for line in shown for origin in sources.lines[line] if origin != cell.name)
        most = sorted(origins.items(), key=lambda each: (-each[1], each[0]))[:1]
        what = [f"was shown {count} lines of a kernel of {origin}" for origin, count in most if count >= LEAST_LINES]
        what += [f"was told what another cell did: {idea[:80]}" for idea in foreign if idea in text][:1]
        leaks += [Leak(cell.name, row["request_id"], each) for each in what if each not in seen]
        seen |= {*what}
    return leaks, len(prompts)


def _prompt(messages_json: str) -> str:
    """The text that a model was told, without what it said itself."""
    messages: Iterable[Mapping[str, Any]] = json.loads(messages_json)
    return "\n".join(content_of(message) for message in messages if message.get("role") != "assistant")


def _texts(run: Run, query: str) -> list[str]:
    """The texts that answer a query."""
    return [row["text"] for row in run.rows(query) if row["text"]]


def _lines(text: str) -> Iterator[str]:
    plain = text.replace("\\n", "\n").replace('\\"', '"')  # of what was quoted as JSON
    return (line for each in plain.split("\n") if len(line := each.strip()) >= LEAST_LINE)


@cache
def _engine_lines() -> frozenset[str]:
    """All that the engine itself may say in prompts: its templates, examples and manuals."""
    root = Path(mutators.__file__).parent
    texts = (_text(path) for path in sorted(root.rglob("*")) if path.suffix in (".j2", ".py", ".md", ".cu", ".cpp"))
    return frozenset(line for text in texts for line in _lines(text))


def _definition(operator: Operator) -> list[str]:
    return [_text(path) for path in operator.folder.iterdir() if path.suffix in (".toml", ".py")]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
