"""A model that has a champion's ideas, and tells them one at a time, in no order, wrongly now and then.

Between the naive kernel and the champion there is a chain of kernels, each with one idea more than the one before. An
answer is one step of it, drawn by chance: as edits where the kernel of the question has the lines for it, as a whole
file where that kernel is the one that the step starts from, otherwise as edits that fit nowhere, which is what models
that misremember a file do. So the search has to keep what helped, and to ask again from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, partial
from pathlib import Path
from random import Random

from mutators.tuning.space import FACTS, Space
from operators.champions import offered
from operators.definition.spec import Operator
from operators.errors import PlanError
from operators.plan.header import read_header
from operators.plan.reading import parse_plan

CHAINS = Path(__file__).parent / "chains"
"""Chains written by hand, `OPERATOR/NUMBER-IDEA.cu` or `.cpp`, the best kernel last."""
CONTEXT = 2
"""Lines around a change that an edit quotes."""
BLUNDERS = ((" + ", " - "), (" < ", " <= "), ("= 0", "= 1"), (";\n", "\n"))
"""Mistakes put into a copy of the question's kernel, and what they replace."""
WORSE = (
    ("unrolling", re.compile(r"^[ \t]*#pragma unroll[^\n]*\n", re.MULTILINE)),
    ("pointers that do not overlap", re.compile(r"[ ]?__restrict__")),
)
"""Parts taken out of a champion that has no chain of its own; it is right without that. (Not so without the bounds of a
launch: a large block would have more registers than there are.)"""


@dataclass(frozen=True)
class Chain:
    """Kernels from the naive one to the best, each with one idea more."""

    sources: tuple[str, ...]
    ideas: tuple[str, ...]
    """The idea that each has and the one before has not, but for the first."""

    def answer(self, source: str, random: Random, *, wrong: float) -> str:
        """Return what the model says of a kernel; a share of `wrong` of its answers are blunders."""
        if random.random() < wrong:
            old, new = random.choice([pair for pair in BLUNDERS if pair[0] in source] or [("", "")])
            blunder = source.replace(old, new, 1 + random.randrange(source.count(old) or 1)) if old else "void\n"
            return f"CHANGE: fewer steps\n\n```cpp\n{blunder}\n```\n"
        step = random.randrange(1, len(self.sources))
        fits = all(source.count(old) == 1 for old, _ in self._edits[step - 1])
        if not fits and self.nearest(source) == step - 1:
            return f"CHANGE: {self.ideas[step - 1]}\n\n```cpp\n{self.sources[step]}\n```\n"
        blocks = (f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE" for old, new in self._edits[step - 1])
        return f"CHANGE: {self.ideas[step - 1]}\n\n" + "\n\n".join(blocks) + "\n"

    def nearest(self, source: str) -> int:
        """Return the number of the kernel that this one is most like, line by line."""
        lines = source.splitlines()
        likeness = [SequenceMatcher(None, lines, each.splitlines(), autojunk=False).ratio() for each in self.sources]
        return likeness.index(max(likeness))

    @cached_property
    def _edits(self) -> list[list[tuple[str, str]]]:
        return [list(_edits(old, new)) for old, new in zip(self.sources, self.sources[1:], strict=False)]


def chain(operator: Operator, dtype: str, target: str) -> Chain | None:
    """Return the way from the naive kernel to the best known; None where none is known.

    It is the one written by hand, where there is one, else by the operator's own kernel files to its first champion,
    from which ideas were taken out one after the other.
    """
    naive = operator.ancestor("naive", target)
    written = sorted((CHAINS / operator.name).glob(f"*{naive.suffix}"))
    if written:
        ideas = [path.stem.partition("-")[2].replace("-", " ") for path in written]
        return Chain((operator.naive(target), *(path.read_text(encoding="utf-8") for path in written)), tuple(ideas))
    best = offered(operator, target, dtype)
    if not best:
        return None
    others = [name for name in operator.ancestors(target) if name != "naive"]
    texts = [operator.ancestor(name, target).read_text(encoding="utf-8") for name in (*others, best[0])]
    begun = [*others, "another algorithm"]
    lesser = list(_lesser(texts[-1], partial(_stands, operator, dtype, target)))
    sources = [operator.naive(target), *texts[:-1], *(text for _, text in reversed(lesser)), texts[-1]]
    return Chain(tuple(sources), (*begun, *(idea for idea, _ in reversed(lesser))))


def _lesser(champion: str, stands: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """A champion without one idea, without two, and so on; by the idea that the next better one has."""
    source = champion
    if (turned := _turned(source, stands)) != source:
        source = turned
        yield "other tunables", source
    for idea, pattern in WORSE:
        head, end, body = source.partition("*/")
        if pattern.search(body):
            source = head + end + pattern.sub("", body)
            yield idea, source


def _turned(source: str, stands: Callable[[str], bool]) -> str:
    """The file with the lists of values in [tune] the other way round, but for those with which it would not stand."""
    head, end, body = source.partition("*/")
    for name in read_header(source).table.get("tune", {}):
        entry = re.search(rf"^({re.escape(name)}\s*=\s*\[)([\d, ]*)\]", head, re.MULTILINE)
        if entry:
            values = ", ".join(reversed([value.strip() for value in entry[2].split(",") if value.strip()]))
            turned = f"{head[: entry.start()]}{entry[1]}{values}]{head[entry.end() :]}"
            head = turned if stands(turned + end + body) else head
    return head + end + body


def _stands(operator: Operator, dtype: str, target: str, source: str) -> bool:
    """Whether the plan of a file permits its first values on all workloads."""
    try:
        plan = parse_plan(source, operator, target).for_dtype(dtype)
    except PlanError:
        return False
    space = Space(plan, operator, dtype, operator.workloads, FACTS[target])
    return not space.problem(space.default)


def _edits(old: str, new: str) -> Iterator[tuple[str, str]]:
    """The edits that make one file of the other: lines that are replaced, with some around them, and what stands there
    then."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        yield "".join(before[i1:i2]), "".join(after[j1:j2])


def chains(operators: Sequence[Operator], dtype: str, target: str) -> dict[str, Chain]:
    """By operator, the chains of those that have one."""
    found = {operator.name: chain(operator, dtype, target) for operator in operators}
    return {name: known for name, known in found.items() if known}
