"""Plain English: docstrings name their subject, and riddle words stand neither there nor in pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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


def test_a_number_of_things_agrees_with_their_name() -> None:
    """The function `counted` names everywhere what it names somewhere: no page says "1 kernels"."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "evo").rglob("*.py"))}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    names = {name for _, node in nodes if isinstance(node, ast.Call) for name in _counted(node)}
    assert {"kernels", "questions", "families"} <= names
    many = re.compile(rf" (?:{'|'.join(sorted(names))})\b")
    found = [
        f"{path.relative_to(ROOT)}:{number.lineno}: {ast.unparse(number.value)}{text.value[:40]}"
        for path, node in nodes
        if isinstance(node, ast.JoinedStr)
        for number, text in pairwise(node.values)
        if isinstance(number, ast.FormattedValue) and isinstance(text, ast.Constant) and many.match(str(text.value))
        if not _is_never_one(number)
    ]
    assert not found, "\n".join(found)


def _counted(call: ast.Call) -> Iterator[str]:
    """The plural that a call of `counted` gives a number."""
    said = [each.value for each in call.args[1:] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if getattr(call.func, "id", getattr(call.func, "attr", "")) == "counted" and said:
        plural = said[-1] if len(said) > 1 else f"{said[0]}s"
        yield re.split(r" (?:are|wait|were|need|that)\b", plural)[0]


def _is_never_one(number: ast.FormattedValue) -> bool:
    """Whether it is a constant, a rounded figure such as a rate, or has other words in the place of one."""
    is_constant = isinstance(number.value, ast.Name) and number.value.id.isupper()
    return is_constant or number.format_spec is not None or isinstance(number.value, ast.BoolOp)


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
