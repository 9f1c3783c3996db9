"""Plain English: docstrings name their subject, and riddle words stand neither there nor in pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.evo.test_pages import PAGES, name
from tests.garbage import no_garbage_collected
from tests.structure import ROOT

OPENINGS = ("Of", "So", "That", "As", "What", "How")
"""First words of docstrings that only refer to the line above, or put a question in the subject's place."""
MODULE_OPENINGS = ("Whether", "By", "Where", "It")
"""First words of a module's docstring that keep back what the module is."""
RIDDLES = re.compile(r"\b(?:nobody|whoever|somebody|anybody|errand)\b", re.IGNORECASE)
PACKAGES = ("evo", "fitness", "mutators", "operators", "tests")
FINGERPRINTED = tuple(
    f"operators/{operator}/reference.py"
    for operator in (
        "activation/gelu",
        "activation/softplus",
        "algorithmic/fft",
        "algorithmic/prefix_sum",
        "algorithmic/simpson_int",
        "dense/matrix_power",
        "llm/rope",
        "llm/softmax_attention",
        "llm/triangle_attention",
        "loss/cross_entropy_loss",
        "normalization/rms_norm",
        "normalization/softmax",
    )
)
"""Files whose text is a part of their operator's definition: another docstring would make earlier verdicts void."""


@dataclass(frozen=True)
class Docstring:
    """A docstring, or one that describes a constant or a field."""

    place: str
    line: int
    text: str
    is_modules: bool

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.text.splitlines()[0]}"


@pytest.fixture(scope="module")
def docstrings() -> list[Docstring]:
    """All docstrings of the project."""
    with no_garbage_collected():
        paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
        return [docstring for path in paths for docstring in _docstrings(path)]


def _docstrings(path: Path) -> Iterator[Docstring]:
    place, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))
    blocks: list[tuple[ast.AST, ...]] = [tuple(tree.body)]
    while blocks:
        for statement in blocks.pop():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Docstring(place, statement.lineno, text, statement is tree.body[0])
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                blocks.append(tuple(getattr(statement, part, ())))


def test_docstrings_begin_with_their_subject(docstrings: list[Docstring]) -> None:
    opening = re.compile(rf"(?:{'|'.join(OPENINGS)})\b")
    found = [d for d in docstrings if d.place not in FINGERPRINTED and opening.match(d.text)]
    assert not found, "\n".join(map(str, found))


def test_modules_begin_with_what_they_are(docstrings: list[Docstring]) -> None:
    opening = re.compile(rf"(?:{'|'.join(MODULE_OPENINGS)})\b")
    own = [d for d in docstrings if d.is_modules and not d.place.endswith("/reference.py")]
    found = [d for d in own if opening.match(d.text)]
    assert not found, "\n".join(map(str, found))


def test_docstrings_name_who_does_what(docstrings: list[Docstring]) -> None:
    found = [f"{d}: {riddle[0]}" for d in docstrings if (riddle := RIDDLES.search(d.text))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[-2:] != ("redteam", "README.md")], ids=name)
def test_pages_name_who_does_what(page: Path) -> None:
    assert RIDDLES.findall(page.read_text(encoding="utf-8")) == []
